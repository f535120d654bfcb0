"""One conversion from a folder or a hub id to a new folder. It is resumable, and complete when config.json exists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ercr.errors import CheckpointError, OutputError
from ercr.files.writing import write_atomic
from ercr.models.convert import internvl, weights

Progress = Callable[[int, int], None]  # bytes read so far, bytes in total
_KINDS = {internvl.MODEL_TYPE: internvl}
_MARK = ".ercr-converting.json"  # which checkpoint an unfinished folder belongs to


def must_be_converted(model_type: str | None, name: str) -> str | None:
    """The advice for a checkpoint that needs remote code and can be converted; None for any other."""
    if model_type not in _KINDS:
        return None
    return (
        f"The checkpoint {name} needs remote code, which ercr never runs: convert it with "
        f"`ercr convert {name} --out FOLDER` and use that folder."
    )


def convert(source: str, out: Path, revision: str | None = None, progress: Progress = lambda done, total: None) -> Path:
    """Rewrite the checkpoint for transformers' own class; after an interruption, the same call continues."""
    folder = _local(source, revision)
    config = _read(folder / "config.json")
    kind = _KINDS.get(str(config.get("model_type")))
    if kind is None:
        raise CheckpointError(
            f"Checkpoints of type {config.get('model_type')!r} need no conversion or cannot be converted: "
            f"convert only {', '.join(_KINDS)}."
        )
    kind.check(config)
    sources = weights.shards(folder)
    _begin(out, _fingerprint(folder, sources))
    weights.check_space(sources, out)
    tokenizer = kind.tokenizer(folder, config)
    image, end = (_token_id(tokenizer, token) for token in (kind.IMAGE_TOKEN, kind.END_TOKEN))
    settings = _described(partial(kind.configuration, config, image, end))
    total, done = sum(path.stat().st_size for path in sources), 0
    progress(0, total)

    def advance(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    places = weights.rewrite(sources, out, partial(kind.renamed, config=config), advance)
    _compare(settings, weights.shapes(out, places))
    weights.write_index(out, places)
    tokenizer.save_pretrained(out)
    template = kind.chat_template(config)
    _write(out / "preprocessor_config.json", kind.image_processor(config))
    _write(out / "processor_config.json", {"processor_class": "InternVLProcessor"})
    _write(out / "generation_config.json", _generation(folder, end))
    write_atomic(out / "chat_template.jinja", template.encode())
    # last, because it marks the folder as complete
    _write(out / "config.json", {**settings.to_dict(), "ercr_converted_from": source})
    (out / _MARK).unlink(missing_ok=True)
    return out


def _described(build: Callable[[], Any]) -> Any:
    """Build a configuration or a model from config.json; turn its errors into one sentence."""
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"config.json does not describe a valid model, download the checkpoint again: {error!r}."
        ) from None


def _local(source: str, revision: str | None) -> Path:
    folder = Path(source)
    if folder.is_dir():
        return folder
    if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1:
        raise CheckpointError(
            f"There is no checkpoint folder {source}: give an existing folder, or a hub id such as 'owner/model'."
        )
    from huggingface_hub import snapshot_download

    kinds = ["*.json", "*.safetensors", "tokenizer.model", "merges.txt", "vocab.json"]
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=kinds))
    except Exception as error:  # huggingface_hub raises many types
        raise CheckpointError(
            f"{source} cannot be downloaded, check its name and the network: {str(error).splitlines()[0]}"
        ) from None


def _begin(out: Path, fingerprint: str) -> None:
    """Create the folder, or continue one that an interrupted conversion of the same checkpoint left."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {out} cannot be created: {error.strerror or error}.") from None
    mark = out / _MARK
    if mark.is_file() and _read(mark).get("checkpoint") != fingerprint:
        raise OutputError(f"{out} holds an unfinished conversion of another checkpoint: choose another folder.")
    if not mark.is_file() and any(out.iterdir()):
        raise OutputError(f"{out} is not empty: choose a new folder.")
    _write(mark, {"checkpoint": fingerprint})


def _fingerprint(folder: Path, sources: list[Path]) -> str:
    state = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sources:
        with open(path, "rb") as file:
            state.update(f"{path.name} {path.stat().st_size} ".encode() + file.read(2**16))
    return state.hexdigest()


def _token_id(tokenizer: Any, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    if not isinstance(found, int) or found == tokenizer.unk_token_id:
        raise CheckpointError(
            f"The tokenizer has no token {token!r}: check that the tokenizer and config.json are of one checkpoint."
        )
    return found


def _compare(settings: Any, found: dict[str, tuple[int, ...]]) -> None:
    """Refuse new files that do not contain exactly the tensors of transformers' class."""
    import torch
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = _described(partial(AutoModelForImageTextToText.from_config, settings))
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if settings.tie_word_embeddings:
        wanted.pop("lm_head.weight", None)
        found.pop("lm_head.weight", None)
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise CheckpointError(
            f"The weights do not fit config.json, so check that they belong together: {len(wrong)} tensors differ, the "
            f"first is {wrong[0]!r} with shape {found.get(wrong[0])} instead of {wanted.get(wrong[0])}."
        )


def _generation(folder: Path, end: int) -> dict[str, Any]:
    path = folder / "generation_config.json"
    stated = _read(path) if path.is_file() else {}
    ends = stated.get("eos_token_id", [])
    ends = [ends] if isinstance(ends, int) else list(ends)
    return {"eos_token_id": [end, *(token for token in ends if token != end)]}


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
    return data if isinstance(data, dict) else {}


def _write(path: Path, data: dict[str, Any]) -> None:
    write_atomic(path, json.dumps(data, indent=2, ensure_ascii=False).encode())
