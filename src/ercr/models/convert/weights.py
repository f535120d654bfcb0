"""Rewrites safetensors files with new tensor names, one file at a time to save memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from ercr.errors import CheckpointError, OutputError
from ercr.files.writing import write_atomic

Rename = Callable[[str, Tensor], Iterator[tuple[str, Tensor]]]
INDEX = "model.safetensors.index.json"


def shards(folder: Path) -> list[Path]:
    """The weight files of a checkpoint, sorted by name."""
    found = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX
    if index.is_file():
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        found = [folder / name for name in sorted(named)]
        lost = [path.name for path in found if not path.is_file()]
        if lost:
            raise CheckpointError(f"{folder} is incomplete: it has no {', no '.join(lost)}.")
    if not found:
        pickled = "" if not list(folder.glob("*.bin")) else " Pickled weights (.bin) are not read."
        raise CheckpointError(f"{folder} has no weights in the safetensors format.{pickled}")
    return found


def check_space(sources: list[Path], out: Path) -> None:
    """Refuse a conversion that would not fit on the disk, before it begins."""
    done = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    needed = sum(path.stat().st_size for path in sources) - done + 2**26
    free = shutil.disk_usage(out).free
    if needed > free:
        raise OutputError(
            f"{out} needs {needed / 1e9:.1f} GB of disk space, but {free / 1e9:.1f} GB are free: free some space first."
        )


def rewrite(sources: list[Path], out: Path, rename: Rename, advance: Callable[[int], None]) -> dict[str, str]:
    """Rewrite every file and return the file of each tensor; files that an earlier run finished are kept.

    `advance` is called with the size of each source file that is done.
    """
    places: dict[str, str] = {}
    for number, source in enumerate(sources):
        name = "model.safetensors" if len(sources) == 1 else f"model-{number + 1:05}-of-{len(sources):05}.safetensors"
        _write_shard(source, out / name, rename)
        places |= dict.fromkeys(_names(out / name), name)
        advance(source.stat().st_size)
    return places


def _write_shard(source: Path, target: Path, rename: Rename) -> None:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file

    if target.is_file():
        return  # a file gets its name only when it is complete
    try:
        with safe_open(source, framework="pt") as archive:
            stored = archive.keys()
            tensors = {
                new: part.contiguous() for name in stored for new, part in rename(name, archive.get_tensor(name))
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"The weights file {source} is damaged or incomplete, download it again: {error}."
        ) from None
    temporary = target.with_name(f".{target.name}.part")  # several GB, so safetensors writes it, not write_atomic
    try:
        save_file({name: part.contiguous() for name, part in tensors.items()}, temporary, metadata={"format": "pt"})
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod((target.parent.stat().st_mode & 0o666) or 0o644)
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{target} cannot be written: {getattr(error, 'strerror', None) or error}.") from None


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as archive:
        return list(archive.keys())


def write_index(out: Path, places: dict[str, str]) -> None:
    """Write the index of which file has which tensor, if there is more than one file."""
    if len(set(places.values())) > 1:
        total = sum((out / name).stat().st_size for name in set(places.values()))
        document: dict[str, Any] = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_atomic(out / INDEX, json.dumps(document, indent=2).encode())


def shapes(folder: Path, places: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor; only the files' headers are read."""
    from safetensors import safe_open

    found: dict[str, tuple[int, ...]] = {}
    for name in sorted(set(places.values())):
        with safe_open(folder / name, framework="pt") as archive:
            found |= {key: tuple(archive.get_slice(key).get_shape()) for key in archive.keys()}  # noqa: SIM118
    return found
