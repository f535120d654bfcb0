"""Images that are resized on the CPU and normalised on the device, so that 8-bit pixels are copied and not floats.

The official image processors resize, cut into patches, and then rescale and normalise every pixel. The last step maps
each of 256 values per channel to one float, so a lookup table gives the same bits. Only a quarter of the data is
copied, and the CPU has less to do. Bulk runs on a GPU prepare images in this way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

_BLOCK = 28  # side of a block of one value in pixels: large enough that resizing keeps the value inside it


class Uint8Processor:
    """Wraps an image processor and skips rescaling and normalising; everything else is the wrapped processor's."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def __call__(self, **options: Any) -> dict[str, Tensor]:
        batch = dict(self._processor(**options, do_rescale=False, do_normalize=False))
        batch["pixel_values"] = torch.as_tensor(batch["pixel_values"]).to(torch.uint8)
        return batch


def table_is_enough(processor: Any) -> bool:
    """Whether a lookup table can replace the last steps: the processor both rescales and normalises."""
    return bool(getattr(processor, "do_rescale", False) and getattr(processor, "do_normalize", False))


def every_value_image() -> Image.Image:
    """An image in which every 8-bit value fills one block."""
    values = np.arange(256, dtype=np.uint8).reshape(16, 16).repeat(_BLOCK, 0).repeat(_BLOCK, 1)
    return Image.fromarray(np.stack([values] * 3, -1))


def value_table(official: Tensor, raw: Tensor) -> Tensor | None:
    """The lookup table [3, 256] that turns `raw` into `official`, or None if no table does it for every pixel.

    Both are the same image, prepared with and without rescaling and normalising.
    """
    numbers, values = (t.reshape(len(t), 3, -1).transpose(0, 1).flatten(1) for t in (official, raw))
    table = torch.full((3, 256), torch.nan)
    table.scatter_(1, values.long(), numbers.float())
    same = table.gather(1, values.long()) == numbers
    return table if bool(same.all()) and bool(torch.isfinite(table).all()) else None


def normalise_uint8(raw: Tensor, table: Tensor) -> Tensor:
    """8-bit pixels [n, 3 * …] as the floats that the official processor would have made of them."""
    channels = raw.reshape(len(raw), 3, -1)
    rows = torch.arange(3, device=raw.device)[:, None]
    return table[rows, channels.long()].view(raw.shape)
