"""Occlusion: how much less probable a word becomes when a patch of the picture is hidden.

A patch of a clip also has a length in time: its slices are counted in up to `grid` steps, and a patch hides the same
place in `window` of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from PIL import Image, ImageFilter
from torch import Tensor

from ercr.errors import InputError, choose
from ercr.image.clips import LoadedClip
from ercr.image.geometry import Geometry, Panel
from ercr.image.pieces import Piece, joined, pieces_of
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import stretched, valid_cells
from ercr.methods.registry import register
from ercr.models.inputs import Medium
from ercr.trace import Needs, Trace

_BLUR = 0.1  # standard deviation of the blur, as a share of the picture's longer side
_FILLS = ("mean", "black", "grey", "blur")
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class OcclusionSettings(Settings):
    grid: int = 10  # cells along the longer side of the part of the picture that the model sees
    window: int = 2  # cells along the side of the patch that is hidden; it moves by one cell
    fill: str = "mean"  # what hides it: mean (the colour the image processor turns into zeros), black, grey, blur
    clip: bool = True  # set negative changes to 0: parts whose absence makes the word more probable

    def __post_init__(self) -> None:
        choose("fill", self.fill, *_FILLS)
        if not 1 <= self.grid <= 64:
            raise InputError(f"grid must be 1 to 64, not {self.grid}.")
        if not 1 <= self.window <= self.grid:
            raise InputError(f"window must be 1 to {self.grid} (the grid), not {self.window}.")


def _evidence(trace: Trace, tokens: slice, settings: OcclusionSettings) -> Evidence:
    """The mean change of log P over the patches that cover a cell, read at the model's own cells."""
    hidden = [_Hidden.of(piece, settings) for piece in pieces_of(trace.geometry)]
    media, neutral = trace.changed.media, trace.changed.neutral
    after = trace.changed.log_probabilities(
        (at, changed)
        for at, (piece, medium) in enumerate(zip(hidden, media, strict=True))
        for changed in piece.changes(medium, settings.fill, neutral)
    )
    lost = trace.text.log_probabilities[tokens] - after[:, tokens].to(trace.text.log_probabilities)  # [P, R]
    parts = torch.split(lost, [len(piece.patches) for piece in hidden])
    raw = joined(trace.geometry, [piece.read(part) for piece, part in zip(hidden, parts, strict=True)])
    shown, size = stretched(raw.clamp(min=0) if settings.clip else raw, valid_cells(trace.geometry, raw.device))
    return Evidence(shown, {"raw": raw}, size.flatten().clamp(min=0))


@dataclass(frozen=True)
class _Hidden:
    """The patches that are hidden of one piece, in steps of its time (one for a picture), its rows and its columns."""

    piece: Piece
    grid: tuple[int, int]
    seen: tuple[float, float, float, float]
    steps: int
    patches: list[tuple[slice, slice, slice]]

    @classmethod
    def of(cls, piece: Piece, settings: OcclusionSettings) -> _Hidden:
        grid, seen = _cells(piece.geometry, settings.grid)
        steps = min(piece.slices, settings.grid)
        times = _places(steps, settings.window) if piece.clip else [slice(0, 1)]
        patches = [(time, *patch) for time, patch in product(times, _patches(grid, settings.window))]
        return cls(piece, grid, seen, steps, patches)

    def changes(self, medium: Medium, fill: str, neutral: tuple[int, int, int]) -> Iterator[Medium]:
        """The picture, or the clip, with each of the patches hidden."""
        frames = medium.frames if isinstance(medium, LoadedClip) else (medium,)
        covers = [_cover(frame, fill, neutral) for frame in frames]
        for times, rows, columns in self.patches:
            box = _in_pixels(rows, columns, self.grid, self.seen)
            changed = list(frames)
            for at in self._frames(times):
                changed[at] = frames[at].copy()
                changed[at].paste(covers[at].crop(box), box[:2])
            yield replace(medium, frames=tuple(changed)) if isinstance(medium, LoadedClip) else changed[0]

    def _frames(self, times: slice) -> range:
        """The frames that some steps of time show."""
        if not self.piece.clip:
            return range(1)
        first = self.piece.first_frames
        start, stop = (-(-at * self.piece.slices // self.steps) for at in (times.start, min(times.stop, self.steps)))
        return range(first[start], first[stop])

    def read(self, lost: Tensor) -> Tensor:
        """The changes [P, R] by patch as maps [R, slices, h, w] at the piece's own cells."""
        covers = torch.zeros(len(self.patches), self.steps, *self.grid, dtype=torch.float64)
        for cover, patch in zip(covers, self.patches, strict=True):
            cover[patch] = 1
        share = (covers / covers.sum(0)).to(lost.device, lost.dtype).flatten(1)  # [P, cells]
        changes = (lost.T @ share).view(-1, self.steps, *self.grid)
        step = torch.arange(self.piece.slices) * self.steps // self.piece.slices
        view = Geometry(self.piece.geometry.size, (Panel(self.grid, self.seen),))
        return view.warp_to(self.piece.geometry, changes[:, step.to(lost.device)])


def _cells(geometry: Geometry, count: int) -> tuple[tuple[int, int], tuple[float, float, float, float]]:
    """Rows and columns of cells that are about square, over the part of the picture that the model sees."""
    (height, width), (left, top, right, bottom) = geometry.size, geometry.box
    left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    side = max(right - left, bottom - top) / count
    grid = max(1, round((bottom - top) / side)), max(1, round((right - left) / side))
    return grid, (left, top, right, bottom)


def _patches(grid: tuple[int, int], window: int) -> list[tuple[slice, slice]]:
    """All places of a patch."""
    down, across = (_places(cells, window) for cells in grid)
    return list(product(down, across))


def _places(cells: int, window: int) -> list[slice]:
    """All places of a window; it may stand out over the border, so that every cell is covered equally often."""
    return [slice(max(first, 0), first + window) for first in range(1 - window, cells)]


def _in_pixels(rows: slice, columns: slice, grid: tuple[int, int], seen: tuple[float, float, float, float]) -> Box:
    left, top, right, bottom = seen

    def edge(low: float, high: float, at: int, cells: int) -> int:
        return round(low + (high - low) * min(at, cells) / cells)

    (x0, x1), (y0, y1) = (
        (edge(low, high, part.start, cells), edge(low, high, part.stop, cells))
        for low, high, part, cells in ((left, right, columns, grid[1]), (top, bottom, rows, grid[0]))
    )
    return x0, y0, max(x1, x0 + 1), max(y1, y0 + 1)


def _cover(image: Image.Image, fill: str, neutral: tuple[int, int, int]) -> Image.Image:
    """What a hidden patch is cut from."""
    if fill == "blur":
        return image.filter(ImageFilter.GaussianBlur(_BLUR * max(image.size)))
    return Image.new("RGB", image.size, {"mean": neutral, "black": (0, 0, 0), "grey": (128, 128, 128)}[fill])


def _refine(trace: Trace, evidence: Tensor, tokens: slice, settings: OcclusionSettings) -> Result:
    return Result(evidence[tokens])


register(
    Method(
        name="occlusion",
        title="Occlusion",
        paper="Zeiler and Fergus, Visualizing and Understanding Convolutional Networks, ECCV 2014",
        settings=OcclusionSettings,
        needs=lambda settings: Needs(changed=True, cells=False),
        evidence=_evidence,
        refine=_refine,
        unit="nats of log-probability",
        reads="probabilities of the words, nothing of the model's inside",
        cost="a forward pass for every patch, about a hundred",
        memory="as forward passes of 16 pictures",
        streams=lambda settings: False,
    )
)
