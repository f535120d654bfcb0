"""Gradient and relevance methods against the packages people use today: grad-cam and lxt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ercr.methods import grad_cam_pp, layer_cam
from ercr.trace.lrp import apply_rule
from tests.methods.test_inside import Case

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests/references/recorded"
BESIDE = [
    Path(os.environ.get("ERCR_TORCHVISION", Path(sys.prefix) / "torchvision")),
    Path(os.environ.get("ERCR_REFERENCES", Path(sys.prefix) / "references")),
]
LXT_PYTHON = Path(os.environ.get("ERCR_LXT_PYTHON", ROOT / ".venv-lxt/bin/python"))


@pytest.mark.skipif(not all(path.is_dir() for path in BESIDE), reason="grad-cam is not installed beside this package")
@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl_single"])
def test_grad_cam_pp_and_layer_cam_equal_the_grad_cam_package(checkpoint, picture, tmp_path, family):
    case = Case(checkpoint(family), picture)
    activations, gradients = case.trace.replay.tapped_gradients(-1, "attention", case.rows)
    source, target = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(source, activations=activations, gradients=gradients, grid=case.trace.geometry.grid)
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests/references/grad_cam.py"), str(source), str(target)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, BESIDE)), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    theirs = np.load(target)
    np.testing.assert_allclose(grad_cam_pp.combine(activations, gradients).numpy(), theirs["grad_cam_pp"], atol=1e-8)
    np.testing.assert_allclose(layer_cam.combine(activations, gradients).numpy(), theirs["layer_cam"], atol=1e-8)
    np.testing.assert_allclose(case.values("grad_cam_pp"), case.as_map(theirs["grad_cam_pp"]), atol=1e-6)
    np.testing.assert_allclose(case.values("layer_cam"), case.as_map(theirs["layer_cam"]), atol=1e-6)


def text_model(family, arrays, shape):
    """The recorded text model inside a multimodal one of ours, with what the rules need of an adapter."""
    from transformers import (
        InternVLConfig,
        InternVLForConditionalGeneration,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    shape = {**shape, "rope_parameters": {"rope_type": "default", "rope_theta": shape.pop("rope_theta")}}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    if family == "llama":
        vision |= {"model_type": "clip_vision_model", "image_size": 8, "patch_size": 4}
        config = LlavaConfig(text_config={"model_type": "llama", **shape}, vision_config=vision)
        model = LlavaForConditionalGeneration(config)
    else:
        vision |= {"image_size": [8, 8], "patch_size": [4, 4]}
        config = InternVLConfig(text_config={"model_type": "qwen2", **shape}, vision_config=vision)
        model = InternVLForConditionalGeneration(config)
    model = model.double().eval()
    text = {k.removeprefix("model.model."): v for k, v in arrays.items() if k.startswith("model.model.")}
    model.model.language_model.load_state_dict(text)
    model.lm_head.weight.data = arrays["model.lm_head.weight"]
    decoder = model.model.language_model
    return SimpleNamespace(model=model, config=model.config, language_model=decoder, blocks=decoder.layers)


@pytest.mark.parametrize("rule", ["attn", "cp"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_relevance_equals_lxt(family, rule):
    path = RECORDED / f"lxt_{family}.safetensors"
    arrays = load_file(path)
    with safe_open(path, framework="pt") as archive:
        facts = archive.metadata()
    adapter = text_model(family, arrays, json.loads(facts["shape"]))
    apply_rule(adapter, rule)
    for (position, index), expected in zip(json.loads(facts["targets"]), arrays[f"relevance.{rule}"], strict=True):
        start = arrays["embeddings"].clone().requires_grad_()
        final = adapter.model.model.language_model(inputs_embeds=start, use_cache=False).last_hidden_state
        adapter.model.lm_head(final)[0, position, index].backward()
        ours = (start * start.grad).sum(-1)[0].detach()
        assert expected.abs().max() > 1e-3
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not LXT_PYTHON.exists(), reason="the environment with lxt is not there (make references)")
def test_the_recorded_figures_are_what_lxt_says(tmp_path):
    run = subprocess.run(
        [str(LXT_PYTHON), str(ROOT / "tests/references/lxt_relevance.py"), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    for family in ("llama", "qwen2"):
        fresh, kept = (load_file(folder / f"lxt_{family}.safetensors") for folder in (tmp_path, RECORDED))
        for name, value in kept.items():
            assert torch.allclose(fresh[name], value, atol=1e-9), (family, name)
