"""How people load models: with LoRA, quantised, in training mode, with another tower or decoder than usual."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ercr
from ercr.errors import InputError
from ercr.methods import methods
from ercr.models.quantised import packed_shape, unpacked
from tests.families.checks import PROMPT
from tests.families.checks import picture as blobs
from tests.families.registry import families, save

# packages that only these tests need lie beside the environment
sys.path.append(os.environ.get("ERCR_REFERENCES", str(Path(sys.prefix) / "references")))
EVERY = [f"{name}:grid=2" if name == "occlusion" else name for name in methods()]
GRADIENTS = ("attn_lrp", "grad_cam_pp", "lvlm_interpret", "llava_cam")
NEED_MEMORY = (*GRADIENTS, "cp_lrp", "grad_rollout", "layer_cam")
CHECKPOINTS = Path(__file__).parents[2].parent / "shared" / "data" / "checkpoints"


def tiny(name, folder):
    """A tiny checkpoint whose widths are multiples of 64, as 4-bit blocks need."""

    def make():
        config, processor = families()[name].make()
        config.text_config.intermediate_size = 128
        config.vision_config.intermediate_size = 128
        return config, processor

    return save(replace(families()[name], make=make), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return {name: tiny(name, tmp_path_factory.mktemp(name)) for name in ("llava_llama", "idefics3")}


def loaded(folder, **options):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    return AutoModelForImageTextToText.from_pretrained(folder, **options), AutoProcessor.from_pretrained(folder)


def maps(explainer, method, **options):
    found = explainer.explain(blobs(130, 90), PROMPT, method=method, max_new_tokens=3, **options)
    return found.maps, [token.id for token in found.text_tokens]


@pytest.mark.parametrize("name", ["llava_llama", "idefics3"])  # an own adapter, the generic one
def test_lora_is_read_as_if_it_were_merged(folder, name):
    peft = pytest.importorskip("peft")
    model, processor = loaded(folder[name])
    torch.manual_seed(0)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=4))
    with torch.no_grad():
        for part, value in wrapped.named_parameters():
            if "lora_B" in part:
                value.normal_(0, 0.2)
    apart = {method: maps(ercr.Explainer(wrapped, processor), method) for method in EVERY}
    merged = ercr.Explainer(wrapped.merge_and_unload(), processor)
    for method, (found, said) in apart.items():
        again, words = maps(merged, method)
        assert said == words
        np.testing.assert_allclose(found, again, atol=1e-3, err_msg=method)


def quantised(folder, kind):
    """The model with its layers packed by a real library, and what the plain model would be with these weights."""
    from transformers import BitsAndBytesConfig, TorchAoConfig
    from transformers.utils.import_utils import is_torchao_available

    if kind == "torchao":
        quantization = pytest.importorskip("torchao.quantization")
        is_torchao_available.cache_clear()  # other tests may have asked before the path was extended
        config = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    else:
        pytest.importorskip("bitsandbytes")
        config = BitsAndBytesConfig(load_in_8bit=kind == "8 bits", load_in_4bit=kind == "4 bits")
    model, processor = loaded(folder, quantization_config=config)
    plain, _ = loaded(folder)
    for name, layer in model.named_modules():
        shape = packed_shape(layer)
        if shape is not None:
            weight, _ = unpacked(layer, shape[1], torch.device("cpu"), model.dtype)
            plain.get_submodule(name).weight.data.copy_(weight)
    return ercr.Explainer(model, processor), ercr.Explainer(plain, processor)


@pytest.mark.parametrize("name", ["llava_llama", "idefics3"])
@pytest.mark.parametrize("kind", ["4 bits", "8 bits", "torchao"])
@pytest.mark.filterwarnings("ignore")
def test_quantised_models_are_explained_by_every_method(folder, name, kind):
    """The words are the quantised model's own, and gradients are those of its unpacked weights."""
    packed, plain = quantised(folder[name], kind)
    for method in EVERY:
        found, said = maps(packed, method)
        assert np.isfinite(found).all()
        if method in GRADIENTS and kind != "8 bits":  # which rounds states, too
            answer = said[-3:]
            expected, _ = maps(plain, method, answer=answer)
            again, _ = maps(packed, method, answer=answer)
            assert np.abs(again - expected).mean() < 0.02, method


