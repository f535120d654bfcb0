"""Occlusion against a loop that hides one patch after another, and for models whose inside cannot be read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

import ercr
from ercr.errors import InputError
from ercr.image.geometry import Geometry, Panel
from ercr.methods.occlusion import OcclusionSettings, _patches
from tests.families.registry import families, save

PROMPT, ANSWER = "Describe this image.", "a dog on a sofa ."


def by_hand(explainer, picture, box, grid, window, cover):
    """The mean change of every answer token's log-probability over the patches that cover a cell, cell by cell."""
    whole = explainer.answer_log_probabilities([picture], PROMPT, ANSWER)[0]
    rows, columns = grid
    left, top, right, bottom = box
    total, count = np.zeros((len(whole), rows, columns)), np.zeros((rows, columns))
    for first_row in range(1 - window, rows):
        for first_column in range(1 - window, columns):
            inside = [
                (r, c)
                for r in range(first_row, first_row + window)
                for c in range(first_column, first_column + window)
                if 0 <= r < rows and 0 <= c < columns
            ]
            r0, r1 = min(r for r, _ in inside), max(r for r, _ in inside) + 1
            c0, c1 = min(c for _, c in inside), max(c for _, c in inside) + 1
            patch = (
                round(left + (right - left) * c0 / columns),
                round(top + (bottom - top) * r0 / rows),
                round(left + (right - left) * c1 / columns),
                round(top + (bottom - top) * r1 / rows),
            )
            changed = picture.copy()
            changed.paste(cover.crop(patch), patch[:2])
            after = explainer.answer_log_probabilities([changed], PROMPT, ANSWER)[0]
            for r, c in inside:
                total[:, r, c] += whole - after
                count[r, c] += 1
    return total / count


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
@pytest.mark.parametrize("fill", ["mean", "blur"])
def test_maps_are_the_mean_loss_of_log_probability(load, picture, family, fill):
    explainer = load(family)
    found = explainer.explain(picture, PROMPT, answer=ANSWER, method="occlusion", grid=4, window=2, fill=fill)
    left, top, right, bottom = found.geometry.box
    box = (max(left, 0), max(top, 0), min(right, picture.width), min(bottom, picture.height))
    side = max(box[2] - box[0], box[3] - box[1]) / 4
    grid = round((box[3] - box[1]) / side), round((box[2] - box[0]) / side)
    neutral = explainer.adapter.neutral_colour
    cover = Image.new("RGB", picture.size, neutral)
    if fill == "blur":
        cover = picture.filter(ImageFilter.GaussianBlur(0.1 * max(picture.size)))
    coarse = by_hand(explainer, picture, box, grid, 2, cover)
    frame = Geometry(found.geometry.size, (Panel(grid, box),))
    rows = [token.row for token in found.text_tokens if token.kind == "answer"]

    expected = frame.warp_to(found.geometry, torch.from_numpy(coarse)).numpy()
    np.testing.assert_allclose(found.stages["raw"][rows], expected, atol=2e-5)
    shown = np.where(found.geometry.valid, np.maximum(expected, 0), 0)
    valid = shown[:, found.geometry.valid]
    low, high = valid.min(-1)[:, None, None], valid.max(-1)[:, None, None]
    scaled = np.where(found.geometry.valid, (shown - low) / np.where(high > low, high - low, np.inf), 0)
    np.testing.assert_allclose(found.maps[rows], scaled, atol=2e-2)


def test_every_cell_is_hidden_equally_often():
    for grid, window in (((3, 5), 2), ((4, 4), 3), ((2, 2), 1)):
        covered = np.zeros(grid)
        for rows, columns in _patches(grid, window):
            covered[rows, columns] += 1
        assert (covered == window**2).all()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"fill": "pink"}, "fill must be one of"),
        ({"grid": 0}, "grid must"),
        ({"grid": 3, "window": 4}, "window must"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings, told):
    with pytest.raises(InputError, match=told):
        OcclusionSettings(**settings)


@pytest.mark.parametrize("name", ["mllama", "florence2", "idefics2", "chameleon"])
def test_models_whose_inside_cannot_be_read_are_explained_by_their_answers(tmp_path, picture, name):
    """The changes are those of the model's own forward pass, by way of `answer_log_probabilities`."""
    explainer = ercr.Explainer.from_pretrained(str(save(families()[name], tmp_path)))
    found = explainer.explain(picture, PROMPT, method="occlusion", grid=2, window=2, max_new_tokens=3)
    answer = [token for token in found.text_tokens if token.kind == "answer"]
    logs = explainer.answer_log_probabilities([picture], PROMPT, [token.id for token in answer])[0]
    np.testing.assert_allclose(np.log([token.probability for token in answer]), logs, atol=1e-5)
    black = explainer.explain(
        picture, PROMPT, answer=[token.id for token in answer], method="occlusion", grid=1, window=1, fill="black"
    )
    hidden = Image.new("RGB", picture.size)
    after = explainer.answer_log_probabilities([hidden], PROMPT, [token.id for token in answer])[0]
    raw = black.stages["raw"][[token.row for token in black.text_tokens if token.kind == "answer"]]
    np.testing.assert_allclose(raw.max((1, 2)), logs - after, atol=1e-4)
