"""Loads a checkpoint by name or folder into an adapter, without torchvision, remote code or pickled weights."""

from __future__ import annotations

import importlib
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ercr.errors import CheckpointError, InputError, NeedsConversion, UnsupportedModel
from ercr.models.base import Adapter
from ercr.models.convert import must_be_converted
from ercr.models.fit import check_fit
from ercr.models.generic import GenericAdapter
from ercr.models.registry import family_names, own_adapter
from ercr.models.updates import is_update, load_updated

_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "processor_config.json")
_VIDEO_FILES = ("processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_NO_PICKLES = (
    "pickled weights (.bin, .pt, .ckpt) are not read, because a pickle can run any program: "
    "if you trust them, save them as safetensors with save_pretrained()."
)


def load_adapter(name: str, revision: str | None, generic: bool = False, **model_options: Any) -> Adapter:
    """Load model, tokenizer, image processor and chat template of a checkpoint folder or hub id.

    A family with an adapter of its own gets it, unless `generic` is set.
    """
    from transformers import AutoModelForImageTextToText

    folder = Path(name)
    if folder.is_dir():
        _refuse_remote_code(_read_json(folder / "config.json") if (folder / "config.json").exists() else {}, name)
        _check_folder(folder)
    if model_options.get("use_safetensors") is False:
        raise InputError(f"use_safetensors=False cannot be used: {_NO_PICKLES}")
    source = _source(revision)
    config = read_configuration(name, revision)
    with _translated_errors(name):
        make = _maker(config, name, revision, generic)
        if is_update(folder):
            model = load_updated(folder, config, **model_options)
        else:
            options = {**source, **model_options, "use_safetensors": True}
            model = AutoModelForImageTextToText.from_pretrained(name, config=config, **options)
    return check_fit(make(model))


def read_configuration(name: str, revision: str | None = None) -> Any:
    """The configuration of a folder or a hub id; nothing else of it is needed or read."""
    from transformers import AutoConfig, PretrainedConfig

    folder = Path(name)
    if not folder.is_dir() and (folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1):
        raise CheckpointError(
            f"There is no checkpoint folder {name}: give an existing folder, or a hub id such as 'owner/model'."
        )
    if folder.is_dir() and not (folder / "config.json").exists():
        raise CheckpointError(f"The checkpoint folder {folder} is incomplete: it has no config.json.")
    source = _source(revision)
    # registers a vision tower that configurations may name
    importlib.import_module("ercr.models.towers.efficientnet_lite")
    with _translated_errors(name):
        _refuse_remote_code(PretrainedConfig.get_config_dict(name, **source)[0], name)
        return AutoConfig.from_pretrained(name, **source)


def _maker(config: Any, name: str, revision: str | None, generic: bool = False) -> Callable[[Any], Adapter]:
    """How a loaded model of this configuration becomes an adapter, with the parts of a checkpoint that it needs."""
    refuse_text_only(config)
    own = None if generic else own_adapter(config)
    if own is not None:
        parts = _load_parts(name, revision)
        return lambda model: own(model, *parts)
    processor = load_processor(name, revision)
    template = _chat_template(name, revision)
    return lambda model: _generic(model, processor, template)


def _generic(model: Any, processor: Any, template: str | None = None) -> Adapter:
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None or not callable(processor):
        raise InputError(
            f"A model of type {model.config.model_type!r} needs its whole processor: pass what AutoProcessor loads."
        )
    return GenericAdapter(model, processor, tokenizer, template or _template_of(processor, tokenizer))


def _template_of(processor: Any, tokenizer: Any) -> str | None:
    template = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)
    return template.get("default") if isinstance(template, dict) else template


def refuse_text_only(config: Any) -> None:
    """Refuse models that take no picture or generate no text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as known

    kind = str(getattr(config, "model_type", None))
    if kind not in known and own_adapter(config) is None:
        raise UnsupportedModel(
            f"Models of type {kind!r} are not supported, because transformers has no class that answers questions "
            f"about pictures for them: use a model of {family_names()}, or of any other type behind "
            f"AutoModelForImageTextToText."
        )


def load_processor(name: str, revision: str | None = None) -> Any:
    """The checkpoint's own processor, as AutoProcessor builds it."""
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(name, **_source(revision))
    except (ImportError, ValueError, OSError) as error:
        wanted = next((package for package in ("torchvision", "timm", "num2words") if package in str(error)), None)
        if wanted is None:
            raise
        raise CheckpointError(
            f"The processor of {name} needs the package {wanted}, which is not installed: pip install {wanted}."
        ) from error


