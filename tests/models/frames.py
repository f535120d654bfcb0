"""Which frames and which places of a clip each visual token shows, found by painting; used by tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.models.chat import as_messages
from ercr.trace.tokens import pad_token

_LEVELS = (40, 215)  # brightness of the first and the last frame of the ramp
_COLOUR = (250, 10, 90)
_MOST = 4  # blocks that are painted on each frame


def check_frames(adapter: Any, frames: int = 5, size: tuple[int, int] = (88, 60)) -> float:
    """Painting one frame of a ramp over time changes the tokens of its slice alone.

    Returns for which share of painted cells the token that changed most is the cell's own.
    """
    levels = np.linspace(*_LEVELS, frames).astype(np.uint8)
    ramp = [Image.fromarray(np.full((size[1], size[0], 3), level)) for level in levels]
    clip = LoadedClip(tuple(ramp), tuple(range(frames)), Facts(frames, 2.0, (size[1], size[0])))
    before, piece = _features(adapter, clip)
    cells, found = _cells(piece.geometry), list[bool]()
    for frame, slice_ in enumerate(piece.slice_of_frame):

        def change(shown: Image.Image, frame: int = frame) -> torch.Tensor:
            painted = tuple(shown if at == frame else own for at, own in enumerate(ramp))
            after, _ = _features(adapter, replace(clip, frames=painted))
            return (after - before).norm(dim=-1).view(piece.slices, -1)

        whole = change(Image.new("RGB", size, _COLOUR))
        assert (whole.amax(-1) > 1e-6).nonzero()[:, 0].tolist() == [slice_], (frame, whole.amax(-1))
        for cell in range(frame % len(cells), len(cells), max(len(cells) // _MOST, 1)):
            at, box = cells[cell]
            block = ramp[frame].copy()
            block.paste(_COLOUR, box)
            found.append(int(change(block).argmax()) == slice_ * whole.shape[1] + at)
    return float(np.mean(found))


def _cells(geometry: Any) -> list[tuple[int, tuple[int, int, int, int]]]:
    """The cells that lie on the picture, each with its rectangle in pixels."""
    (rows, columns), (height, width) = geometry.grid, geometry.size
    left, top, right, bottom = geometry.box
    tall, wide = (bottom - top) / rows, (right - left) / columns
    found = []
    for row in range(rows):
        for column in range(columns):
            x, y = left + column * wide, top + row * tall
            if geometry.valid[row, column]:
                box = (max(round(x), 0), max(round(y), 0), min(round(x + wide), width), min(round(y + tall), height))
                found.append((row * columns + column, box))
    return found


def _features(adapter: Any, clip: LoadedClip) -> tuple[torch.Tensor, Any]:
    """What the decoder is given at the clip's visual tokens [N, d], in the geometry's order, and the clip's piece."""
    prepared = adapter.prepare([clip], as_messages("What happens?", ["video"]))
    inputs = adapter.decoder_inputs(adapter.pack([prepared], pad_token(adapter)))
    return inputs["inputs_embeds"][0, prepared.visual].detach().double(), prepared.geometry.pieces[0]
