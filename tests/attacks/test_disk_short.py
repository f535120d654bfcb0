"""Short versions of the attacks on saved explanations and on run folders."""

from __future__ import annotations

from tests.attacks import explanations, runs


def test_damaged_run_folders_are_mended_or_refused(load, tmp_path):
    ends, wrong = runs.attack(14, 1, load("qwen2_vl"), tmp_path)
    assert wrong == []
    assert all(ends[end] for end in ("report sound", "report refused", "evaluate mended", "evaluate refused"))


def test_mutated_explanations_are_refused_or_can_be_used(load, tmp_path):
    ends, wrong = explanations.attack(60, 1, explanations.sound(load("llava")), tmp_path)
    assert wrong == []
    assert min(ends["refused"], ends["used"]) > 0
