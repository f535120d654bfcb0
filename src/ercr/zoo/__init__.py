"""The small models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from ercr.errors import CheckpointError, nearest

DEFAULT = "scenes-qwen2vl"
_HERE = Path(__file__).parent


def packaged() -> dict[str, Path]:
    """Names and folders of the packaged models."""
    return {folder.name: folder for folder in sorted(_HERE.iterdir()) if (folder / "config.json").is_file()}


def locate(name: str) -> str:
    """The folder of a packaged model; any other name is left to be a folder or a hub id."""
    known = packaged()
    if name in known:
        return str(known[name])
    if "/" not in name and not Path(name).exists():
        choices = ", ".join(known) or "none"
        raise CheckpointError(
            f"{name!r} is neither a packaged model ({choices}), nor a folder, nor a hub id like 'owner/model'."
            f"{nearest(name, known)}"
        )
    return name
