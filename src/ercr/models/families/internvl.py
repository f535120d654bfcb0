"""InternVL 3 and 3.5 in their Hugging Face form: square tiles, a thumbnail, 2 x 2 pixel shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.geometry import Exact, Geometry, Panel
from ercr.image.pieces import Piece
from ercr.models.base import Adapter
from ercr.models.inputs import ViewKind
from ercr.models.pasting import mean_colour, paste, paste_box
from ercr.models.registry import register

_FRAMES = 8  # that are taken of a clip if nothing else is said
Size = tuple[int, int]  # height, width


@register
class InternVL(Adapter):
    family = "InternVL"
    model_types = ("internvl",)
    checkpoints = ("OpenGVLab/InternVL3-2B-hf", "OpenGVLab/InternVL3-8B-hf", "OpenGVLab/InternVL3_5-2B-HF")

    @property
    def image_token(self) -> str:
        return str(getattr(self.tokenizer, "context_image_token", None) or "<IMG_CONTEXT>")

    def expand(self, geometry: Geometry) -> str:
        start = getattr(self.tokenizer, "start_image_token", None) or "<img>"
        end = getattr(self.tokenizer, "end_image_token", None) or "</img>"
        return f"{start}{self.image_token * geometry.tokens}{end}"

    @property
    def video_token(self) -> str:
        return str(getattr(self.tokenizer, "video_token", None) or "<video>")

    def expand_clip(self, piece: Piece) -> str:
        """A clip is its frames as pictures, with their numbers."""
        frame = self.expand(piece.geometry)
        return "\n".join(f"Frame{number}: {frame}" for number in range(1, piece.slices + 1))

    @property
    def _tile(self) -> Size:
        size: Any = self.image_processor.size
        return int(size["height"]), int(size["width"])

    def _grid(self, canvas: Size) -> Size:
        """Rows and columns of visual tokens in a tile: its patches, merged by the pixel shuffle."""
        patch = self.config.vision_config.patch_size
        patch_h, patch_w = patch if isinstance(patch, list | tuple) else (patch, patch)
        ratio = self.config.downsample_ratio
        return int(canvas[0] // patch_h * ratio), int(canvas[1] // patch_w * ratio)

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        size = self.config.vision_config.image_size
        canvas = tuple(size) if isinstance(size, list | tuple) else (size, size)
        return pixels["pixel_values"].shape[-2:] == canvas

    def image_inputs(self, image: Image.Image) -> tuple[dict[str, Tensor], Geometry]:
        """The image resized to rows x columns tiles, then a thumbnail if there is more than one tile."""
        # tiling is stated, because the processor class turns it on whatever the image processor's file says
        batch = self.image_processor(images=[image], crop_to_patches=self._tiles, return_tensors="pt")
        rows, columns = layout = self._layout(image)
        whole: Exact = (Fraction(0), Fraction(0), Fraction(image.width), Fraction(image.height))
        boxes = _split(whole, rows, columns) + ([whole] if rows * columns > 1 else [])
        pixels = torch.as_tensor(batch["pixel_values"])
        assert len(pixels) == len(boxes), "_layout must choose the same tiles as the processor"
        return {"pixel_values": pixels}, self._geometry(image, self._tile, boxes, layout)

    def view_inputs(
        self, image: Image.Image, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The scaled image on the same tiled canvas, or the same layout of smaller tiles."""
        if kind == "interpolate":
            return self._pasted(image, anchor, self._smaller_tile(scale), 1.0)
        return self._pasted(image, anchor, self._tile, scale)

    def laid_out(self, picture: Tensor) -> Tensor:
        """The tiles [n, 3, H, W] of a canvas, row by row; a smaller picture is a tile."""
        height, width = self._tile
        whole = picture.shape[1] % height == 0 == picture.shape[2] % width
        h, w = (height, width) if whole else picture.shape[1:]
        parts = picture.reshape(3, picture.shape[1] // h, h, picture.shape[2] // w, w)
        return parts.permute(1, 3, 0, 2, 4).flatten(0, 1)

    # clips: every frame is a picture of one tile

    def sample_frames(self, facts: Facts, fps: float | None, num_frames: int | None) -> Sequence[int]:
        """Frames from the middles of equal parts of the clip."""
        stated = self.video_processor
        count = num_frames or (None if fps else getattr(stated, "num_frames", None))
        if count is None:
            rate = fps or getattr(stated, "fps", None)
            count = _FRAMES if rate is None else int(facts.seconds * rate)
        count = min(max(int(count), 1), facts.frames)
        shift: Any = getattr(stated, "initial_shift", True)
        first = facts.frames / count / 2 if shift is True else float(shift or 0)
        return [int(i) for i in torch.arange(first, facts.frames, facts.frames / count).int()]

    def clip_inputs(self, clip: LoadedClip) -> tuple[dict[str, Tensor], Piece]:
        if callable(self.video_processor):
            video = np.stack([np.asarray(frame) for frame in clip.frames])
            batch = self.video_processor(videos=[video], do_sample_frames=False, return_tensors="pt")
            pixels = torch.as_tensor(batch["pixel_values_videos"])[0]
        else:
            batch = self.image_processor(images=self.frames(clip), crop_to_patches=False, return_tensors="pt")
            pixels = torch.as_tensor(batch["pixel_values"])
        frame = clip.frames[0]
        whole: Exact = (Fraction(0), Fraction(0), Fraction(frame.width), Fraction(frame.height))
        return {"pixel_values": pixels}, _of_clip(clip, self._geometry(frame, self._tile, [whole], (1, 1)))

    def clip_view_inputs(
        self, clip: LoadedClip, anchor: Piece, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Piece]:
        views = [self.view_inputs(frame, anchor.geometry, scale, kind) for frame in self.frames(clip)]
        return {"pixel_values": torch.cat([pixels["pixel_values"] for pixels, _ in views])}, _of_clip(clip, views[0][1])

    def _pasted(
        self, image: Image.Image, anchor: Geometry, tile: Size, scale: float
    ) -> tuple[dict[str, Tensor], Geometry]:
        rows, columns = anchor.layout
        canvas, box = self._sheet(image, (rows * tile[0], columns * tile[1]), scale)
        sheets, boxes = _cut(canvas, rows, columns), _split(box, rows, columns)
        if len(anchor.panels) > rows * columns:
            thumbnail, box = self._sheet(image, tile, scale)
            sheets, boxes = [*sheets, thumbnail], [*boxes, box]
        batch = self.image_processor(images=sheets, do_resize=False, crop_to_patches=False, return_tensors="pt")
        pixels = torch.as_tensor(batch["pixel_values"])
        return {"pixel_values": pixels}, self._geometry(image, tile, boxes, anchor.layout)

    def _geometry(self, image: Image.Image, tile: Size, boxes: list[Exact], layout: Size) -> Geometry:
        grid = self._grid(tile)
        return Geometry((image.height, image.width), tuple(Panel(grid, box) for box in boxes), layout)

    def _sheet(self, image: Image.Image, canvas: Size, scale: float) -> tuple[Image.Image, Exact]:
        content = max(1, round(canvas[0] * scale)), max(1, round(canvas[1] * scale))
        colour = mean_colour(self.image_processor)
        sheet = paste(image, canvas, content, colour, int(self.image_processor.resample))
        return sheet, paste_box((image.height, image.width), canvas, content)

    def _smaller_tile(self, scale: float) -> Size:
        tile_h, tile_w = self._tile
        rows, columns = self._grid(self._tile)
        return max(1, round(rows * scale)) * (tile_h // rows), max(1, round(columns * scale)) * (tile_w // columns)

    @property
    def _tiles(self) -> bool:
        return int(self.image_processor.max_patches) > 1

    def _layout(self, image: Image.Image) -> Size:
        """Rows and columns of tiles by the family's rule: nearest aspect ratio, then more tiles for a large image."""
        if not self._tiles:
            return (1, 1)
        tile_h, tile_w = self._tile
        least, most = int(self.image_processor.min_patches), int(self.image_processor.max_patches)
        # in the processor's order: of two equally good shapes, the later one wins only if the image is large enough
        shapes = sorted(
            ((c, r) for c in range(1, most + 1) for r in range(1, most + 1) if least <= c * r <= most),
            key=lambda shape: shape[0] * shape[1],
        )
        aspect, area = image.width / image.height, image.width * image.height
        best, gap = (1, 1), float("inf")
        for columns, rows in shapes:
            difference = abs(aspect - columns / rows)
            large_enough = area > 0.5 * tile_h * tile_w * columns * rows
            if difference < gap or (difference == gap and large_enough):
                best, gap = (columns, rows), difference
        return best[1], best[0]


def _of_clip(clip: LoadedClip, geometry: Geometry) -> Piece:
    return Piece(geometry, tuple((time,) for time in clip.times), clip.end)


def _cut(sheet: Image.Image, rows: int, columns: int) -> list[Image.Image]:
    w, h = sheet.width // columns, sheet.height // rows
    return [sheet.crop((c * w, r * h, (c + 1) * w, (r + 1) * h)) for r in range(rows) for c in range(columns)]


def _split(box: Exact, rows: int, columns: int) -> list[Exact]:
    """Equal parts of a rectangle, row by row."""
    left, top, right, bottom = box
    w, h = (right - left) / columns, (bottom - top) / rows
    return [
        (left + c * w, top + r * h, left + (c + 1) * w, top + (r + 1) * h) for r in range(rows) for c in range(columns)
    ]
