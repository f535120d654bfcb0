"""A picture whose pixels lie on a device, with the few operations of Pillow's pictures that views are made with.

Its numbers are Pillow's, to the bit. Nothing here copies pixels back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ercr.image.resampling import FILTERS, resize
from ercr.image.sending import pinned


class DevicePicture:
    """8-bit RGB pixels [3, H, W] on a device."""

    mode = "RGB"

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    @classmethod
    def of(cls, image: Image.Image, device: torch.device) -> DevicePicture:
        """A copy of a picture, in one transfer that is not waited for."""
        return cls.waiting(np.array(image), device).to(device)

    @classmethod
    def waiting(cls, pixels: NDArray[np.uint8], device: torch.device) -> DevicePicture:
        """A picture [H, W, 3] in memory from which the device can copy it; threads may do this."""
        return cls(pinned(torch.from_numpy(pixels), device).permute(2, 0, 1))

    def to(self, device: torch.device) -> DevicePicture:
        """A copy on the device, which is not waited for."""
        return DevicePicture(self.pixels.to(device, non_blocking=True).contiguous())

    @property
    def width(self) -> int:
        return int(self.pixels.shape[2])

    @property
    def height(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, as Pillow has it."""
        return self.width, self.height

    def resize(self, size: Sequence[int], resample: int = Image.Resampling.BICUBIC) -> DevicePicture:
        """At another size (width, height)."""
        if int(resample) not in FILTERS:
            raise ValueError(f"There is no filter {resample} for pictures on a device.")
        return DevicePicture(resize(self.pixels, (int(size[1]), int(size[0])), int(resample), "pillow"))

    def crop(self, box: Sequence[int]) -> DevicePicture:
        """The part of the picture inside a box (left, top, right, bottom) that does not reach beyond it."""
        left, top, right, bottom = box
        return DevicePicture(self.pixels[:, top:bottom, left:right].contiguous())

    def pasted(self, canvas: tuple[int, int], colour: Sequence[int]) -> DevicePicture:
        """The middle of a canvas (height, width) of one colour; what does not fit is cut off."""
        sheet = torch.tensor(colour, dtype=torch.uint8)[:, None, None].to(self.pixels.device, non_blocking=True)
        sheet = sheet.expand(3, *canvas).clone()
        (top, y, rows), (left, x, columns) = (
            _overlap(whole, own) for whole, own in zip(canvas, (self.height, self.width), strict=True)
        )
        sheet[:, top : top + rows, left : left + columns] = self.pixels[:, y : y + rows, x : x + columns]
        return DevicePicture(sheet)


def _overlap(whole: int, own: int) -> tuple[int, int, int]:
    """Where a centred side begins on the canvas, where its visible part begins, and how long that is."""
    begin = (whole - own) // 2
    return max(begin, 0), max(-begin, 0), min(begin + own, whole) - max(begin, 0)
