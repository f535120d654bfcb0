"""The faults put in by hand still fit the code that they change."""

from __future__ import annotations

import ast

from tests.mutants.by_hand import FAULTS, changed
from tests.mutants.forked import ROOT


def test_every_fault_still_fits_the_code_and_can_be_read():
    for fault in FAULTS:
        text = (ROOT / "src" / "ercr" / fault.file).read_text()
        assert ast.dump(ast.parse(changed(text, fault))) != ast.dump(ast.parse(text))
        assert all((ROOT / test.split("::")[0]).is_file() for test in fault.tests)
