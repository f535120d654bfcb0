"""Files that nobody runs every day still agree with the rest: locks, the workflow, the page on safety."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_locks_hold_what_the_project_asks_for_with_hashes_and_no_host():
    text = "\n".join((ROOT / f"requirements/{name}.txt").read_text() for name in ("demo", "photo", "evaluate", "test"))
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert all(re.match(r"[a-z0-9-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|^-|^torch==|^nvidia", text, re.M)
    asked = [*PROJECT["dependencies"], *(r for rs in PROJECT["optional-dependencies"].values() for r in rs)]
    names = {plain(re.match(r"[\w.-]+", r)[0]) for r in asked} - {"ercr", "ercr-zoo", "torch"}
    assert names <= {entry.split("==")[0] for entry in entries}


def test_every_attack_is_a_row_of_the_page_on_safety():
    attacks = {p.stem for p in (ROOT / "tests/attacks").glob("*.py") if "def main()" in p.read_text("utf-8")}
    page = (ROOT / "docs/safety.md").read_text("utf-8")
    assert set(re.findall(r"`python -m tests\.attacks\.(\w+)`", page)) == attacks


def test_the_workflow_runs_the_pythons_that_the_metadata_name():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    pythons = {row.rsplit(" ", 1)[1] for row in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", row)}
    assert set(jobs["everywhere"]["strategy"]["matrix"]["python"]) == pythons
    for file in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(file.read_text()), file
