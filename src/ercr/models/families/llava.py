"""LLaVA-1.5: one square canvas, filled by a resize and a centre crop, or by padding to a square."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ercr.image.geometry import STRAIGHT, Exact, Geometry, Panel
from ercr.models.base import Adapter
from ercr.models.inputs import ViewKind
from ercr.models.pasting import mean_colour, paste, paste_box
from ercr.models.registry import register

Size = tuple[int, int]  # height, width


@register
class Llava(Adapter):
    family = "LLaVA-1.5"
    model_types = ("llava",)
    checkpoints = ("llava-hf/llava-1.5-7b-hf", "llava-hf/llava-1.5-13b-hf")

    @classmethod
    def suits(cls, config: Any) -> bool:
        """Towers with one square canvas; others (such as Pixtral's) take pictures of any shape."""
        vision = config.vision_config
        return getattr(vision, "any_size", False) or vision.model_type in ("clip_vision_model", "siglip_vision_model")

    @property
    def image_token(self) -> str:
        return str(getattr(self.tokenizer, "image_token", None) or "<image>")

    def expand(self, geometry: Geometry) -> str:
        return self.image_token * (geometry.tokens + self._class_tokens)

    def visual_positions(self, ids: Tensor, geometry: Geometry) -> Tensor:
        return super().visual_positions(ids, geometry)[self._class_tokens :]

    @property
    def _class_tokens(self) -> int:
        """1 if the tower's class token stays before the patches; the default strategy drops it."""
        if self.config.vision_feature_select_strategy == "default":
            return 0
        tower = self.model.model.vision_tower
        return int(any(name.endswith("class_embedding") for name, _ in tower.named_parameters()))

    @property
    def mlp_cam_block(self) -> int:
        return {32: 13, 40: 16}.get(len(self.blocks), super().mlp_cam_block)

    @property
    def _patch(self) -> int:
        return int(self.config.vision_config.patch_size)

    @property
    def _step(self) -> int:
        """Pixels by which canvases grow: what the tower states, where its usual canvas keeps to that; else a patch."""
        stated = int(getattr(self.config.vision_config, "canvas_multiple", self._patch))
        return self._patch if self._edge % stated else stated

    @property
    def _pads(self) -> bool:
        return bool(getattr(self.image_processor, "do_pad", False))

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        vision, shape = self.config.vision_config, pixels["pixel_values"].shape
        size = shape[-1] if getattr(vision, "any_size", False) else vision.image_size
        return len(shape) == 4 and shape[0] == 1 and shape[-2:] == (size, size)

    def image_inputs(self, image: Image.Image) -> tuple[dict[str, Tensor], Geometry]:
        return self._official(image, self._edge)

    def view_inputs(
        self, image: Image.Image, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The scaled image on the fixed canvas, or a smaller canvas if asked for or if the tower takes any size."""
        if kind == "interpolate" or getattr(self.config.vision_config, "any_size", False):
            return self._official(image, max(1, round(self._edge // self._step * scale)) * self._step)
        canvas = (anchor.grid[0] * self._patch, anchor.grid[1] * self._patch)
        height, width = self._on_canvas(image, self._edge)
        content = max(1, round(height * scale)), max(1, round(width * scale))
        sheet = paste(image, canvas, content, mean_colour(self.image_processor), int(self.image_processor.resample))
        batch = self.image_processor(
            images=[sheet], do_resize=False, do_center_crop=False, do_pad=False, return_tensors="pt"
        )
        box = paste_box((image.height, image.width), canvas, content)
        return {"pixel_values": batch["pixel_values"]}, self._geometry(image, canvas, box)

    def _official(self, image: Image.Image, edge: int) -> tuple[dict[str, Tensor], Geometry]:
        """The image on a canvas of `edge` x `edge` pixels, made by the image processor."""
        size = {"shortest_edge": edge} if self._keeps_aspect else {"height": edge, "width": edge}
        crop = {"height": edge, "width": edge}
        options = {} if edge == self._edge else {"size": size, "crop_size": crop}
        pixels = torch.as_tensor(self.image_processor(images=[image], return_tensors="pt", **options)["pixel_values"])
        canvas = (int(pixels.shape[-2]), int(pixels.shape[-1]))
        return {"pixel_values": pixels}, self._geometry(image, canvas, self._box(image, canvas, edge))

    def laid_out(self, picture: Tensor) -> Tensor:
        """The middle of the picture [1, 3, edge, edge]."""
        top, left = ((side - self._edge) // 2 for side in picture.shape[1:])
        return picture[None, :, top : top + self._edge, left : left + self._edge]

    def _geometry(self, image: Image.Image, canvas: Size, box: Exact) -> Geometry:
        lean = getattr(self.model.model.vision_tower, "lean", None)
        grid = canvas[0] // self._patch, canvas[1] // self._patch
        # pixels beyond the last whole patch reach no token: 6 of 384 with patches of 14
        left, top, right, bottom = box
        box = (
            left,
            top,
            left + (right - left) * Fraction(grid[1] * self._patch, canvas[1]),
            top + (bottom - top) * Fraction(grid[0] * self._patch, canvas[0]),
        )
        return Geometry((image.height, image.width), (Panel(grid, box, lean(canvas) if lean else STRAIGHT),))

    def _box(self, image: Image.Image, canvas: Size, edge: int) -> Exact:
        """Where the canvas lies in the original, with the processor's integer rounding: pad, resize, centre crop."""
        frame, (top, left) = self._padded(image)
        resized = self._resized(frame, edge)
        y0, x0 = (resized[0] - canvas[0]) // 2, (resized[1] - canvas[1]) // 2
        y, x = Fraction(frame[0], resized[0]), Fraction(frame[1], resized[1])
        return (x0 * x - left, y0 * y - top, (x0 + canvas[1]) * x - left, (y0 + canvas[0]) * y - top)

    def _padded(self, image: Image.Image) -> tuple[Size, Size]:
        """Size after padding to a square (if the processor pads), and the image's top left corner in it."""
        if not self._pads:
            return (image.height, image.width), (0, 0)
        side = max(image.height, image.width)
        return (side, side), ((side - image.height) // 2, (side - image.width) // 2)

    def _resized(self, size: Size, edge: int) -> Size:
        """Size after the processor's resize, before its crop."""
        height, width = size
        if not self._keeps_aspect:
            return edge, edge
        if width <= height:
            return int(edge * height / width), edge
        return edge, int(edge * width / height)

    def _on_canvas(self, image: Image.Image, edge: int) -> tuple[float, float]:
        """Height and width of the whole image, in canvas pixels, before any crop."""
        frame, _ = self._padded(image)
        resized = self._resized(frame, edge)
        return image.height * resized[0] / frame[0], image.width * resized[1] / frame[1]

    @property
    def _keeps_aspect(self) -> bool:
        return self._size_entry("shortest_edge") is not None

    @property
    def _edge(self) -> int:
        edge = self._size_entry("shortest_edge") or self._size_entry("height")
        assert edge is not None, "an image processor has a size"
        return edge

    def _size_entry(self, key: str) -> int | None:
        size = self.image_processor.size
        value = size.get(key) if hasattr(size, "get") else getattr(size, key, None)
        return None if value is None else int(value)

    @contextmanager
    def view_context(self, kind: ViewKind) -> Iterator[None]:
        if kind != "interpolate":
            yield
            return
        tower = self.model.model.vision_tower
        handle = tower.register_forward_pre_hook(
            lambda module, args, kwargs: (args, {**kwargs, "interpolate_pos_encoding": True}), with_kwargs=True
        )
        try:
            yield
        finally:
            handle.remove()
