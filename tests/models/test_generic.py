"""The generic adapter: it agrees with families' own adapters, places views rightly, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ercr
from ercr.errors import ImageError, InputError, UnsupportedModel
from ercr.models.chat import as_messages
from ercr.models.generic.cells import Seen, place
from ercr.models.generic.encoding import Encoder
from ercr.models.generic.owners import OwnValues
from ercr.zoo import packaged
from tests.attacks.threads import state
from tests.families.checks import painted
from tests.families.checks import picture as blobs
from tests.families.registry import families, save

PROMPT = "What is in the picture? Two umbrellas?"
# these have their whole processors without torchvision
HERE = ("vipllava", "llava_next", "gemma3_pan_and_scan", "idefics3", "aya_vision", "paligemma")
NEED_TORCHVISION = (
    "qwen3_vl",
    "smolvlm",
    "mistral3",
    "llava_onevision",
    "molmo2",
    "glm4v",
    "mllama",
    "florence2",
    "kosmos2",
)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A generic explainer on a family's tiny checkpoint."""

    @cache
    def make(name, dtype="float32"):
        folder = save(families()[name], tmp_path_factory.mktemp(name))
        return ercr.Explainer.from_pretrained(str(folder), generic=True, dtype=dtype)

    return make


@pytest.mark.slow
@pytest.mark.skipif(not (Path(sys.prefix) / "torchvision").is_dir(), reason="torchvision is not there")
def test_checked_families_are_as_the_table_says():
    """Inputs, tokens and probabilities are the model's own, painted cells are found, replays equal recorded states."""
    from ercr.models.checked import checked

    rows = {row.name: row for row in checked()}
    for name, found in _measured(*HERE, *NEED_TORCHVISION).items():
        assert found["inputs"], name
        assert found["tokens"], name
        assert found["probabilities"] < 1e-6, name
        assert found["methods"] == rows[name].methods, name
        assert found["refused"].keys() == rows[name].refused.keys(), name
        assert (found["reason"] is None) == (rows[name].reason is None), name
        if found["reason"] is None:
            assert found["painted"] == 1, name
            assert found["replayed"] < 1e-5, name
            assert found["half"] < 0.01, name


