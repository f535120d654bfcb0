"""Differences between two methods as cells of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ercr.metrics.pooled import Pooled, compare_all
from ercr.report.document import Estimate


def differences(a: Pooled, b: Pooled, names: Sequence[str]) -> dict[str, Estimate]:
    """Each score of `a` minus that of `b` over their common images; nothing if they have no image in common."""
    known = [name for name in names if name in a.names and name in b.names]
    if not known or not a.images.keys() & b.images.keys():
        return {}
    found = compare_all(a, b, known)
    return {
        name: Estimate(one.difference, one.low, one.high, p=one.p, images=one.n, words=int(one.total))
        for name, one in found.items()
        if math.isfinite(one.difference)
    }
