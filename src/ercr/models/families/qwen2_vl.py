"""Qwen2-VL and Qwen2.5-VL: dynamic resolution, 2 x 2 patches merged into one token, three-axis rotary positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ercr.errors import ImageError
from ercr.image.geometry import Geometry, Panel
from ercr.models.base import Adapter, Batch, Prepared, ViewKind, sent
from ercr.models.packed import packs
from ercr.models.registry import register

_COMMON = (*range(512, 4097, 512), *range(5120, 12289, 1024))  # patches that captured passes are padded to
_PER_WINDOW = 16  # patches; a captured pass has room for windows with so many on average
_FEW = 17  # pictures that a captured pass has room for
_MAX_ASPECT = 200  # the family's image processor refuses longer sides


@register
class Qwen2VL(Adapter):
    family = "Qwen2-VL"
    model_types = ("qwen2_vl", "qwen2_5_vl")
    checkpoints = ("Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2-VL-7B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct")

    @property
    def image_token(self) -> str:
        return str(getattr(self.tokenizer, "image_token", None) or "<|image_pad|>")

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        vision = self.config.vision_config
        channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
        values = channels * vision.temporal_patch_size * vision.patch_size**2  # of a patch
        return bool(pixels["pixel_values"].shape[-1] == values and self._merge == vision.spatial_merge_size)

    def image_inputs(self, image: Image.Image) -> tuple[dict[str, Tensor], Geometry]:
        return self._process(image, image.size)

    def view_inputs(
        self, image: Image.Image, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """Resize by the scale, then by the family's own rule; this family needs no padding.

        The processor's pixel limits would undo the scale, so they are lifted. If they determined the anchor's size,
        the anchor's size is scaled instead of the image's.
        """
        cell = self._cell
        unlimited = tuple(max(cell, round(side / cell) * cell) for side in (image.height, image.width))
        anchor_size = (anchor.grid[0] * cell, anchor.grid[1] * cell)
        base = (image.height, image.width) if unlimited == anchor_size else anchor_size
        height, width = (max(1, round(side * scale)) for side in base)
        # rounding must not make a long image too narrow for the family
        height, width = max(height, -(-width // _MAX_ASPECT)), max(width, -(-height // _MAX_ASPECT))
        scaled = image.resize((width, height), resample=Image.Resampling(int(self.image_processor.resample)))
        most = (height + cell) * (width + cell)  # sides are rounded to whole cells, so the area may grow
        limits = {"shortest_edge": cell * cell, "longest_edge": most}
        return self._process(scaled, image.size, {"size": limits})

    def _process(
        self, image: Image.Image, original: tuple[int, int], options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], Geometry]:
        width, height = original
        if max(original) > _MAX_ASPECT * min(original):
            raise ImageError(
                f"The image has {width} x {height} pixels; {self.family} takes sides up to {_MAX_ASPECT}:1: crop it."
            )
        batch = self.image_processor(images=[image], return_tensors="pt", **(options or {}))
        _, rows, columns = (int(n) for n in batch["image_grid_thw"][0])
        merge = self._merge
        panel = Panel((rows // merge, columns // merge), (0.0, 0.0, float(width), float(height)))
        pixels = {"pixel_values": batch["pixel_values"], "image_grid_thw": batch["image_grid_thw"]}
        return pixels, Geometry((height, width), (panel,))

    @property
    def mlp_cam_block(self) -> int:
        published = {(28, 1536): 25}  # blocks and hidden size of the 2B model
        return published.get((len(self.blocks), self.config.get_text_config().hidden_size), super().mlp_cam_block)

    @property
    def _merge(self) -> int:
        return int(self.image_processor.merge_size)

    @property
    def _cell(self) -> int:
        """Side of a visual token in pixels of the resized image."""
        return int(self.image_processor.patch_size) * self._merge

    def tower_inputs(self, image_grids: Tensor) -> Any:
        tower = self.model.model.visual
        windows = (tower.window_size, tower.patch_size) if hasattr(tower, "window_size") else None
        grids = tuple((int(t), int(h), int(w)) for t, h, w in image_grids.tolist())
        return _tower_inputs(grids, int(tower.spatial_merge_size), windows, self.device)

    @property
    def tower(self) -> nn.Module:
        return self.model.model.visual  # type: ignore[no-any-return]

    def image_features(self, batch: Batch) -> Tensor:
        """The tower's own pass, with positions and boundaries from the CPU."""
        tower: Any = self.tower
        values, prepared = batch.pixels["pixel_values"].type(tower.dtype), batch.tower_inputs
        grids = batch.pixels["image_grid_thw"]
        if not packs(tower):
            return torch.as_tensor(tower(values, grid_thw=grids, **prepared.inputs).pooler_output)

        def features(values: Tensor, grids: Tensor, longest: dict[str, int], **inputs: Tensor) -> Tensor:
            return torch.as_tensor(tower(values, grid_thw=grids, **inputs, **longest).pooler_output)

        common = next((size for size in _COMMON if size > len(values)), 0)
        inputs = _padded(prepared.inputs, common) if self.graphs is not None and common else None
        if inputs is None or len(grids) > _FEW:
            return features(values, grids, prepared.longest, **prepared.inputs)
        # padded to a common number of patches, so that pictures of about this size share a captured pass
        inputs["values"] = F.pad(values, (0, 0, 0, common - len(values)))
        inputs["grids"] = F.pad(grids, (0, 0, 0, _FEW - len(grids)))
        longest = {name: self._window if "window" in name else common for name in prepared.longest}
        key = ("tower", *((name, tuple(value.shape)) for name, value in inputs.items()))
        found = self.graphs.run(key, inputs, lambda **given: features(longest=longest, **given))
        return torch.as_tensor(found[: len(values) // self._merge**2])

    @property
    def _window(self) -> int:
        """Patches in a window of the towers that have windows."""
        tower: Any = self.tower
        return int(tower.window_size // tower.patch_size) ** 2

    def extra_inputs(self, ids: Tensor) -> dict[str, Tensor]:
        return {"mm_token_type_ids": (ids == self.image_token_id).int()}

    def position_ids(self, samples: Sequence[Prepared], mask: Tensor) -> Tensor:
        """Temporal, row and column positions [3, B, L].

        Computed here, because the model would store its own, and a view that runs while an answer is generated would
        overwrite them.
        """
        positions = torch.zeros(3, *mask.shape, dtype=torch.long)
        for row, sample in enumerate(samples):
            length = len(sample.input_ids)
            positions[:, row, mask.shape[1] - length :] = _three_axes(sample, length)
        return positions.to(mask.device)


@dataclass(frozen=True)
class _TowerInputs:
    inputs: dict[str, Tensor]
    longest: dict[str, int]  # of the pictures, and of the windows if there are any


@lru_cache(maxsize=32)
def _tower_inputs(
    grids: tuple[tuple[int, int, int], ...], merge: int, windows: tuple[int, int] | None, device: torch.device
) -> _TowerInputs:
    from transformers import vision_utils

    on_cpu = torch.tensor(grids)
    found = {
        "position_ids": vision_utils.get_vision_position_ids(on_cpu, merge),
        "cu_seqlens": vision_utils.get_vision_cu_seqlens(on_cpu),
    }
    if windows is not None:
        index, edges = vision_utils.get_vision_window_index(on_cpu, merge, *windows)
        found |= {"window_index": index, "cu_window_seqlens": edges}
    inputs = {name: sent(value, device) for name, value in found.items()}
    longest = {
        name.replace("cu_", "max_").replace("seqlens", "seqlen"): int(edges.diff().max())
        for name, edges in found.items()
        if name.startswith("cu_")
    }
    return _TowerInputs(inputs, longest)


def _padded(inputs: dict[str, Tensor], common: int) -> dict[str, Tensor] | None:
    """What the tower is told of its pictures, with one more picture of zeros up to a common number of patches.

    None if there are more pictures, frames or windows than a captured pass has room for.
    """
    rooms = {"cu_seqlens": _FEW + 1, "cu_window_seqlens": common // _PER_WINDOW}
    if any(len(inputs[name]) > room for name, room in rooms.items() if name in inputs):
        return None
    found = {}
    for name, value in inputs.items():
        if name == "position_ids":
            found[name] = F.pad(value, (0, 0, 0, common - len(value)))
        elif name == "window_index":  # of cells
            cells = common * len(value) // len(inputs["position_ids"])
            found[name] = torch.cat([value, torch.arange(len(value), cells, device=value.device)])
        else:  # edges: the picture of zeros, then pictures without patches
            found[name] = F.pad(value, (0, rooms[name] - len(value)), value=common)
    return found


def _three_axes(sample: Prepared, length: int) -> Tensor:
    """Positions [3, length]: text advances on all three axes; image cells share a time and have row and column."""
    if not sample.cells:
        return torch.arange(length).expand(3, -1)
    rows, columns = sample.geometry.grid
    start = int(sample.visual[0])
    cells = torch.arange(rows * columns)
    image = torch.stack([torch.zeros_like(cells), cells // columns, cells % columns]) + start
    after = torch.arange(length - start - len(cells)) + start + max(rows, columns)
    before = torch.arange(start)
    return torch.cat([before.expand(3, -1), image, after.expand(3, -1)], dim=1)