def _measured(*names):
    """Rows of `python -m tests.families`, which needs a process of its own for torchvision."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "tests.families", *names, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.skipif(not packaged(), reason="ercr-zoo is not installed")
@pytest.mark.parametrize("model", ["scenes-llava", "photo-mini"])
def test_own_and_generic_adapter_agree_on_packaged_models(model):
    """Words and lens are equal; views are made in another way, so their maps may differ a little."""
    try:
        own, generic = (ercr.Explainer.from_pretrained(model, generic=kind) for kind in (False, True))
    except InputError as error:  # the language model of photo-mini comes from another package
        pytest.skip(str(error))
    for size in ((200, 120), (90, 210)):
        found = [e.explain_all(blobs(*size), methods=["cam", "tam"], max_new_tokens=8) for e in (own, generic)]
        for ours, theirs in zip(*found, strict=True):
            assert [t.id for t in ours.text_tokens] == [t.id for t in theirs.text_tokens]
            np.testing.assert_allclose(ours.maps, theirs.maps, atol=1e-4)
    if model == "scenes-llava":
        ours, theirs = (e.explain(blobs(208, 240), max_new_tokens=8).maps for e in (own, generic))
        assert np.abs(ours - theirs).mean() < 0.01


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("scale", [0.5, 0.75, 1.5])
def test_a_view_lies_where_its_tokens_see_the_picture(family, name, scale):
    """Paint in the middle of a view's cell changes that cell's embedding most."""
    adapter, image = family(name).adapter, blobs(130, 90)
    anchor = adapter.prepare(image, as_messages(PROMPT))
    assert painted(adapter, image, lambda shown: adapter.view(shown, anchor, scale, "pad")) > 0.9


def test_the_probe_is_one_forward_and_three_backward_passes_and_leaves_nothing(family, monkeypatch):
    adapter = family("llava_next").adapter
    model = adapter.model.train()
    before, forwards, backwards = state(model), [], []
    tower = model.model.vision_tower
    handle = tower.register_forward_hook(lambda *_: forwards.append(1))
    engine = torch.autograd._engine_run_backward
    monkeypatch.setattr(
        torch.autograd, "_engine_run_backward", lambda *a, **k: (backwards.append(1), engine(*a, **k))[1]
    )
    try:
        adapter.layout((123, 77))
        adapter.layout((123, 77))
    finally:
        handle.remove()
        after = state(model)
        model.eval()
    assert len(forwards) == 1
    assert len(backwards) == 3
    assert after == before


def test_only_what_runs_up_to_the_decoder_is_converted(family):
    """A model in half precision keeps its words, its head, and of the tower's blocks all but one as they are."""
    adapter, shapes = family("llava_next", "bfloat16").adapter, []

    class Conversions(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if function is torch.ops.aten._to_copy.default and out.dtype == torch.float64:
                shapes.append(tuple(out.shape))
            return out

    adapter._layouts.forget()
    with Conversions():
        adapter.layout((111, 67))
    model, converted = adapter.model, Counter(shapes)
    assert converted[tuple(model.lm_head.weight.shape)] == 0
    assert converted[tuple(model.model.vision_tower.encoder.layers[0].mlp.fc1.weight.shape)] == 1


def test_no_block_of_the_tower_runs_for_another_size(tmp_path, monkeypatch):
    """The first picture has shown that blocks keep every patch to itself; the cells are those of a new adapter."""
    folder = str(save(families()["llava_next"], tmp_path))
    adapter, fresh = (ercr.Explainer.from_pretrained(folder, generic=True).adapter for _ in range(2))
    block, runs = type(adapter.model.model.vision_tower.encoder.layers[0]), []
    forward = block.forward
    monkeypatch.setattr(block, "forward", lambda *args, **options: (runs.append(1), forward(*args, **options))[1])
    adapter.layout((130, 90))
    assert len(runs) == 1
    found = adapter.layout((90, 200))
    assert len(runs) == 1
    expected = fresh.layout((90, 200))
    assert found.geometry == expected.geometry
    assert torch.equal(found.order, expected.order)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("features", "cells"), [(108, 93), (135, 93), (81, 70), (54, 54)])