def _source(revision: str | None) -> dict[str, Any]:
    """Options of every loader: the revision, and never code from the checkpoint."""
    return {"trust_remote_code": False, **({"revision": revision} if revision else {})}


def _refuse_remote_code(stated: dict[str, Any], name: str) -> None:
    """For a checkpoint that needs remote code: name the command that converts it."""
    kind = stated.get("model_type")
    advice = must_be_converted(kind, name)
    if advice:
        raise NeedsConversion(advice, str(kind))


def _load_parts(name: str, revision: str | None) -> tuple[Any, Any, str | None, Any]:
    """Tokenizer, image processor, chat template and video processor of a checkpoint."""
    from transformers import AutoTokenizer

    source = _source(revision)
    tokenizer = AutoTokenizer.from_pretrained(name, **source)
    template = _chat_template(name, revision) or tokenizer.chat_template
    return tokenizer, _image_processor(name, source), template, _video_processor(name, revision)


def _video_processor(name: str, revision: str | None) -> Any:
    """The checkpoint's video processor, or what it states for one if torchvision is missing; None if it has none."""
    from transformers.utils import is_torchvision_available

    if is_torchvision_available():
        from transformers import AutoVideoProcessor

        try:
            return AutoVideoProcessor.from_pretrained(name, **_source(revision))
        except (OSError, ValueError):
            return None
    for filename in _VIDEO_FILES:
        found = _file(name, filename, revision)
        stated = {} if found is None else _read_json(found)
        stated = stated.get("video_processor", {}) if filename == "processor_config.json" else stated
        if stated:
            return SimpleNamespace(**stated)
    return None


def _image_processor(name: str, source: dict[str, Any]) -> Any:
    """The checkpoint's image processor; its Pillow version if torchvision is missing."""
    import transformers
    from transformers.utils import is_torchvision_available

    if is_torchvision_available():
        return transformers.AutoImageProcessor.from_pretrained(name, **source)
    # in some versions AutoImageProcessor requires torchvision even if there is a Pillow class
    stated, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name, **source)
    named = stated.get("image_processor_type") or str(stated.get("feature_extractor_type", ""))
    kind = str(named).replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil") + "Pil"
    processor = getattr(transformers, kind, None)
    if processor is None:
        raise CheckpointError(
            f"The image processor {kind.removesuffix('Pil')!r} needs torchvision: install torchvision."
        )
    return processor.from_pretrained(name, **source)


def wrap_model(model: Any, processor: Any, generic: bool = False) -> Adapter:
    """An adapter around a model the user has loaded.

    `processor` is the model's processor or a pair (tokenizer, image_processor); with None, both are loaded from the
    model's checkpoint.
    """
    if isinstance(model, str | Path):
        raise InputError(
            f"Explainer takes a loaded model: to load one by name, use Explainer.from_pretrained({str(model)!r})."
        )
    if getattr(model, "config", None) is None or not callable(getattr(model, "generate", None)):
        raise InputError(f"Pass Explainer a loaded Hugging Face model, not {type(model).__name__}.")
    if callable(getattr(model, "get_base_model", None)):
        model = model.get_base_model()  # PEFT's wrapper; its layers stay where they are in the model
    refuse_text_only(model.config)
    if processor is None:
        name = str(getattr(model, "name_or_path", ""))
        if not name:
            raise InputError("This model was not loaded from a checkpoint: pass its processor, too.")
        with _translated_errors(name):
            return check_fit(_maker(model.config, name, None, generic)(model))
    own = None if generic else own_adapter(model.config)
    if own is None:
        return check_fit(_generic(model, processor))
    video_processor = None
    if isinstance(processor, tuple):
        tokenizer, image_processor = processor
        template = getattr(tokenizer, "chat_template", None)
    else:
        tokenizer = getattr(processor, "tokenizer", None)
        image_processor = getattr(processor, "image_processor", None)
        video_processor = getattr(processor, "video_processor", None)
        template = _template_of(processor, tokenizer)
    if tokenizer is None or image_processor is None:
        raise InputError("Pass the model's processor, or a pair (tokenizer, image_processor).")
    if isinstance(template, dict):
        template = template.get("default")
    return check_fit(own(model, tokenizer, image_processor, template, video_processor))


