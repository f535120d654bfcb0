"""The packaged models by name; they are in a separate distribution, `ercr-zoo`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ercr.errors import CheckpointError, missing, nearest

DEFAULT = "scenes-qwen2vl"  # for drawn scenes; ercr.zoo.defaults says when it is used
PHOTOS = "photo-mini"
CLIPS = "clips-qwen2vl"  # for pairs of drawn scenes and for drawn clips


def packaged() -> dict[str, Path]:
    """Names and folders of the packaged models; none where `ercr-zoo` is not installed."""
    found = find_spec("ercr_zoo")
    package_folders = [Path(place) for place in found.submodule_search_locations or []] if found is not None else []
    return {folder.name: folder for home in package_folders for folder in sorted(home.iterdir()) if _is_model(folder)}


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def scene_models() -> list[str]:
    """Names of the packaged models for drawn scenes."""
    return [name for name in packaged() if name.startswith("scenes-")]


def photo_model() -> str | None:
    """The packaged model for photographs, or None if the language model that it is based on is not available."""
    from ercr.models.updates import base_is_local

    folder = packaged().get(PHOTOS)
    return PHOTOS if folder is not None and base_is_local(folder) else None


def photo_install_hint() -> str:
    """The commands that install what the model for photographs needs."""
    from ercr.models.updates import base_install_command

    folder = packaged().get(PHOTOS)
    return base_install_command(folder) if folder is not None else "pip install ./zoo in ercr's source folder"


def locate(name: str) -> str:
    """The folder of a packaged model; a folder or a hub id is returned as it is."""
    known = packaged()
    if name in known:
        return str(known[name])
    if not known and (name in (PHOTOS, CLIPS) or name.startswith("scenes-")):
        raise missing(f"{name} is in the distribution ercr-zoo, which is not installed", "zoo")
    if "/" not in name and not Path(name).exists():
        choices = ", ".join(known) or "none"
        raise CheckpointError(
            f"{name!r} is neither a packaged model ({choices}), nor a folder, nor a hub id like 'owner/model'."
            f"{nearest(name, known)}"
        )
    return name
