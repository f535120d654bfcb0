"""The options of an album and the settings that determine its rows; runs and writes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ercr import plugins
from ercr.album.sources import Entry, Source
from ercr.errors import InputError, choose
from ercr.evaluate.plan import method_settings, versions
from ercr.evaluate.settings import FORMAT
from ercr.methods.registry import resolve
from ercr.models.chat import as_messages
from ercr.words.calibration import find_calibration
from ercr.zoo.defaults import PROMPT

_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class AlbumPlan:
    """The options of an album: plain values, so that they can be sent to another machine."""

    model: str
    source: str
    prompt: str = PROMPT
    method: str = "ercr"
    max_new_tokens: int = 256
    maps: bool = True
    pages: bool = False
    limit: int | None = None
    shard: str = "1/1"
    part_size: int = 256  # pictures that are written together; a killed process loses at most one part
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    compile: bool = False
    grounding: bool = True  # whether each word was seen or guessed
    calibration: str | None = None  # of it; None stands for the model's own

    def __post_init__(self) -> None:
        resolve(self.method)
        as_messages(self.prompt)
        if self.calibration is not None:
            find_calibration(self.calibration)
        choose("dtype", self.dtype, "auto", "float32", "bfloat16", "float16")
        for name in ("max_new_tokens", "limit", "part_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        number, of = self._shard
        if not 1 <= number <= of:
            raise InputError(f"shard must be a number and how many there are, such as 2/8, not {self.shard!r}.")

    @property
    def _shard(self) -> tuple[int, int]:
        found = _SHARD.fullmatch(self.shard)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def indices(self, source: Sequence[Entry]) -> range:
        """Which pictures this shard explains: as many as every other one, side by side."""
        whole = len(source) if self.limit is None else min(self.limit, len(source))
        number, of = self._shard
        return range(whole * (number - 1) // of, whole * number // of)

    def count(self, source: Sequence[Entry]) -> int:
        return len(self.indices(source))

    def parts(self, source: Sequence[Entry]) -> list[range]:
        """The indices of the pictures, in the groups that are written together."""
        own = self.indices(source)
        return [own[start : start + self.part_size] for start in range(0, len(own), self.part_size)]

    def settings(self, source: Sequence[Entry]) -> dict[str, Any]:
        """Everything that determines the rows and is known before the model is loaded."""
        kind = self.device.partition(":")[0]
        device = kind if kind in ("cpu", "cuda") else "auto"
        model = {"name": self.model, "revision": self.revision, "dtype": self.dtype, "device": device}
        others = plugins.used()
        return {
            "format": FORMAT,
            "kind": "album",
            "model": {key: value for key, value in model.items() if value not in (None, "auto")},
            "dataset": {
                "spec": self.source,
                "samples": self.count(source),
                "fingerprint": source.fingerprint if isinstance(source, Source) else None,
            },
            "shard": self.shard,
            "prompt": self.prompt,
            "methods": [method_settings(self.method)],
            "max_new_tokens": self.max_new_tokens,
            "maps": self.maps,
            "pages": self.pages,
            "compile": self.compile,
            "grounding": self.grounding,
            "calibration": self.calibration,
            "part_size": self.part_size,
            "versions": versions(),
            **({"plugins": others} if others else {}),
        }
