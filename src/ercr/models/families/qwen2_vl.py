"""Qwen2-VL and Qwen2.5-VL: dynamic resolution, 2 x 2 patches merged into one token, three-axis rotary positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ercr.errors import ImageError
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.geometry import Geometry, Panel
from ercr.image.pieces import Piece, pieces_of
from ercr.image.sending import sent
from ercr.models.base import Adapter
from ercr.models.inputs import Batch, Picture, Prepared, ViewKind
from ercr.models.packed import packs
from ercr.models.registry import register

_COMMON = (*range(512, 4097, 512), *range(5120, 12289, 1024))  # patches that captured passes are padded to
_PER_WINDOW = 16  # patches; a captured pass has room for windows with so many on average
_FEW = 17  # pictures that a captured pass has room for
_MAX_ASPECT = 200  # the family's image processor refuses longer sides
_FRAMES = (4, 768)  # fewest and most frames of a clip that the family's video processor takes, if it says nothing
_RATE = 2.0  # frames a second that are taken of a clip, as the family's own utility does
_LIMITS = (128 * 28 * 28, 28 * 28 * 768)  # fewest and most pixels of a clip's frame, if nothing else is said
Size = tuple[int, int]  # height, width


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
        """Resize by the scale, then by the family's own rule; this family needs no padding."""
        size, limits = self._view_size((image.height, image.width), anchor, scale)
        return self._process(self._resized(image, size), image.size, {"size": limits})

    def _view_size(self, own: Size, anchor: Geometry, scale: float) -> tuple[Size, dict[str, int]]:
        """Height and width of a view, and pixel limits that keep them.

        The processor's pixel limits would undo the scale, so they are lifted. If they determined the anchor's size,
        the anchor's size is scaled instead of the picture's.
        """
        cell = self._cell
        unlimited = tuple(max(cell, round(side / cell) * cell) for side in own)
        anchor_size = (anchor.grid[0] * cell, anchor.grid[1] * cell)
        height, width = (max(1, round(side * scale)) for side in (own if unlimited == anchor_size else anchor_size))
        # rounding must not make a long image too narrow for the family
        height, width = max(height, -(-width // _MAX_ASPECT)), max(width, -(-height // _MAX_ASPECT))
        most = (height + cell) * (width + cell)  # sides are rounded to whole cells, so the area may grow
        return (height, width), {"shortest_edge": cell * cell, "longest_edge": most}

    def _resized(self, image: Image.Image, size: Size) -> Image.Image:
        return image.resize((size[1], size[0]), resample=Image.Resampling(int(self.image_processor.resample)))

    def _process(
        self, image: Image.Image, original: tuple[int, int], options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], Geometry]:
        self._refuse_narrow(*original)
        batch = self.image_processor(images=[image], return_tensors="pt", **(options or {}))
        pixels = {"pixel_values": batch["pixel_values"], "image_grid_thw": batch["image_grid_thw"]}
        return pixels, self._geometry(original, batch["image_grid_thw"][0])

    def laid_out(self, picture: Tensor) -> Tensor:
        """Patches [n, 3 * frames * p * p] of a picture, cell by cell; a picture counts as two equal frames."""
        side, merge = int(self.image_processor.patch_size), self._merge
        rows, columns = (length // (merge * side) for length in picture.shape[1:])
        parts = picture.reshape(3, rows, merge, side, columns, merge, side).permute(1, 4, 2, 5, 0, 3, 6)
        frames = parts[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, self._frames_in_token, -1, -1)
        return frames.reshape(-1, 3 * self._frames_in_token * side**2)

    def _geometry(self, original: tuple[int, int], patches: Tensor) -> Geometry:
        (width, height), (_, rows, columns) = original, (int(n) for n in patches)
        panel = Panel((rows // self._merge, columns // self._merge), (0.0, 0.0, float(width), float(height)))
        return Geometry((height, width), (panel,))

    def _refuse_narrow(self, width: int, height: int) -> None:
        if max(width, height) > _MAX_ASPECT * min(width, height):
            raise ImageError(
                f"The image has {width} x {height} pixels; {self.family} takes sides up to {_MAX_ASPECT}:1: crop it."
            )

    # clips: a token covers two frames

    @property
    def video_token(self) -> str:
        return str(getattr(self.tokenizer, "video_token", None) or "<|video_pad|>")

    @property
    def feature_tokens(self) -> tuple[int, ...]:
        return self.image_token_id, int(self.config.video_token_id)

    def sample_frames(self, facts: Facts, fps: float | None, num_frames: int | None) -> Sequence[int]:
        """An even number of frames at equal distances, by default two a second."""
        pair, stated = self._frames_in_token, self.video_processor
        count = num_frames or (None if fps else getattr(stated, "num_frames", None))
        if facts.frames < pair:
            return range(facts.frames)
        if count is not None:
            wanted: float = round(min(count, facts.frames) / pair) * pair
        else:
            least = int(getattr(stated, "min_frames", None) or _FRAMES[0])
            most = int(getattr(stated, "max_frames", None) or _FRAMES[1])
            most = min(most, facts.frames) // pair * pair
            rate = fps or getattr(stated, "fps", None) or _RATE
            wanted = min(max(facts.seconds * rate, least), most)
        wanted = max(math.floor(wanted / pair), 1) * pair
        return [int(i) for i in torch.arange(0, facts.frames, facts.frames / wanted).int()]

    def clip_inputs(self, clip: LoadedClip) -> tuple[dict[str, Tensor], Piece]:
        frames = clip.frames if callable(self.video_processor) else self.frames(clip)
        return self._process_clip(clip, frames, {"size": self._clip_limits(len(clip.frames))})

    def clip_view_inputs(
        self, clip: LoadedClip, anchor: Piece, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Piece]:
        """Every frame resized by the scale, then by the family's own rule."""
        size, limits = self._view_size(clip.size, anchor.geometry, scale)
        frames = clip.frames if callable(self.video_processor) else self.frames(clip)
        return self._process_clip(clip, [self._resized(frame, size) for frame in frames], {"size": limits})

    def _process_clip(
        self, clip: LoadedClip, frames: Sequence[Picture], options: dict[str, Any]
    ) -> tuple[dict[str, Tensor], Piece]:
        self._refuse_narrow(*clip.frames[0].size)
        if callable(self.video_processor):
            video = np.stack([np.asarray(frame) for frame in frames])
            if hasattr(self.video_processor, "cap_pixels_per_frame"):
                options = {**options, "cap_pixels_per_frame": False}  # the limits have it already
            batch = self.video_processor(videos=[video], do_sample_frames=False, return_tensors="pt", **options)
            values, patches = batch["pixel_values_videos"], batch["video_grid_thw"]
        else:
            values, patches = self._from_pictures(frames, options)
        pixels = {"pixel_values_videos": values, "video_grid_thw": patches}
        pair, times = self._frames_in_token, clip.times
        if hasattr(self.config.vision_config, "tokens_per_second"):
            rate = len(times) / clip.facts.frames * clip.facts.fps
            pixels["second_per_grid_ts"] = torch.tensor([pair / rate])
        shown = tuple(times[first : first + pair] for first in range(0, len(times), pair))
        return pixels, Piece(self._geometry(clip.frames[0].size, patches[0]), shown, clip.end)

    def _from_pictures(self, frames: Sequence[Picture], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """A clip's patches from those of its frames, for installations without torchvision's video processor.

        The image processor shows a picture as two equal frames, so the first of one and the second of the next one
        make a token of both; the last frame of an odd number stands twice.
        """
        batch = self.image_processor(images=list(frames), return_tensors="pt", **options)
        _, rows, columns = (int(n) for n in batch["image_grid_thw"][0])
        side, pair = int(self.image_processor.patch_size), self._frames_in_token
        values = torch.as_tensor(batch["pixel_values"]).reshape(len(frames), rows * columns, -1, pair, side, side)
        values = torch.cat([values, values[-1:].expand(-len(frames) % pair, *values.shape[1:])])
        together = torch.stack([values[i::pair, :, :, i] for i in range(pair)], dim=3)  # [t, patches, 3, pair, p, p]
        return together.flatten(0, 1).flatten(1), torch.tensor([[len(together), rows, columns]])

    def _clip_limits(self, frames: int) -> dict[str, int]:
        """Fewest and most pixels of a frame."""
        stated = self.video_processor
        size = getattr(stated, "size", None) or {}
        size = size if hasattr(size, "get") else vars(size)
        least = getattr(stated, "min_pixels", None) or size.get("shortest_edge") or _LIMITS[0]
        most = getattr(stated, "max_pixels", None) or size.get("longest_edge") or _LIMITS[1]
        if getattr(stated, "cap_pixels_per_frame", None):
            budget = int(int(getattr(stated, "max_video_tokens", 128_000)) * self._cell**2 * 0.9)
            most = max(min(most, budget * self._frames_in_token // frames), int(least * 1.05))
        return {"shortest_edge": int(least), "longest_edge": int(most)}

    @property
    def _frames_in_token(self) -> int:
        return int(self.image_processor.temporal_patch_size)

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
        values, prepared = _joined(batch.pixels, "pixel_values", "pixel_values_videos"), batch.tower_inputs
        values, grids = values.type(tower.dtype), _joined(batch.pixels, "image_grid_thw", "video_grid_thw")
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
        kinds = sum((kind + 1) * (ids == token).int() for kind, token in enumerate(self.feature_tokens))
        return {"mm_token_type_ids": torch.as_tensor(kinds)}

    def position_ids(self, samples: Sequence[Prepared], mask: Tensor) -> Tensor:
        """Temporal, row and column positions [3, B, L].

        Computed here, because the model would store its own, and a view that runs while an answer is generated would
        overwrite them.
        """
        positions = torch.zeros(3, *mask.shape, dtype=torch.long)
        for row, sample in enumerate(samples):
            clips = sample.cells and any(piece.clip for piece in pieces_of(sample.geometry))
            own = self._official_positions(sample) if clips else _three_axes(sample)
            positions[:, row, mask.shape[1] - len(sample.input_ids) :] = own
        return positions.to(mask.device)

    def _official_positions(self, sample: Prepared) -> Tensor:
        """The model's own positions [3, L], because versions differ in how a clip's seconds become positions."""
        names = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
        inputs = {name: sample.pixels[name].cpu() for name in names if name in sample.pixels}
        ids = sample.input_ids[None]
        found, _ = self.model.model.get_rope_index(ids, self.extra_inputs(ids)["mm_token_type_ids"], **inputs)
        return torch.as_tensor(found)[:, 0]


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


def _three_axes(sample: Prepared) -> Tensor:
    """Positions [3, L]: text advances on all three axes; the cells of a picture share a time and have row and column.

    What follows a picture goes on behind its longer side.
    """
    if not sample.cells:
        return torch.arange(len(sample.input_ids)).expand(3, -1)
    parts, cursor, start = list[Tensor](), 0, 0  # how far tokens and positions have come
    pieces = pieces_of(sample.geometry)
    firsts = sample.visual[[0, *accumulate(piece.tokens for piece in pieces[:-1])]].tolist()
    for piece, first in zip(pieces, firsts, strict=True):
        rows, columns = piece.geometry.grid
        cells = torch.arange(rows * columns)
        parts.append((torch.arange(first - cursor) + start).expand(3, -1))
        start += first - cursor
        parts.append(torch.stack([torch.zeros_like(cells), cells // columns, cells % columns]) + start)
        cursor, start = first + len(cells), start + max(rows, columns)
    parts.append((torch.arange(len(sample.input_ids) - cursor) + start).expand(3, -1))
    return torch.cat(parts, dim=1)


def _joined(pixels: dict[str, Tensor], pictures: str, clips: str) -> Tensor:
    """Inputs of pictures, then those of clips."""
    there = [pixels[name] for name in (pictures, clips) if name in pixels]
    return there[0] if len(there) == 1 else torch.cat(there)
