"""Occlusion: how much less probable a word becomes when a patch of the picture is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from PIL import Image, ImageFilter
from torch import Tensor

from ercr.errors import InputError, choose
from ercr.image.geometry import Geometry, Panel
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import stretched, valid_cells
from ercr.methods.registry import register
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
    grid, seen = _cells(trace.geometry, settings.grid)
    patches = _patches(grid, settings.window)
    boxes = [_in_pixels(rows, columns, grid, seen) for rows, columns in patches]
    after = trace.changed.log_probabilities(_hidden(trace.changed.image, boxes, settings.fill, trace.changed.neutral))
    lost = trace.text.log_probabilities[tokens] - after[:, tokens].to(trace.text.log_probabilities)  # [P, R]
    covers = torch.zeros(len(patches), *grid, dtype=torch.float64)
    for cover, (rows, columns) in zip(covers, patches, strict=True):
        cover[rows, columns] = 1
    share = (covers / covers.sum(0)).to(lost.device, lost.dtype).flatten(1)  # [P, cells]
    changes = (lost.T @ share).view(-1, *grid)
    raw = Geometry(trace.geometry.size, (Panel(grid, seen),)).warp_to(trace.geometry, changes)
    shown, size = stretched(raw.clamp(min=0) if settings.clip else raw, valid_cells(trace.geometry, raw.device))
    return Evidence(shown, {"raw": raw}, size.flatten().clamp(min=0))


def _cells(geometry: Geometry, count: int) -> tuple[tuple[int, int], tuple[float, float, float, float]]:
    """Rows and columns of cells that are about square, over the part of the picture that the model sees."""
    (height, width), (left, top, right, bottom) = geometry.size, geometry.box
    left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    side = max(right - left, bottom - top) / count
    grid = max(1, round((bottom - top) / side)), max(1, round((right - left) / side))
    return grid, (left, top, right, bottom)


def _patches(grid: tuple[int, int], window: int) -> list[tuple[slice, slice]]:
    """All places of the patch; it may stand out over the border, so that every cell is covered equally often."""
    rows, columns = ([slice(max(first, 0), first + window) for first in range(1 - window, cells)] for cells in grid)
    return [(down, across) for down in rows for across in columns]


def _in_pixels(rows: slice, columns: slice, grid: tuple[int, int], seen: tuple[float, float, float, float]) -> Box:
    left, top, right, bottom = seen

    def edge(low: float, high: float, at: int, cells: int) -> int:
        return round(low + (high - low) * min(at, cells) / cells)

    (x0, x1), (y0, y1) = (
        (edge(low, high, part.start, cells), edge(low, high, part.stop, cells))
        for low, high, part, cells in ((left, right, columns, grid[1]), (top, bottom, rows, grid[0]))
    )
    return x0, y0, max(x1, x0 + 1), max(y1, y0 + 1)


def _hidden(image: Image.Image, boxes: list[Box], fill: str, neutral: tuple[int, int, int]) -> Iterator[Image.Image]:
    """The picture with each of the patches hidden."""
    if fill == "blur":
        cover = image.filter(ImageFilter.GaussianBlur(_BLUR * max(image.size)))
    else:
        colour = {"mean": neutral, "black": (0, 0, 0), "grey": (128, 128, 128)}[fill]
        cover = Image.new("RGB", image.size, colour)
    for box in boxes:
        changed = image.copy()
        changed.paste(cover.crop(box), box[:2])
        yield changed


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