def test_cells_of_an_interpolated_grid_lie_where_its_weights_say(features, cells, corners):
    """Tiles of 27 features that leave 6 of 384 pixels out, interpolated to fewer cells: the mean of what each reads."""
    line = np.arange(features)
    middle = (line // 27) * 384 + (line % 27) * 14 + 7.0
    options = {"size": (4, cells), "mode": "bilinear", "align_corners": corners}
    weights = torch.nn.functional.interpolate(
        torch.eye(features).double()[None, :, None], **options | {"size": (1, cells)}
    )
    weights = weights[0, :, 0].numpy()
    with OwnValues() as mode:
        shown = torch.from_numpy(middle).expand(1, 1, 4, features).clone().requires_grad_()
        near = torch.nn.functional.interpolate(shown, **options)[0, 0].detach().numpy()
    side = round(middle[-1] + 13)
    rows = np.repeat(np.arange(4) + 0.5, cells) * side / 4
    seen = Seen(np.arange(4 * cells), near.ravel(), rows, np.full(4 * cells, 14.0), np.full(4 * cells, side / 4))

    found = place(seen, (side, side), mode.resampled).geometry
    expected = (weights * middle[:, None]).sum(0) / weights.sum(0)
    assert found.grid == (4, cells)
    apart = np.abs(found.canvas.axes[1].centres() - expected) / (side / cells)
    assert apart.max() < 0.15  # beside a seam, where a feature is missing
    assert apart.mean() < 0.01


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("size", [(40, 1200), (1200, 40), (300, 3), (20, 20)])
def test_pictures_of_odd_shapes_have_cells(family, name, size):
    geometry = family(name).adapter.layout(size).geometry
    assert geometry.valid.any()
    if name != "vipllava":  # which crops
        left, top, right, bottom = geometry.box
        across, down = (right - left) / geometry.grid[1], (bottom - top) / geometry.grid[0]
        assert max(left, size[0] - right) < max(across, 1)
        assert max(top, size[1] - bottom) < max(down, 1)


def test_pictures_that_tell_nothing_or_that_the_model_does_not_take_are_named(family):
    adapter = family("vipllava").adapter
    with pytest.raises(ImageError, match=r"1 x 1 pixels cannot be measured: enlarge it"):
        adapter.layout((1, 1))

    def fail(*_):
        raise RuntimeError("sizes do not match")

    adapter._layouts.forget()
    handle = adapter.model.model.vision_tower.register_forward_pre_hook(fail)
    try:
        with pytest.raises(ImageError, match=r"does not take a picture of 81 x 64 pixels: .*sizes do not match"):
            adapter.layout((81, 64))
    finally:
        handle.remove()


def test_half_precision_gives_the_same_cells(family):
    for name in ("vipllava", "idefics3"):
        single, half = (family(name, dtype).adapter.layout((130, 90)) for dtype in ("float32", "bfloat16"))
        assert torch.equal(single.order, half.order)
        for one, other in zip(single.geometry.panels, half.geometry.panels, strict=True):
            np.testing.assert_allclose(one.box, other.box, atol=0.01)
            assert one.grid == other.grid


def test_threads_probe_beside_each_other(family):
    adapter = family("aya_vision").adapter
    sizes = [(130 + 7 * i, 90 + 5 * j) for i in range(3) for j in range(2)]
    expected = [adapter.layout(size).geometry for size in sizes]
    found: dict[int, list[object]] = {}
    adapter._layouts.forget()

    def probe(number):
        found[number] = [adapter.layout(size).geometry for size in (sizes if number else sizes[::-1])]
        with OwnValues():
            pass

    threads = [threading.Thread(target=probe, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1] == expected
    assert found[0] == expected[::-1]


def test_real_seams_between_tiles_are_kept(family):
    """This tower takes 5 patches of 10 pixels from tiles of 51: beside a seam the step is 11 pixels."""
    geometry = family("granite_vision").adapter.layout((300, 180)).geometry
    steps = np.diff(geometry.canvas.axes[1].centres())
    pixel = 300 / (3 * 51)  # of a tile, in pixels of the picture
    seams = [4, 9]  # between three tiles of five columns
    np.testing.assert_allclose(steps[seams], 11 * pixel, rtol=0.02)
    np.testing.assert_allclose(np.delete(steps, seams), 10 * pixel, rtol=0.02)


def test_a_checkpoint_without_a_template_takes_the_prompt_as_it_is(family):
    """PaliGemma has none; a conversation of several turns cannot be written for it."""
    adapter = family("paligemma").adapter
    assert adapter.chat_template is None
    prepared = adapter.prepare(blobs(64, 64), as_messages("caption en"))
    assert adapter.tokenizer.decode(prepared.input_ids[prepared.prompt]) == "caption en"
    turns = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
    with pytest.raises(InputError, match="no chat template, so a conversation cannot be written"):
        adapter.prepare(blobs(64, 64), as_messages(turns))


def test_a_tokenizer_that_cannot_tell_places_is_refused_in_one_sentence(family):
    adapter = family("vipllava").adapter

    class Slow:
        is_fast = False

        def __getattr__(self, name):
            return getattr(adapter.tokenizer, name)

        def __call__(self, *args, **options):
            return adapter.tokenizer(*args, **options)

    encoder = Encoder(adapter.processor, Slow(), adapter.chat_template)
    with pytest.raises(InputError, match="fast tokenizer"):
        encoder(blobs(64, 64), as_messages(PROMPT)).own_words()


def test_models_without_cells_name_the_reason_and_the_way_out(family):
    explainer = family("idefics2")
    with pytest.raises(UnsupportedModel, match=r"resampler.*use the method 'occlusion'"):
        explainer.explain(blobs(90, 70), PROMPT, max_new_tokens=2)
    explanation = explainer.explain(blobs(90, 70), PROMPT, method="occlusion:grid=3", max_new_tokens=2)
    assert explanation.geometry.whole
    assert explanation.maps.shape[1:] == (12, 16)
    assert explanation.prompt == PROMPT