def _check_folder(folder: Path) -> None:
    """Name a missing file before a loader fails because of it with a message that does not name it."""

    def has(*names: str) -> bool:
        return any(True for name in names for _ in folder.glob(name))

    missing = [
        label
        for label, present in (
            ("config.json", has("config.json")),
            ("model.safetensors (or its shards)", has("*.safetensors")),
            ("tokenizer.json", has("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")),
            ("preprocessor_config.json", has("preprocessor_config.json") or _nested_image_processor(folder)),
        )
        if not present
    ]
    if "model.safetensors (or its shards)" in missing and has(*_PICKLED):
        raise CheckpointError(f"The checkpoint folder {folder} cannot be used: {_NO_PICKLES}")
    # a text-only model has no image processor: then the better error is that its type is not supported
    if missing == ["preprocessor_config.json"]:
        refuse_text_only(SimpleNamespace(**_read_json(folder / "config.json")))
    if missing:
        raise CheckpointError(f"The checkpoint folder {folder} is incomplete: it has no {', no '.join(missing)}.")
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = _shards(index)
        lost = sorted(shard for shard in shards if not (folder / shard).exists())
        if lost:
            raise CheckpointError(f"The checkpoint folder {folder} is incomplete: it has no {', no '.join(lost)}.")
    for weights in folder.glob("*.safetensors"):
        _check_safetensors(weights)


def _shards(index: Path) -> set[str]:
    """The weight files that an index names; they must be safetensors files in its folder."""
    named = _read_json(index).get("weight_map")
    shards = (
        set(named.values()) if isinstance(named, dict) and all(isinstance(s, str) for s in named.values()) else {""}
    )
    if any(not shard.endswith(".safetensors") or set(shard) & {"/", "\\", "\0"} for shard in shards):
        raise CheckpointError(
            f"{index} lists files that are not safetensors files in the same folder: download the checkpoint again."
        )
    return shards


def _nested_image_processor(folder: Path) -> bool:
    """Whether the processor's file contains the image processor's settings, as in newer checkpoints."""
    path = folder / "processor_config.json"
    return path.exists() and "image_processor" in _read_json(path)


def _check_safetensors(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"The weights file {path} is damaged or incomplete, download it again: {error}."
        ) from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
    return data if isinstance(data, dict) else {}


def _chat_template(name: str, revision: str | None) -> str | None:
    """The processor's chat template, from the first of its possible files that the checkpoint has."""
    for filename in _TEMPLATE_FILES:
        found = _file(name, filename, revision)
        if found is None:
            continue
        if filename.endswith(".jinja"):
            return found.read_text(encoding="utf-8")
        template = _read_json(found).get("chat_template")
        if isinstance(template, str):
            return template
    return None


def _file(name: str, filename: str, revision: str | None) -> Path | None:
    """A file of a checkpoint, if it has it."""
    from transformers.utils import cached_file

    found = cached_file(
        name,
        filename,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return None if found is None else Path(found)


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Turn a loader's error of any kind into one sentence that names the checkpoint."""
    try:
        yield
    except InputError:
        raise
    # a damaged or malicious checkpoint can make a loader raise any exception
    except Exception as error:
        # the sentences after the first one are advice, such as on private repositories
        first = re.split(r"(?<=[.!?])\s+(?=[A-Z])|\s+(?=If this is )", str(error).strip())[0]
        detail = textwrap.shorten(first, 300, placeholder=" …").rstrip(".") or type(error).__name__
        raise CheckpointError(f"The checkpoint {name} cannot be loaded: {detail}.") from error
