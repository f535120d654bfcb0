"""Differences of two methods as cells of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ercr.metrics.pooled import Pooled, compare_all
from ercr.report.document import Figure


def differences(a: Pooled, b: Pooled, figures: Sequence[str]) -> dict[str, Figure]:
    """Each figure of `a` minus that of `b` over their common images; nothing where they have none in common."""
    known = [name for name in figures if name in a.figures and name in b.figures]
    if not known or not a.images.keys() & b.images.keys():
        return {}
    found = compare_all(a, b, known)
    return {
        name: Figure(one.difference, one.low, one.high, p=one.p, images=one.n, words=int(one.total))
        for name, one in found.items()
        if math.isfinite(one.difference)
    }
