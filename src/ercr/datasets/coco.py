"""COCO captions with the instance masks of the minival split, in the folder layout that people have."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ercr.datasets.folder import category_id, digest, read_json, read_labels, require
from ercr.datasets.registry import register
from ercr.datasets.sample import Sample, Samples
from ercr.errors import InputError
from ercr.image.images import load_image

PROMPT = "Write a one-sentence caption for this image:"
_INSTANCES, _CAPTIONS = "annotations/instances_minival2014.json", "annotations/captions_val2014.json"
_LAYOUT = f"{_INSTANCES}, {_CAPTIONS}, image/%012d.jpg and seg_label/%012d.png (pixel = category id)"
_SHORTER = {37: "ball", 46: "glass"}  # as the public evaluation code names them


class Coco(Samples):
    """One sample per image of the instances file."""

    def __init__(self, root: str) -> None:
        self.root = require(root, (_INSTANCES, _CAPTIONS, "image", "seg_label"), _LAYOUT)
        instances, captions = read_json(self.root / _INSTANCES), read_json(self.root / _CAPTIONS)
        try:
            self.ids: list[int | None] = [_image_id(image) for image in instances["images"]]
            names = {category_id(c["id"]): str(c["name"]) for c in instances["categories"]}
            self.references: dict[int, list[Any]] = defaultdict(list)
            for caption in captions["annotations"]:
                self.references[int(caption["image_id"])].append(caption.get("caption"))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"The annotations in {self.root} are not COCO's: {error!r}.") from None
        self.categories = {**names, **{id_: name for id_, name in _SHORTER.items() if id_ in names}}

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, index: int) -> str:
        id_ = self.ids[index]
        return f"entry {index}" if id_ is None else f"{id_:012d}"

    def fingerprint(self, count: int) -> str:
        return digest(self.root / _INSTANCES, self.root / _CAPTIONS)

    def sample(self, index: int) -> Sample:
        id_, name = self.ids[index], self.name(index)
        if id_ is None:
            raise InputError(f"Image {index} of {self.root / _INSTANCES} has no id.")
        captions = self.references.get(id_, [])
        if not all(isinstance(caption, str) for caption in captions):
            raise InputError(f"A caption of image {id_} in {self.root / _CAPTIONS} is not text.")
        image = load_image(self.root / f"image/{name}.jpg")
        return Sample(
            id=name,
            image=image.rgb,
            prompt=PROMPT,
            labels=read_labels(self.root / f"seg_label/{name}.png", self.masks),
            categories=self.categories,
            references=tuple(caption.strip() for caption in captions),
        )


def _image_id(image: Any) -> int | None:
    """The id of an image's entry; None where the entry is damaged, which spoils that sample only."""
    try:
        return int(image["id"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


@register("coco")
def open_coco(where: str) -> Coco:
    return Coco(where)
