"""`python -m tests.mutants.by_hand`: sixteen faults put in by hand, and whether the tests named beside them notice.

The files are not touched: each changed text is loaded in a process of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby

from tests.mutants.forked import ROOT, Bench


@dataclass(frozen=True)
class Fault:
    what: str
    file: str  # in src/ercr
    old: str
    new: str
    tests: tuple[str, ...]


GEOMETRY = ("tests/image/test_geometry.py",)
EQUATIONS = ("tests/methods/test_equations.py",)
RECORD = ("tests/trace/test_record.py",)
WORDS = ("tests/words/test_cuts.py",)
POOLED = ("tests/metrics/test_pooled.py",)
GATE = ("tests/web/test_request_filter_bounds.py",)
FAULTS = [
    Fault(
        "cells count from 0.3 of their area on",
        "image/geometry.py",
        "y * x > _HALF or",
        "y * x > Fraction(3, 10) or",
        GEOMETRY,
    ),
    Fault(
        "a view covers all valid cells, shown or not",
        "image/geometry.py",
        "both = anchor.valid & shown",
        "both = anchor.valid",
        GEOMETRY,
    ),
    Fault(
        "shares of views ignore what they show",
        "methods/ercr.py",
        "if cover is None else given * cover",
        "if cover is None else given.expand(-1, -1, *anchor.grid)",
        EQUATIONS,
    ),
    Fault(
        "the filter spills over cells beside the picture",
        "methods/ercr.py",
        "rank_gaussian(maps, sheets_of(trace.geometry)) * valid_cells(trace.geometry, maps.device)",
        "rank_gaussian(maps, sheets_of(trace.geometry))",
        EQUATIONS,
    ),
    Fault(
        "the raw stage is that of the first view",
        "methods/ercr.py",
        "stack[settings.scales.index(1.0)]",
        "stack[0]",
        EQUATIONS,
    ),
    Fault(
        "joint normalisation leaves repeated words out",
        "methods/ercr.py",
        "~earlier(trace, tokens, False)",
        "~earlier(trace, tokens, True)",
        EQUATIONS,
    ),
    Fault(
        "answers found by beams are never read again",
        "trace/record.py",
        "if norm.shape[:2] != (len(samples), sequences.shape[1] - 1):",
        "if False:",
        RECORD,
    ),
    Fault(
        "the end token is cut off",
        "trace/tokens.py",
        "return tokens[: int(at[0]) + 1]",
        "return tokens[: int(at[0])]",
        RECORD,
    ),
    Fault("kana start no words", "words/pieces.py", "(0x3040, 0x30FF), ", "", WORDS),
    Fault(
        "the permutation test leaves out what was seen",
        "metrics/pooled.py",
        "else (as_large + 1) / (total + 1)",
        "else as_large / (total + 1)",
        POOLED,
    ),
    Fault(
        "the permutation test counts one way too few",
        "metrics/pooled.py",
        "else (as_large + 1) / (total + 1)",
        "else (as_large + 1) / total",
        POOLED,
    ),
    Fault(
        "F1 counts the images of the part that has most",
        "metrics/pooled.py",
        "return min((int((table[:, at] != 0)",
        "return max((int((table[:, at] != 0)",
        POOLED,
    ),
    Fault(
        "the mark of a new word is not restored",
        "evaluate/rows.py",
        'f"▁{text}" if str(piece)',
        'f"{text}" if str(piece)',
        ("tests/evaluate/test_rows.py::test_words_of_tokenizers_that_drop_the_space_are_those_of_the_public_code",),
    ),
    Fault(
        "bodies longer than they say pass",
        "web/asgi.py",
        "if len(body) > length:",
        "if False:",
        GATE,
    ),
    Fault(
        "web sockets pass",
        "web/request_filter.py",
        'await send({"type": "websocket.close", "code": 1008})',
        "await self._app(scope, receive, send)",
        GATE,
    ),
    Fault(
        "long addresses pass",
        "web/request_filter.py",
        'if len(scope["query_string"]) > _MAX_ADDRESS or len(path) > _MAX_ADDRESS:',
        "if False:",
        GATE,
    ),
]


def main() -> None:
    survived = 0
    for tests, faults in groupby(FAULTS, key=lambda fault: fault.tests):
        bench = Bench(tests)
        for fault in faults:
            path = ROOT / "src" / "ercr" / fault.file
            killed = bench.fails(path, changed(path.read_text(), fault))
            survived += not killed
            print(f"{'killed  ' if killed else 'SURVIVED'}  {fault.file}: {fault.what}", flush=True)
    print(f"{len(FAULTS) - survived} of {len(FAULTS)} killed")
    sys.exit(survived > 0)


def changed(text: str, fault: Fault) -> str:
    """A module's text with a fault in it."""
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file} no longer holds {fault.old!r} once: bring the list up to date.")
    return text.replace(fault.old, fault.new)


if __name__ == "__main__":
    main()
