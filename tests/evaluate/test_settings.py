"""What counts as other settings of a run."""

from __future__ import annotations

import pytest

from ercr.evaluate.settings import differences

WITH = {"maps": False, "plugins": {"mine.py": "ab12"}}
WITHOUT = {"maps": False}
EMPTY = {"maps": False, "plugins": {}}


@pytest.mark.parametrize(("old", "new"), [(WITHOUT, EMPTY), (EMPTY, WITHOUT), (WITHOUT, WITHOUT), (WITH, WITH)])
def test_a_run_without_plugins_goes_on_whether_it_says_so_or_not(old, new):
    assert differences(old, new) == []


def test_plugins_that_came_went_or_changed_are_noticed():
    changed = {**WITH, "plugins": {"mine.py": "cd34"}}
    assert differences(WITHOUT, WITH) == ["plugins was nothing, is now mine.py ab12"]
    assert differences(WITH, WITHOUT) == ["plugins was mine.py ab12, is now nothing"]
    assert differences(WITH, changed) == ["plugins was mine.py ab12, is now mine.py cd34"]
