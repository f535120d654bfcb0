"""Short versions of the attacks with pictures and datasets, and the cases that once went wrong."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from PIL import Image

from ercr.datasets.registry import open_dataset
from ercr.errors import ErcrError, ImageError, InputError
from ercr.image import images
from ercr.image.images import load_image
from ercr.printable import printable
from tests.attacks import datasets, pictures
from tests.attacks.mutants import PRINTED, foreign, saved, sound


def test_hostile_pictures_are_read_or_refused_in_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])  # the attack sets a trap in it
    ends, wrong, _ = pictures.attack_library(250, seed=1)
    assert wrong == []
    assert min(ends["read"], ends["refused"]) > 20


def test_hostile_datasets_are_read_or_refused_in_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    ends, wrong = datasets.attack(60, seed=1)
    assert wrong == []
    assert min(ends["opened"], ends["refused"]) > 5


def test_every_sound_picture_is_read_whatever_its_mode():
    unreadable = {"tiff LAB", "tiff YCbCr"}  # Pillow writes them and cannot read or convert them
    for name, data in sound().items():
        if name not in unreadable:
            assert load_image(data).rgb.mode == "RGB", name


def test_only_listed_formats_are_decoded_and_no_other_program_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    trap, eps = pictures.Trap(tmp_path), tmp_path / "photo.png"
    eps.write_bytes(PRINTED)
    for data in foreign().values():
        with pytest.raises(ImageError, match="JPEG, PNG"):
            load_image(data)
    for source in (eps, PRINTED, Image.open(eps)):  # the last is opened by the caller and not decoded yet
        with pytest.raises(ImageError):
            load_image(source)
    assert trap.calls() == []


def test_deep_pictures_are_bounded_by_what_they_take():
    fits = Image.new("F", (100, 100))
    assert load_image(saved(fits, "TIFF")).size == (100, 100)
    for mode in ("F", "I"):
        encoded = saved(Image.new(mode, (8000, 8000)), "TIFF", compression="tiff_adobe_deflate")
        with pytest.raises(ImageError, match="MiB to decode"):
            load_image(encoded)


def test_strips_change_no_pixel(monkeypatch):
    rng = np.random.default_rng(0)
    clear = Image.fromarray(rng.integers(0, 255, (31, 40, 4), np.uint8))
    deep = Image.fromarray(rng.integers(0, 65535, (31, 40), np.uint16))
    whole = [np.asarray(load_image(image).rgb) for image in (clear, deep)]
    monkeypatch.setattr(images, "_STRIP", 120)
    for image, before in zip((clear, deep), whole, strict=True):
        assert np.array_equal(np.asarray(load_image(image).rgb), before)
    backdrop = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    assert np.array_equal(whole[0], np.asarray(backdrop))


def test_premultiplied_grey_and_odd_paths_end_in_one_kind_of_error(tmp_path):
    grey = Image.new("LA", (4, 4), (0, 51)).convert("La")
    assert load_image(grey).rgb.getpixel((0, 0)) == (204, 204, 204)
    os.mkfifo(tmp_path / "pipe.png")
    for path in ("a\0.png", "\ud800.png", tmp_path / "pipe.png", "/dev/zero", "/dev/null"):
        with pytest.raises(ImageError) as error:
            load_image(path)
        assert pictures.sentence_trouble(str(error.value)) is None


@pytest.mark.parametrize("name", ["../out.png", "/etc/hostname", "a/../../out.png", "..\\out.png", "C:\\x.png", ""])
def test_names_in_annotations_stay_in_the_folder(tmp_path, name):
    (tmp_path / "data").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "out.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "data/in.png")
    (tmp_path / "data/anno.json").write_text(json.dumps([[name, "x", "in.png", {}], ["in.png", "x", name, {}]]))
    samples = open_dataset(f"grandf:{tmp_path / 'data'}")
    for index in range(2):
        with pytest.raises(InputError, match="does not lie in"):
            samples[index]


def test_a_link_that_the_user_placed_is_followed(tmp_path):
    (tmp_path / "data").mkdir()
    Image.new("RGB", (4, 4), "red").save(tmp_path / "out.png")
    (tmp_path / "data/in.png").symlink_to(tmp_path / "out.png")
    (tmp_path / "data/anno.json").write_text(json.dumps([["in.png", "x", "none.png", {}]]))
    assert open_dataset(f"grandf:{tmp_path / 'data'}")[0].image.getpixel((0, 0)) == (255, 0, 0)


def test_messages_carry_no_control_sequences():
    assert str(ErcrError("a\x1b[2J\x9bb\ud800\u202e\nc")) == "a\\x1b[2J\\x9bb\\ud800\\u202e c"
    assert printable("two\nlines\tand é 猫") == "two\nlines\tand é 猫"
