"""Finds the column for each role: as the user names it, else by its type and usual names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ercr.errors import InputError, nearest

_NAMES = {
    "id": ("id", "image_id", "img_id", "file_name", "filename"),
    "image": ("image", "img", "picture", "photo", "jpg", "png"),
    "captions": (
        *("captions", "caption", "sentences", "sentence", "references", "description", "descriptions"),
        *("answers", "answer", "text"),
    ),
    "prompt": ("prompt", "question", "instruction"),
    "mask": ("mask", "segmentation_mask", "seg_label", "annotation", "label"),
    "categories": ("categories", "classes"),
    "objects": ("objects", "annotations", "instances"),
}
ROLES = tuple(_NAMES)
BOXES, CATEGORY, OUTLINE = (
    ("bbox", "boxes", "box", "bboxes"),
    ("category", "categories", "label", "labels", "category_name", "category_id", "name", "class"),
    ("segmentation",),
)


@dataclass(frozen=True)
class Columns:
    """The column for each role; None if the table has none."""

    image: str
    id: str | None = None
    captions: str | None = None
    prompt: str | None = None
    mask: str | None = None
    categories: str | None = None
    objects: str | None = None


def choose_columns(types: Mapping[str, Any], features: Mapping[str, Any], given: Mapping[str, str]) -> Columns:
    """The columns that the user named, and guesses for all other roles."""
    for role, name in given.items():
        if name not in types:
            raise InputError(f"There is no column {name!r} for {role}; {_listing(types)}.{nearest(name, types)}")
    pictures = [name for name in types if is_picture(types[name], features.get(name))]
    found: dict[str, str | None] = {
        "id": _named("id", types, lambda name: _is(types[name], "string", "integer")),
        "image": _named("image", types, lambda name: name in pictures or _is(types[name], "binary")),
        "captions": _named("captions", types, lambda name: _is_text(types[name])),
        "prompt": _named("prompt", types, lambda name: _is(types[name], "string")),
        "categories": _named("categories", types, lambda name: True),
        "objects": _named("objects", types, lambda name: _holds_objects(types[name])),
    }
    if found["image"] is None and len(pictures) == 1:
        found["image"] = pictures[0]
    lists = [name for name in types if _is(types[name], "list") and _is_text(types[name])]
    if found["captions"] is None and len(lists) == 1:
        found["captions"] = lists[0]
    if found["categories"] is not None:  # a mask is useless without the names of its numbers
        found["mask"] = _named("mask", types, lambda name: name in pictures)
    found |= given
    _check(found, types, pictures)
    return Columns(**found)  # type: ignore[arg-type]


def _check(found: Mapping[str, str | None], types: Mapping[str, Any], pictures: list[str]) -> None:
    image = found["image"]
    if image is None:
        several = f" ({' or '.join(pictures)}?)" if pictures else ""
        raise InputError(f"No column with pictures was found{several}: name it, as in image=NAME; {_listing(types)}.")
    if image not in pictures and not _is(types[image], "binary", "string"):
        raise InputError(f"The column {image!r} holds no pictures; {_listing(types)}.")
    if found["captions"] is not None and not _is_text(types[found["captions"]]):
        raise InputError(f"The column {found['captions']!r} holds no text; {_listing(types)}.")
    if found["prompt"] is not None and not _is(types[found["prompt"]], "string"):
        raise InputError(f"The column {found['prompt']!r} holds no text; {_listing(types)}.")
    if found["objects"] is not None and not _holds_objects(types[found["objects"]]):
        raise InputError(f"The column {found['objects']!r} holds no boxes with categories; {_listing(types)}.")
    if found.get("mask") is not None and found["categories"] is None:
        raise InputError(
            f"Masks need category names: name the column that has them, as in categories=NAME; {_listing(types)}."
        )


def _named(role: str, types: Mapping[str, Any], fits: Any) -> str | None:
    usual = {name.lower(): name for name in types}
    return next((usual[name] for name in _NAMES[role] if name in usual and fits(usual[name])), None)


def _listing(types: Mapping[str, Any]) -> str:
    shown = [f"{name} ({_short(type_)})" for name, type_ in types.items()]
    return f"the columns are {', '.join(shown)}"


def _short(type_: Any) -> str:
    if is_picture(type_, None):
        return "picture"
    if _is(type_, "list"):
        return f"list of {_short(type_.value_type)}"
    if _is(type_, "struct"):
        return f"{{{', '.join(field.name for field in type_)}}}"
    return str(type_)


def is_picture(type_: Any, feature: Any) -> bool:
    """Whether a column holds pictures as `datasets` stores them."""
    if isinstance(feature, Mapping) and feature.get("_type") == "Image":
        return True
    return _is(type_, "struct") and {field.name for field in type_} == {"bytes", "path"}


def _is_text(type_: Any) -> bool:
    return _is(type_, "string") or (_is(type_, "list") and _is(type_.value_type, "string"))


def _holds_objects(type_: Any) -> bool:
    """Whether a column holds objects with a box or an outline, and a category: a list, or a struct of lists."""
    inner = type_.value_type if _is(type_, "list") else type_
    names = {field.name for field in inner} if _is(inner, "struct") else set()
    return bool(names & {*BOXES, *OUTLINE}) and bool(names & {*CATEGORY})


def _is(type_: Any, *kinds: str) -> bool:
    import pyarrow.types as arrow

    tests = {
        "string": lambda t: arrow.is_string(t) or arrow.is_large_string(t),
        "binary": lambda t: arrow.is_binary(t) or arrow.is_large_binary(t),
        "list": lambda t: arrow.is_list(t) or arrow.is_large_list(t) or arrow.is_fixed_size_list(t),
        "struct": arrow.is_struct,
        "integer": arrow.is_integer,
    }
    return any(tests[kind](type_) for kind in kinds)
