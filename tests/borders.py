"""Which cells lie on the picture, counted in the pixels that a model gets; and a command that does it for many views.

    python -m tests.borders

A white picture on the canvas shows which pixels belong to it, so that a cell's share is a count of whole pixels.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from PIL import Image

from ercr.image.geometry import Geometry

SCALES = (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)


def on_picture(adapter, size, scales, kind="pad"):
    """Views of a white picture: each one's geometry, and which pixels of its stitched tiles hold the picture."""
    image = Image.new("RGB", (size[1], size[0]), "white")
    _, anchor = adapter.image_inputs(image)
    for scale in scales:
        pixels, geometry = adapter.view_inputs(image, anchor, scale, kind)
        rows, columns = geometry.layout
        tiles = pixels["pixel_values"][: rows * columns, 0]
        tiles = tiles.unflatten(0, (rows, columns)).transpose(1, 2).flatten(2).flatten(0, 1).numpy()
        yield geometry, tiles > _between(adapter.image_processor, tiles.dtype)


def _between(processor, dtype):
    """A number between the mean colour, which the padding has, and white."""
    mean, std = processor.image_mean[0], processor.image_std[0]
    return 255 * (1 + mean) / 2 if dtype == np.uint8 else (1 - mean) / std / 2


def counted(shown, grid):
    """Cells with more than half of their pixels on the picture; the fullest if none has."""
    inside, area = _pixels(shown, grid)
    more = 2 * inside > area
    return more if more.any() else inside == inside.max()


def halved(shown, grid):
    """Whether the picture's border cuts a cell into equal halves."""
    inside, area = _pixels(shown, grid)
    return bool((2 * inside == area).any())


def _pixels(shown, grid):
    rows, columns = grid
    cells = shown.reshape(rows, shown.shape[0] // rows, columns, shown.shape[1] // columns)
    return cells.sum((1, 3)), cells.shape[1] * cells.shape[3]


def centred(shown):
    """Whether the picture lies in the middle to the pixel; an odd remainder puts it half a pixel beside it."""
    return (shown == shown[::-1, ::-1]).all()


def lopsided(geometry: Geometry):
    return bool((geometry.valid != geometry.valid[::-1, ::-1]).any())


def tally(name, views):
    wrong = uneven = middle = total = 0
    for geometry, shown in views:
        total += 1
        wrong += int((geometry.valid != counted(shown, geometry.grid)).any())
        middle += int(centred(shown))
        uneven += int(centred(shown) and lopsided(geometry))
    print(f"{name}: {total} views, {middle} exactly centred; lopsided {uneven}, other cells than counted {wrong}")


def published_llava():
    """LLaVA-1.5's real canvas: 336 pixels, patches of 14."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from ercr.models.families.llava import Llava
    from ercr.models.uint8_pixels import Uint8Processor

    processor = CLIPImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
    config = SimpleNamespace(vision_config=SimpleNamespace(patch_size=14))
    return Llava(SimpleNamespace(config=config), None, Uint8Processor(processor), None)


def main() -> None:
    import ercr
    from ercr.datasets import Scenes

    adapter = ercr.Explainer.from_pretrained("scenes-internvl").adapter
    sizes = [sample.image.size[::-1] for sample in Scenes(40, start=900_000)]
    tally("scenes-internvl at scale 0.5", (v for size in sizes for v in on_picture(adapter, size, (0.5,))))
    tally("scenes-internvl at eight scales", (v for size in sizes for v in on_picture(adapter, size, SCALES)))
    llava, sides = published_llava(), range(200, 720, 10)
    views = (view for h in sides for w in sides for view in on_picture(llava, (h, w), SCALES))
    tally("LLaVA-1.5 at eight scales", views)


if __name__ == "__main__":
    main()
