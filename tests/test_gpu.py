"""On a CUDA device every method gives the CPU's maps, and bfloat16 models give finite ones."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import ercr
from tests.conftest import FAMILIES
from tests.models.own_words import Checker, wrong

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
PROMPT, ANSWER = "Describe this image.", "a photo of a dog and two umbrellas"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_agrees_with_the_cpu(load, checkpoint, picture, family, monkeypatch):
    # CUDA's convolutions round to TF32 unless told not to, which alone moves Grad-CAM++ by 1 %
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    there = ercr.Explainer.from_pretrained(str(checkpoint(family)), dtype="float32", device_map="cuda")
    half = ercr.Explainer.from_pretrained(str(checkpoint(family)), dtype="bfloat16", device_map="cuda")
    names = list(ercr.methods.methods())
    here = load(family).explain_all(picture, PROMPT, methods=names, answer=ANSWER)
    for name, cpu in zip(names, here, strict=True):
        gpu = there.explain(picture, PROMPT, method=name, answer=ANSWER)
        apart = np.abs(gpu.maps - cpu.maps)
        assert np.quantile(apart, 0.99) < 5e-3, (name, apart.max())
        assert np.isfinite(half.explain(picture, PROMPT, method=name, answer=ANSWER).maps).all(), name


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
def test_generation_streams_and_batches_work_there(checkpoint, picture, family):
    there = ercr.Explainer.from_pretrained(str(checkpoint(family)), dtype="float32", device_map="cuda")
    options = {"max_new_tokens": 6, "generation": {"min_new_tokens": 4}}
    whole = there.explain(picture, PROMPT, **options)
    streamed = there.stream(picture, PROMPT, **options).explanation()
    np.testing.assert_allclose(streamed.maps, whole.maps, atol=1e-3)
    both = there.explain_batch([picture, picture.resize((60, 90))], PROMPT, **options)
    np.testing.assert_allclose(both[0].maps, whole.maps, atol=5e-3)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "llava", "internvl"])
def test_half_precision_says_what_generate_says(checkpoint, picture, family):
    explainer = ercr.Explainer.from_pretrained(str(checkpoint(family)), dtype="bfloat16", device_map="cuda")
    turned = [picture.rotate(90 * turn, expand=True) for turn in range(4)]
    checker, images = Checker(explainer, 8), [image.resize(size) for size in ((130, 90), (56, 97)) for image in turned]
    alone = [checker.one(image, maps=False) for image in images]
    for start in (0, 4):
        checker.together(images[start : start + 4], alone[start : start + 4])
    assert checker.counts["answers"] == checker.counts["in batches"] == 8
    assert wrong(checker.counts) == 0, checker.counts


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
def test_captured_passes_agree_with_plain_ones(checkpoint, picture, family, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    folder, options = str(checkpoint(family)), {"dtype": "float32", "device_map": "cuda"}
    plain = ercr.Explainer.from_pretrained(folder, **options)
    captured = ercr.Explainer(plain.adapter.model, _processor(plain), compile=True)
    for image in (picture, picture.rotate(90), picture):  # the second and third time passes are captured, and replayed
        expected, found = (e.explain(image, PROMPT, max_new_tokens=6) for e in (plain, captured))
        assert [t.id for t in found.text_tokens] == [t.id for t in expected.text_tokens]
        np.testing.assert_allclose(found.maps, expected.maps, atol=5e-3)
    assert captured.adapter.compiled.graphs._captured, "no pass was captured"
    again = plain.explain(picture, PROMPT, max_new_tokens=6)  # the model itself was not compiled
    np.testing.assert_array_equal(again.maps, expected.maps)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_kernels_round_as_torch_does(kind):
    from ercr.models import kernels, steps

    draw = partial(torch.randn, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    x, more, weight, cos, sin = (draw(*shape).to(kind) for shape in ((50, 768), (50, 768), (768,), *2 * ((50, 1, 64),)))
    query, key, value = (draw(50, heads, 64).to(kind) for heads in (12, 2, 2))
    places = torch.randperm(80, device="cuda")[:50]
    pairs = [(module.gated(x, more), *module.add_norm(x, more, weight, 1e-6)) for module in (kernels, steps)]
    for norms in (None, (weight[:64], weight[64:128])):
        caches = [(key.new_zeros(80, 2, 64), key.new_zeros(80, 2, 64)) for _ in pairs]
        for at, module in enumerate((kernels, steps)):
            turned = module.turn(query, key, value, cos, sin, norms, 1e-6, caches[at], places)
            pairs[at] = (*pairs[at], *turned, *caches[at])
    for found, expected in zip(*pairs, strict=True):
        # sums over a row may be added in another order, which rarely changes a last digit
        assert (found != expected).float().mean() < 1e-3
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def _processor(explainer):
    return explainer.adapter.tokenizer, explainer.adapter.image_processor
