"""The small models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from ercr.errors import CheckpointError, nearest

DEFAULT = "scenes-qwen2vl"  # of drawn scenes; ercr.defaults says when it is taken
PHOTOS = "photo-mini"
_HERE = Path(__file__).parent


def packaged() -> dict[str, Path]:
    """Names and folders of the packaged models."""
    return {folder.name: folder for folder in sorted(_HERE.iterdir()) if (folder / "config.json").is_file()}


def for_scenes() -> list[str]:
    """Names of the packaged models that know drawn pictures."""
    return [name for name in packaged() if name.startswith("scenes-")]


def for_photos() -> str | None:
    """The packaged model that knows photographs, where the language model it builds on is at hand."""
    from ercr.models.updates import base_at_hand

    folder = packaged().get(PHOTOS)
    return PHOTOS if folder is not None and base_at_hand(folder) else None


def way_to_photos() -> str:
    """The commands that bring what the model for photographs builds on."""
    from ercr.models.updates import way_to_get_base

    return way_to_get_base(packaged()[PHOTOS])


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
