"""Resizing on a device gives the very numbers of Pillow and of torch's CPU code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from ercr.image.on_device import DevicePicture
from ercr.image.resampling import resize
from ercr.models.pasting import paste

SIZES = [((40, 61), (77, 30)), ((97, 13), (11, 40)), ((64, 64), (1, 1)), ((1, 5), (9, 2)), ((120, 160), (84, 112))]


def noise(height, width, hard):
    values = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(values > 127, 255, 0).astype(np.uint8) if hard else values


@pytest.mark.parametrize("hard", [False, True])
def test_resizing_has_the_bits_of_both_libraries(hard):
    for size, other in SIZES:
        values = noise(*size, hard)
        pixels = torch.from_numpy(values).permute(2, 0, 1)
        for resample in (Image.Resampling.LANCZOS, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
            expected = np.asarray(Image.fromarray(values).resize(other[::-1], resample))
            found = resize(pixels, other, int(resample), "pillow")
            np.testing.assert_array_equal(found.permute(1, 2, 0).numpy(), expected)
        for resample, mode in ((2, "bilinear"), (3, "bicubic")):
            whole = torch.nn.functional.interpolate(pixels[None], other, mode=mode, antialias=True)[0]
            assert torch.equal(resize(pixels, other, resample, "torch"), whole)


def test_a_picture_on_a_device_does_what_pillows_does():
    image = Image.fromarray(noise(50, 70, False))
    copied = DevicePicture.of(image, torch.device("cpu"))
    assert copied.size == image.size
    pairs = [(image.crop((3, 5, 40, 31)), copied.crop((3, 5, 40, 31)))]
    for canvas, content in (((60, 90), (25, 35)), ((31, 33), (50, 70)), ((40, 20), (21, 33))):
        pairs.append(tuple(paste(one, canvas, content, (1, 200, 77), 3) for one in (image, copied)))
    for expected, found in pairs:
        np.testing.assert_array_equal(found.pixels.permute(1, 2, 0).numpy(), np.asarray(expected))
