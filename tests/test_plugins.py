"""Methods, families and datasets from outside the package: as a package's entry points, and as files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ercr import plugins
from ercr.datasets import registry as datasets
from ercr.errors import PluginError
from ercr.methods import registry as methods
from ercr.models import registry as models

PAGE = (Path(__file__).resolve().parents[1] / "docs/extending.md").read_text(encoding="utf-8")

METHOD = """
from ercr.methods import Evidence, Method, Result, Settings, register
from ercr.trace import Needs

register(
    Method(
        name="{name}",
        title="Ones",
        paper="none",
        settings=Settings,
        needs=lambda settings: Needs(),
        evidence=lambda trace, rows, settings: Evidence(trace.geometry.valid),
        refine=lambda trace, evidence, rows, settings: Result(evidence[rows]),
    )
)
"""

# what a user of the package does, in one process
USE = """
import json, sys
from ercr.datasets.registry import open_dataset
from ercr.evaluate.plan import Plan
from ercr.methods import resolve
from ercr.models import adapters

dataset = open_dataset("captioned:" + sys.argv[1])
plan = Plan(model="any", dataset="captioned:", methods=("sharp:power=3",))
print(json.dumps({
    "power": resolve("sharp:power=3")[1].power,
    "family": adapters()["vipllava"].family,
    "reference": dataset[0].references[0],
    "plugins": plan.settings(dataset).get("plugins"),
}))
"""


@pytest.fixture
def outside(monkeypatch):
    """Whatever is registered or loaded by a test is forgotten after it."""
    methods.methods(), models.adapters(), datasets.datasets()  # the package's own stay
    for registry, name in ((methods, "_METHODS"), (models, "_ADAPTERS"), (datasets, "_OPENERS")):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    monkeypatch.setattr(plugins, "_files", {})
    monkeypatch.setattr(plugins, "_groups", set())
    monkeypatch.setenv(plugins.VARIABLE, "")
    return monkeypatch


def written(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def package(folder):
    """The package of the page, as an installer leaves it: its modules, and what it announces."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    announced = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1].replace("\n    ", "\n"))
    marks = {"sharp": 'name="sharp"', "vipllava": '"vipllava"', "captioned": '@register("captioned")'}
    code = folder / "my_package"
    code.mkdir()
    written(code, "__init__.py", "")
    lines = []
    for group, entries in announced["project"]["entry-points"].items():
        lines.append(f"[{group}]")
        for name, value in entries.items():
            lines.append(f"{name} = {value}")
            (block,) = [block for block in blocks if marks[name] in block and block.startswith('"""')]
            written(code, f"{value.rpartition('.')[2]}.py", block)
    info = folder / "my_package-1.5.dist-info"
    info.mkdir()
    written(info, "METADATA", "Metadata-Version: 2.1\nName: my-package\nVersion: 1.5\n")
    written(info, "entry_points.txt", "\n".join(lines))
    return announced


def test_a_package_is_found_by_its_entry_points_as_the_page_says(tmp_path, picture):
    site, pictures = tmp_path / "site", tmp_path / "pictures"
    site.mkdir()
    pictures.mkdir()
    assert set(package(site)["project"]["entry-points"]) == set(plugins.GROUPS)
    picture.save(pictures / "one.jpg")
    written(pictures, "one.txt", "A dog.")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", plugins.VARIABLE: ""}
    script = [sys.executable, "-c", USE, str(pictures)]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "power": 3.0,
        "family": "ViP-LLaVA",
        "reference": "A dog.",
        "plugins": {"my-package": "1.5"},
    }


def test_files_are_loaded_before_any_command_wherever_the_option_stands(outside, tmp_path, command):
    first, second = (written(tmp_path, f"{name}.py", METHOD.format(name=name)) for name in ("one", "two"))
    third = written(tmp_path, "three.py", METHOD.format(name="three"))
    outside.setenv(plugins.VARIABLE, str(third))
    code, output, errors = command("--plugin", first, "methods", f"--plugin={second}", "--json")
    assert code == 0, errors
    assert {"one", "two", "three", "ercr"} <= {row["name"] for row in json.loads(output)}
    # processes that are started from here load the same files
    assert os.environ[plugins.VARIABLE].split(os.pathsep) == [str(third), str(first), str(second)]
    assert set(plugins.used()) == {"one.py", "two.py", "three.py"}


def test_a_worker_of_a_cluster_loads_the_files_it_is_told(outside, tmp_path):
    from ercr.errors import UnknownMethod
    from ercr.evaluate.cluster import _PartWorker
    from ercr.evaluate.job import Evaluation
    from ercr.evaluate.plan import Plan

    file = written(tmp_path, "here.py", METHOD.format(name="here"))
    with pytest.raises(UnknownMethod):
        Plan("no such folder/model", "scenes:1", ("here",))
    worker = _PartWorker(Evaluation(Plan("./no-such-model", "scenes:1", ("cam",))), str(tmp_path), 1, 1, [str(file)])
    answer = worker({"item": [0]})
    assert "no-such-model" in answer["error"][0]  # it came as far as the model
    assert "here" in methods.methods()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import json\nnot_defined\n", r"broken\.py, line 2, cannot be loaded: NameError: name 'not_defined'"),
        ("x = (\n", r"broken\.py cannot be loaded: SyntaxError"),
        ("raise SystemExit(0)\n", r"broken\.py, line 1, cannot be loaded: SystemExit: 0"),
        (None, r"no file .*broken\.py"),
    ],
)
def test_a_broken_file_ends_the_command_with_its_name_and_the_reason(outside, tmp_path, command, text, reason):
    file = tmp_path / "broken.py"
    if text is not None:
        written(tmp_path, file.name, text)
    code, output, errors = command("models", "--plugin", file)
    assert (code, output) == (2, "")
    assert re.search(reason, errors)
    assert len(errors.strip().splitlines()) == 1


def test_a_broken_package_is_named_each_time(outside, tmp_path):
    package(tmp_path)
    written(tmp_path / "my_package", "captioned.py", "import no_such_module_at_all")
    outside.syspath_prepend(str(tmp_path))
    for _ in range(2):
        with pytest.raises(PluginError, match=r"my_package\.captioned.* of my-package cannot be loaded: Module"):
            datasets.datasets()
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        outside.delitem(sys.modules, name)


def test_a_file_that_lists_methods_while_it_is_loaded_runs_once(outside, tmp_path):
    text = "from ercr.methods import methods\nassert 'ercr' in methods()\n" + METHOD.format(name="late")
    outside.setenv(plugins.VARIABLE, str(written(tmp_path, "late.py", text)))
    assert "late" in methods.methods()
    assert list(plugins.used()) == ["late.py"]
