"""COCO captions with instance masks: in COCO's own folders, or with the label pictures of the minival split."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.datasets.folder import category_id, digest, inside, read_json, read_labels, require
from ercr.datasets.instances import draw, outline
from ercr.datasets.options import choose_split, split_options
from ercr.datasets.registry import register
from ercr.datasets.sample import PROMPT, Sample, Samples
from ercr.errors import InputError
from ercr.image.images import load_image

_INSTANCES, _CAPTIONS = "annotations/instances_minival2014.json", "annotations/captions_val2014.json"
_LABELLED = f"{_INSTANCES}, {_CAPTIONS}, image/%012d.jpg and seg_label/%012d.png (pixel = category id)"
LAYOUT = (
    "COCO's own (annotations/instances_val2017.json, annotations/captions_val2017.json and val2017/ with the "
    f"pictures), or {_LABELLED}"
)
_SHORTER = {(37, "sports ball"): "ball", (46, "wine glass"): "glass"}  # as the public evaluation code names them


class Coco(Samples):
    """One sample per image of an instances file; subclasses know where pictures and masks are stored."""

    def __init__(self, root: Path, instances: Path, captions: Path | None) -> None:
        self.root, self.files = root, [file for file in (instances, captions) if file is not None]
        listed = read_json(instances)
        written = read_json(captions) if captions is not None else {"annotations": []}
        try:
            self.entries: list[Any] = list(listed["images"])
            self.ids = [_image_id(image) for image in self.entries]
            self.numbers = self._numbers([c["id"] for c in listed["categories"]])
            names = {self.numbers[c["id"]]: str(c["name"]) for c in listed["categories"]}
            self.references: dict[int, list[Any]] = defaultdict(list)
            for caption in written["annotations"]:
                self.references[int(caption["image_id"])].append(caption.get("caption"))
            self._read(listed)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"The annotations in {self.root} are not COCO's: {error!r}.") from None
        self.categories = {id_: _SHORTER.get((id_, name), name) for id_, name in names.items()}

    def _read(self, listed: Any) -> None:
        """Read what else a layout needs from the instances file."""

    def _numbers(self, ids: list[Any]) -> dict[Any, int]:
        """The value of each category in label pictures: its own id."""
        return {id_: category_id(id_) for id_ in ids}

    @abstractmethod
    def picture(self, index: int) -> Path:
        """The file of a sample's picture."""

    @abstractmethod
    def labels(self, index: int, image: Image.Image) -> NDArray[np.uint8] | None:
        """The category of every pixel."""

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, index: int) -> str:
        id_ = self.ids[index]
        return f"entry {index}" if id_ is None else f"{id_:012d}"

    def fingerprint(self, count: int) -> str:
        return digest(*self.files)

    def sample(self, index: int) -> Sample:
        id_, name = self.ids[index], self.name(index)
        if id_ is None:
            raise InputError(f"Image {index} of {self.files[0]} has no id.")
        captions = self.references.get(id_, [])
        if not all(isinstance(caption, str) for caption in captions):
            raise InputError(f"A caption of image {id_} in {self.files[-1]} is not text.")
        image = load_image(self.picture(index)).rgb
        return Sample(
            id=name,
            image=image,
            prompt=PROMPT,
            labels=self.labels(index, image),
            categories=self.categories,
            references=tuple(caption.strip() for caption in captions),
        )


class Labelled(Coco):
    """The layout of the public evaluation code: every mask is a label picture."""

    def picture(self, index: int) -> Path:
        return self.root / f"image/{self.name(index)}.jpg"

    def labels(self, index: int, image: Image.Image) -> NDArray[np.uint8] | None:
        return read_labels(self.root / f"seg_label/{self.name(index)}.png", self.masks)


class Annotated(Coco):
    """COCO's own layout: masks are drawn from the annotations, the largest first."""

    def __init__(self, root: Path, pictures: Path, instances: Path, captions: Path | None) -> None:
        self.pictures = pictures
        super().__init__(root, instances, captions)

    def _numbers(self, ids: list[Any]) -> dict[Any, int]:
        """Their own ids, or new numbers if an id is 0 (the background) or above 255."""
        if all(isinstance(id_, int) and 0 < id_ <= 255 for id_ in ids):
            return {id_: id_ for id_ in ids}
        return {id_: category_id(number) for number, id_ in enumerate(dict.fromkeys(ids), 1)}

    def _read(self, listed: Any) -> None:
        self.things: dict[int, list[Any]] = defaultdict(list)
        for thing in listed["annotations"]:
            self.things[int(thing["image_id"])].append(thing)

    def picture(self, index: int) -> Path:
        name = self.entries[index].get("file_name", f"{self.name(index)}.jpg")
        if not isinstance(name, str):
            raise InputError(f"Image {index} of {self.files[0]} has a file name that is not text.")
        return inside(self.pictures, name)

    def labels(self, index: int, image: Image.Image) -> NDArray[np.uint8]:
        size, id_ = (image.height, image.width), self.ids[index]
        try:
            things = self.things.get(id_, []) if id_ is not None else []
            drawn = [(self.numbers[thing["category_id"]], outline(thing["segmentation"], size)) for thing in things]
            return draw(drawn, size)
        except InputError:
            raise
        except Exception as error:  # pycocotools raises many types of errors
            raise InputError(f"An annotation of image {id_} in {self.files[0]} is not COCO's: {error!r}.") from None


def _image_id(image: Any) -> int | None:
    """The id in an image's entry; None if the entry is damaged, so that only this sample fails."""
    try:
        return int(image["id"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


@register("coco")
def open_coco(where: str) -> Coco:
    folder, options = split_options(where, ("split",))
    root = require(folder, (), LAYOUT)
    if options.get("split", "minival2014") == "minival2014" and _has(root, _INSTANCES):
        require(folder, (_INSTANCES, _CAPTIONS, "image", "seg_label"), _LABELLED)
        return Labelled(root, root / _INSTANCES, root / _CAPTIONS)
    splits = _splits(root)
    if not splits:
        raise InputError(f"{root} has no annotations/instances_….json: it should look like {LAYOUT}.")
    chosen = choose_split(sorted(splits), options.get("split"), f"coco:{folder}")
    instances = splits[chosen]
    captions = instances.with_name(f"captions_{chosen}.json")
    pictures = _pictures(root, chosen)
    if pictures is None:
        raise InputError(f"{root} has no folder {chosen} with the pictures of {instances.name}.")
    return Annotated(root, pictures, instances, captions if captions.exists() else None)


def _has(root: Path, name: str) -> bool:
    return (root / name).exists()


def _splits(root: Path) -> dict[str, Path]:
    """The instances files by split name; only those with pictures, if any split has pictures."""
    files = [*(root / "annotations").glob("instances_*.json"), *root.glob("instances_*.json")]
    found = {file.stem.removeprefix("instances_"): file for file in reversed(files)}
    return {name: file for name, file in found.items() if _pictures(root, name)} or found


def _pictures(root: Path, split: str) -> Path | None:
    """The folder of a split's pictures, under one of its usual names."""
    places = [root / split, root / "images" / split, root / "image" / split]
    found = [place for place in places if place.is_dir()]
    plain = root / "images"  # shared by all splits
    if not found and plain.is_dir() and any(file.is_file() for file in plain.iterdir()):
        found = [plain]
    return found[0] if found else None
