"""Datasets whose folder holds one list, `anno.json`, of [image, description, mask, {category: id}]."""

from __future__ import annotations

from typing import Any

from ercr.datasets.folder import category_id, digest, inside, read_json, read_labels, require
from ercr.datasets.sample import Sample, Samples
from ercr.errors import InputError
from ercr.image.images import load_image

_LAYOUT = "anno.json, a list of [image, description, mask, {category: id}] with paths relative to the folder"


class Listed(Samples):
    """One sample per entry of the list; each entry brings its own categories."""

    def __init__(self, root: str, prompt: str) -> None:
        self.root, self.prompt = require(root, ("anno.json",), _LAYOUT), prompt
        self.entries: list[Any] = read_json(self.root / "anno.json")
        if not isinstance(self.entries, list):
            raise InputError(f"{self.root / 'anno.json'} must hold {_LAYOUT.split(', ', 1)[1]}.")

    def __len__(self) -> int:
        return len(self.entries)

    def name(self, index: int) -> str:
        entry = self.entries[index]
        named = isinstance(entry, list) and entry and isinstance(entry[0], str)
        return str(entry[0]) if named else f"entry {index}"

    def fingerprint(self, count: int) -> str:
        return digest(self.root / "anno.json")

    def sample(self, index: int) -> Sample:
        try:
            picture, description, mask, categories = self.entries[index]
            names = [(category_id(id_), str(name)) for name, id_ in categories.items()]
            if not all(isinstance(text, str) for text in (picture, mask, description)):
                raise ValueError
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise InputError(f"Entry {index} of {self.root / 'anno.json'} is not [image, text, mask, {{…}}].") from None
        paths = inside(self.root, picture), inside(self.root, mask)
        image = load_image(paths[0])
        return Sample(
            id=self.name(index),
            image=image.rgb,
            prompt=self.prompt,
            labels=read_labels(paths[1], self.masks),
            categories=dict(names) if len(dict(names)) == len(names) else names,
            references=(description,),
        )
