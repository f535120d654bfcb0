"""Checkpoints that store a low-rank update of a published language model; both are merged when they are loaded.

The folder has `base.json` (where the language model is, and its checksum) and `update.safetensors`: all weights of the
vision tower and the projector, and for each kind of weight of the language model two stacked factors, `inner` [layers,
rank, in] and `outer` [layers, out, rank]. A merged weight is W + scale * outer @ inner. Such a folder may come from
anyone, so the file that it names is checked by its hash, and no package that it names is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ercr.errors import CheckpointError, InputError
from ercr.files.plain import read_plain

MARK, WEIGHTS = "base.json", "update.safetensors"
DEVICE_MAP_WORDS = ("auto", "balanced", "balanced_low_0", "sequential")  # device_map values that let accelerate choose

# kinds of stacked weights, with the modules of a layer whose rows each of them joins
JOINED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def is_update(folder: Path) -> bool:
    return (folder / MARK).is_file()


def base_is_local(folder: Path) -> bool:
    """Whether the language model can be loaded without a network connection."""
    from huggingface_hub import try_to_load_from_cache

    base = _stated(folder)
    needed = ("config.json", "model.safetensors")  # loading only the tokenizer downloads the first
    return _packaged(base) is not None or all(
        isinstance(try_to_load_from_cache(base.hub, file), str) for file in needed
    )


def base_install_command(folder: Path) -> str:
    """The commands that install the language model."""
    return _stated(folder).install


@dataclass(frozen=True)
class _Base:
    """The contents of `base.json`: the language model's hub id, or its file in an installed package, and SHA-256."""

    hub: str
    package: str
    file: str
    sha256: str
    install: str
    scale: float

    def __post_init__(self) -> None:
        texts = (self.hub, self.package, self.file, self.sha256, self.install)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("every entry but the scale must be text")
        if not self.package.isidentifier():
            raise ValueError(f"{self.package!r} is not the name of a package at the top level")
        if self.file in ("", ".", "..") or set(self.file) & {"/", "\\", "\0"}:
            raise ValueError(f"{self.file!r} is not the name of a file in that package")
        if not isinstance(self.scale, int | float) or not math.isfinite(self.scale):
            raise ValueError("the scale must be a number")


def _stated(folder: Path) -> _Base:
    try:
        return _Base(**json.loads(read_plain(folder / MARK, most=2**16)))
    except (InputError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{folder / MARK} must say where the language model is, but it is not valid: {error}."
        ) from None


def load_updated(folder: Path, config: Any, dtype: Any = None, device_map: Any = None, **options: Any) -> Any:
    """The whole model: the published language model with the update, as the folder's configuration describes it."""
    from safetensors.torch import load_file
    from transformers import AutoModelForImageTextToText

    base = _stated(folder)
    update = load_file(folder / WEIGHTS)
    language = _language_model(folder.name, base, config.text_config)
    model = AutoModelForImageTextToText.from_config(config, dtype=_precision(dtype), **options)
    whole = {f"model.{name}": value for name, value in update.items() if not name.startswith("language_model.")}
    whole |= _merged(language, update, base.scale)
    whole["lm_head.weight"] = whole["model.language_model.embed_tokens.weight"]
    model.load_state_dict(whole)
    if (folder / "generation_config.json").is_file():
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model.to(_device(device_map))


def _precision(dtype: Any) -> torch.dtype:
    if dtype in (None, "auto"):
        return torch.float32
    chosen = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(chosen, torch.dtype):
        raise InputError(f"There is no dtype {dtype!r}: use float32, bfloat16 or float16.")
    return chosen


def _device(device_map: Any) -> torch.device:
    """The single device that a device map stands for: these models are too small to be split."""
    if isinstance(device_map, dict):
        places = list(dict.fromkeys(device_map.values()))
        if len(places) != 1:
            raise InputError(
                "This model cannot be split over devices: use device_map='auto' or the name of one device."
            )
        device_map = places[0]
    if device_map in DEVICE_MAP_WORDS:
        device_map = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device("cpu" if device_map is None else device_map)


def _merged(base: dict[str, Tensor], update: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The language model's weights with the update added, under the names of the whole model."""
    whole = {f"model.language_model.{name}": value for name, value in base.items()}
    for kind, parts in JOINED.items():
        inner, outer = (update[f"language_model.{side}.{kind}"].float() for side in ("inner", "outer"))
        for layer, change in enumerate(scale * outer @ inner):
            names = [f"model.language_model.layers.{layer}.{part}.weight" for part in parts]
            rows = change.split([len(whole[name]) for name in names])
            for name, part in zip(names, rows, strict=True):
                whole[name] = whole[name].float() + part
    return whole


def _language_model(name: str, base: _Base, config: Any) -> dict[str, Tensor]:
    """The decoder's weights from an installed package, or else from the hub or its cache."""
    from transformers import AutoModelForCausalLM

    file = _packaged(base)
    if file is not None:
        _check_content(file, base)
        return read_gguf(file, config.num_attention_heads, config.num_key_value_heads)
    options = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    try:
        return dict(AutoModelForCausalLM.from_pretrained(base.hub, **options).model.state_dict())
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise CheckpointError(
            f"{name} needs the language model {base.hub}, which is not installed and cannot be downloaded: "
            f"install it with {base.install}"
        ) from error


def _check_content(file: Path, base: _Base) -> None:
    """Refuse any file but the one that the update was trained on."""
    state = file.stat()
    if _sha256(file, state.st_size, state.st_mtime_ns) != base.sha256.lower():
        raise CheckpointError(
            f"{file} is not the language model that this checkpoint was made for, because its SHA-256 differs: "
            f"install it again with {base.install}"
        )


@lru_cache(maxsize=8)
def _sha256(file: Path, size: int, changed: int) -> str:
    """The file's checksum, cached until the file's size or time changes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


_GGUF = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def read_gguf(file: Path, heads: int, groups: int) -> dict[str, Tensor]:
    """A Llama decoder's weights in float32; transformers' own reader takes several times as long."""
    from gguf import GGUFReader, dequantize

    found = {}
    for tensor in GGUFReader(file).tensors:
        kind, *place = tensor.name.removesuffix(".weight").split(".")
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if kind == "blk":
            layer, part = place
            if part in ("attn_q", "attn_k"):  # GGUF interleaves the two halves of each head's rotary dimensions
                count = heads if part == "attn_q" else groups
                weight = weight.view(count, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
            found[f"layers.{layer}.{_GGUF[part]}.weight"] = weight
        elif kind in ("token_embd", "output_norm"):
            found["embed_tokens.weight" if kind == "token_embd" else "norm.weight"] = weight
    return found


def _packaged(base: _Base) -> Path | None:
    """The file in an installed package, which is found on the path without importing it."""
    if importlib.util.find_spec("gguf") is None:
        return None
    package = PathFinder.find_spec(base.package)
    for place in package.submodule_search_locations or [] if package else []:
        file = Path(place) / base.file
        if file.is_file():
            return file
    return None
