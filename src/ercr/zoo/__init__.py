"""The small models by name; they are a distribution of their own, `ercr-zoo`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ercr.errors import CheckpointError, missing, nearest

DEFAULT = "scenes-qwen2vl"  # of drawn scenes; ercr.zoo.defaults says when it is taken
PHOTOS = "photo-mini"


def packaged() -> dict[str, Path]:
    """Names and folders of the packaged models; none where `ercr-zoo` is not installed."""
    found = find_spec("ercr_zoo")
    homes = [Path(place) for place in found.submodule_search_locations or []] if found is not None else []
    return {folder.name: folder for home in homes for folder in sorted(home.iterdir()) if _is_model(folder)}


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


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

    folder = packaged().get(PHOTOS)
    return way_to_get_base(folder) if folder is not None else "pip install ./zoo in ercr's source folder"


def locate(name: str) -> str:
    """The folder of a packaged model; any other name is left to be a folder or a hub id."""
    known = packaged()
    if name in known:
        return str(known[name])
    if not known and (name == PHOTOS or name.startswith("scenes-")):
        raise missing(f"{name} is in the distribution ercr-zoo, which is not installed", "zoo")
    if "/" not in name and not Path(name).exists():
        choices = ", ".join(known) or "none"
        raise CheckpointError(
            f"{name!r} is neither a packaged model ({choices}), nor a folder, nor a hub id like 'owner/model'."
            f"{nearest(name, known)}"
        )
    return name
