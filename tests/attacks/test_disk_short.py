"""Short versions of the attacks on run folders."""

from __future__ import annotations

from tests.attacks import runs


def test_damaged_run_folders_are_mended_or_refused(load, tmp_path):
    ends, wrong = runs.attack(14, 1, load("qwen2_vl"), tmp_path)
    assert wrong == []
    assert all(ends[end] for end in ("report sound", "report refused", "evaluate mended", "evaluate refused"))