class Packed(nn.Module):
    """A layer as GPTQ and AWQ store them: integers, scales, and no weight."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        scales = layer.weight.detach().abs().amax(1, keepdim=True) / 7
        self.register_buffer("qweight", (layer.weight.detach() / scales).round().to(torch.int32))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    @torch.no_grad()  # their kernels have no gradients
    def forward(self, states):
        return nn.functional.linear(states, self.qweight * self.scales, self.bias)


def test_layers_whose_kernels_have_no_gradients_get_them(folder):
    model, processor = loaded(folder["llava_llama"])
    for layer in model.model.language_model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name, part in list(parent.named_children()):
                if isinstance(part, nn.Linear):
                    setattr(parent, name, Packed(part))
    plain, _ = loaded(folder["llava_llama"])
    for name, part in model.named_modules():
        if isinstance(part, Packed):
            plain.get_submodule(name).weight.data.copy_(part.qweight * part.scales)
    for method in EVERY:
        found, said = maps(ercr.Explainer(model, processor), method)
        expected, words = maps(ercr.Explainer(plain, processor), method)
        assert said == words
        np.testing.assert_allclose(found, expected, atol=1e-3, err_msg=method)


def test_a_model_in_training_mode_is_explained_as_in_evaluation_and_stays_in_it(folder):
    model, processor = loaded(folder["idefics3"])
    expected = maps(ercr.Explainer(model, processor), "attn_lrp")
    model.train()
    model.model.vision_model.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    found = maps(ercr.Explainer(model, processor), "attn_lrp")
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert found[1] == expected[1]
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_offloaded_weights_give_the_same_maps_and_gradients_say_what_they_need(folder, tmp_path, generic, place):
    accelerate = pytest.importorskip("accelerate")
    model, processor = loaded(folder["llava_llama"])
    plain = {method: maps(ercr.Explainer(model, processor, generic=generic), method) for method in EVERY}
    cpu = torch.device("cpu")
    away = (
        accelerate.cpu_offload(model, cpu) if place == "memory" else accelerate.disk_offload(model, str(tmp_path), cpu)
    )
    assert all(value.device.type == "meta" for value in away.parameters())
    explainer = ercr.Explainer(away, processor, generic=generic)
    for method, (expected, said) in plain.items():
        if method in NEED_MEMORY:
            with pytest.raises(InputError, match="load it without offloading"):
                maps(explainer, method)
            continue
        found, words = maps(explainer, method)
        assert words == said
        np.testing.assert_allclose(found, expected, atol=1e-3, err_msg=method)  # cells are measured with other weights


def test_pixtral_is_not_taken_for_llava(tmp_path):
    """Both are of type llava; the tower decides."""
    from transformers import LlavaConfig

    from ercr.models.registry import own_adapter

    config = LlavaConfig(vision_config={"model_type": "pixtral"}, text_config={"model_type": "mistral"})
    assert own_adapter(config) is None
    phi = LlavaConfig(vision_config={"model_type": "siglip_vision_model"}, text_config={"model_type": "phi"})
    assert own_adapter(phi) is not None
    explainer = ercr.Explainer.from_pretrained(str(save(families()["llava_phi"], tmp_path)))
    for method in EVERY:
        assert np.isfinite(maps(explainer, method)[0]).all()


@pytest.mark.skipif(not CHECKPOINTS.is_dir(), reason="the published folders are not there")
@pytest.mark.parametrize("name", ["llava-1.5-7b-hf", "qwen2.5-vl-7b"])
def test_published_folders_with_small_random_weights_load_and_explain(tmp_path, name):
    """Everything but the widths is the real checkpoint's: configuration, tokenizer, template, image processor."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder = tmp_path / name
    shutil.copytree(CHECKPOINTS / name, folder)
    stated = json.loads((folder / "config.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    text, vision = config.get_text_config(), config.vision_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = 64, 96, 2
    text.num_attention_heads, text.num_key_value_heads = 4, 2
    if "head_dim" in vars(text):
        text.head_dim = 16
    if config.model_type == "qwen2_5_vl":
        text.rope_parameters["mrope_section"] = [2, 3, 3]
        text.layer_types = text.layer_types[:2]
        vision.hidden_size, vision.out_hidden_size, vision.intermediate_size = 64, 64, 96
        vision.depth, vision.num_heads, vision.fullatt_block_indexes = 2, 4, [1]
    else:
        vision.hidden_size, vision.intermediate_size, vision.num_hidden_layers = 64, 96, 3
        vision.num_attention_heads = 4
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    model.save_pretrained(folder)
    explainer = ercr.Explainer.from_pretrained(str(folder))
    found = explainer.explain(blobs(300, 180), "What is in the picture?", max_new_tokens=4)
    assert found.prompt == "What is in the picture?"
    assert found.maps.max() <= 1
    assert explainer.adapter.family in ("LLaVA-1.5", "Qwen2-VL")
    assert stated["model_type"] == config.model_type


@pytest.mark.skipif(not CHECKPOINTS.is_dir(), reason="the published folders are not there")
def test_a_published_folder_that_needs_remote_code_names_the_command(tmp_path):
    with pytest.raises(InputError, match=r"ercr convert .*internvl2-2b"):
        ercr.Explainer.from_pretrained(str(CHECKPOINTS / "internvl2-2b"))
