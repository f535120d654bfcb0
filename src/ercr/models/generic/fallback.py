"""Cells of a tower whose pixels reach several tokens, such as a tower of convolutions; runs no model.

The gradients then say only roughly where a token looks. If they say that the tokens follow the picture row by row, the
grid is that of the picture's shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ercr.models.generic.cells import Placement, Seen, place
from ercr.models.generic.charts import float_leaves
from ercr.models.generic.owners import Owners

_FOLLOWS = 0.8  # correlation between where a pixel lies and the tokens that it reaches


def place_by_shape(
    found: Owners, x: Tensor, y: Tensor, pixels: dict[str, Any], ids: Tensor, image_token: int, size: tuple[int, int]
) -> Placement | None:
    """An even grid over the picture as the tower gets it, or None if the tokens do not follow it."""
    leaves = float_leaves(pixels)
    tokens = (ids == image_token).nonzero()[:, 0]
    if len(leaves) != 1 or leaves[0].ndim < 4 or not len(tokens):
        return None
    *_, height, width = leaves[0].shape
    rows = round((len(tokens) * height / width) ** 0.5)
    if leaves[0].numel() != 3 * height * width or not rows or len(tokens) % rows:
        return None
    columns = len(tokens) // rows
    expected = _token_of_pixel(height, width, rows, columns)
    reached = (found.weighted - int(tokens[0])).view(3, height, width)
    weight = found.strength.view(3, height, width) ** 2
    cell = _block_means(reached * weight, rows, columns) / _block_means(weight, rows, columns).clamp(min=1e-30)
    across, down = x.view(3, height, width)[0, 0], y.view(3, height, width)[0, :, 0]
    if not _follows(cell, _block_means(expected.expand(3, -1, -1), rows, columns)):
        return None
    at_x = _means(across, columns).repeat(rows)
    at_y = _means(down, rows).repeat_interleave(columns)
    known = at_x.isfinite() & at_y.isfinite()
    wide, high = (
        torch.full((int(known.sum()),), float((line[-1] - line[0]).abs()) * count / max(count - 1, 1) / count)
        for line, count in ((_means(across, columns), columns), (_means(down, rows), rows))
    )
    parts = (tokens[known], at_x[known], at_y[known], wide.double(), high.double())
    return place(Seen(*(part.numpy() for part in parts)), size)


def _token_of_pixel(height: int, width: int, rows: int, columns: int) -> Tensor:
    down, across = torch.arange(height) * rows // height, torch.arange(width) * columns // width
    return (down[:, None] * columns + across[None]).double()


def _block_means(values: Tensor, rows: int, columns: int) -> Tensor:
    """Means [rows, columns] over channels and the pixels of each cell."""
    return torch.nn.functional.adaptive_avg_pool2d(values.nan_to_num(0.0).mean(0)[None, None], (rows, columns))[0, 0]


def _means(line: Tensor, count: int) -> Tensor:
    return torch.nn.functional.adaptive_avg_pool1d(line[None, None], count)[0, 0]


def _follows(found: Tensor, expected: Tensor) -> bool:
    # the middle of many rough estimates, not one wild one
    clipped = found.clamp(float(expected.min()), float(expected.max()))
    return bool(np.corrcoef(clipped.flatten().numpy(), expected.flatten().numpy())[0, 1] > _FOLLOWS)
