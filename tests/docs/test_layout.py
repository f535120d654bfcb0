"""The rooms of the house: which folder may import which. `python docs/tools/graph.py` draws it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .test_docs import tool

# Each folder and what it builds on. It may import these and all that they build on; errors.py, lazy.py,
# printable.py, progress.py and version.py serve everyone. A new arrow belongs here, and changes the picture in
# docs/architecture.md.
BUILDS_ON = {
    "files": "",
    "image": "files",
    "plugins": "files",
    "models": "image plugins",
    "datasets": "image plugins",
    "words": "image",
    "trace": "models",
    "methods": "trace",
    "render": "words",
    "metrics": "words",
    "explanation": "render",
    "zoo": "models",
    "explaining": "explanation methods zoo",
    "figures": "explaining metrics",
    "benchmark": "explaining",
    "evaluate": "explaining datasets metrics",
    "album": "evaluate",
    "report": "evaluate",
    "web": "explaining datasets",
    "commands": "album benchmark figures report web",
}


@pytest.fixture(scope="module")
def graph():
    return tool("graph")


def test_every_import_between_folders_follows_an_arrow(graph):
    allowed = {folder: set(others.split()) for folder, others in BUILDS_ON.items()}
    assert not graph.cycles(allowed)
    found = graph.drawn()
    assert set(found) == set(allowed)
    against = [
        f"{folder} imports {other}"
        for folder, others in found.items()
        for other in sorted(others)
        if other not in graph.reach(allowed, folder)
    ]
    assert not against
    assert graph.without_shortcuts(found) == allowed, "an arrow without an import, or a shortcut"


def test_no_module_imports_itself_by_way_of_others_not_even_inside_functions(graph):
    assert graph.cycles(graph.modules(types=False)) == []


def test_the_picture_shows_todays_arrows(graph):
    assert graph.TARGET.read_text(encoding="utf-8") == graph.picture(graph.drawn()), "python docs/tools/graph.py"


def test_no_arrow_of_the_picture_points_upwards(graph):
    found = graph.drawn()
    heights = graph.levels(found)
    assert all(heights[a] > heights[b] for a, others in found.items() for b in others)


def test_cycles_are_found_in_made_up_packages(graph, tmp_path):
    package = tmp_path / "house"
    (package / "upper").mkdir(parents=True)
    (package / "lower").mkdir()
    (package / "upper" / "a.py").write_text("def f():\n    from house.lower import b\n")
    (package / "lower" / "b.py").write_text("from ..upper.a import f\n")
    (package / "lower" / "__init__.py").write_text("import house.upper.a as seen\n")
    assert graph.modules(package)["house.lower.b"] == {"house.upper.a"}
    assert graph.cycles(graph.modules(package)) == [{"house.upper.a", "house.lower.b"}]
    assert graph.cycles(graph.folders(graph.modules(package))) == [{"upper", "lower"}]


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import ercr", {"torch", "transformers", "PIL", "numpy"}),
        ("import ercr.report.build", {"torch", "transformers", "scipy", "matplotlib"}),
        ("import ercr.commands.cli", {"torch", "transformers", "pyarrow"}),
        ("import ercr.figures.rescore, ercr.figures.saving", {"transformers", "pyarrow"}),
        ("from ercr.explanation.storage import load", {"transformers", "pyarrow", "matplotlib"}),
    ],
)
def test_what_is_light_stays_light(statement, heavy):
    code = f"import sys; {statement}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
