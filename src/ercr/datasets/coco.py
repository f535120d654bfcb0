"""COCO captions with the instance masks of the minival split, in the folder layout that people have."""

from __future__ import annotations

from collections import defaultdict

from ercr.datasets.folder import read_json, read_labels, require
from ercr.datasets.registry import register
from ercr.datasets.sample import Sample, Samples
from ercr.errors import InputError
from ercr.images import load_image

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
            self.ids: list[int] = [int(image["id"]) for image in instances["images"]]
            names = {int(c["id"]): str(c["name"]) for c in instances["categories"]}
            self.references: dict[int, list[str]] = defaultdict(list)
            for caption in captions["annotations"]:
                self.references[int(caption["image_id"])].append(str(caption["caption"]).strip())
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"The annotations in {self.root} are not COCO's: {error!r}.") from None
        self.categories = {**names, **{id_: name for id_, name in _SHORTER.items() if id_ in names}}

    def __len__(self) -> int:
        return len(self.ids)

    def sample(self, index: int) -> Sample:
        id_ = self.ids[index]
        image = load_image(self.root / f"image/{id_:012d}.jpg")
        return Sample(
            id=f"{id_:012d}",
            image=image.rgb,
            prompt=PROMPT,
            labels=read_labels(self.root / f"seg_label/{id_:012d}.png", image.size),
            categories=self.categories,
            references=tuple(self.references.get(id_, ())),
        )


@register("coco")
def open_coco(where: str) -> Coco:
    return Coco(where)
