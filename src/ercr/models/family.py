"""What differs between families of models; each family's own file says it of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from ercr.errors import UnsupportedModel
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.geometry import Geometry
from ercr.image.pieces import Piece
from ercr.models.inputs import Batch, Picture, Prepared, ViewKind
from ercr.models.parts import ModelParts

_FEW_PICTURES = 16  # pictures or tiles up to which a pass of the tower is captured


class Family(ModelParts, ABC):
    """The hooks that a family fills in; what most have in common is written here."""

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    checkpoints: ClassVar[tuple[str, ...]]  # well-known examples, listed by `ercr models`
    steps: ClassVar[bool] = True  # whether `trace/greedy.py` decodes; otherwise the model's own `generate` does

    @property
    def batches(self) -> bool:
        """Whether several samples can share a pass."""
        return True

    def sort(self, sample: Prepared) -> Hashable:
        """What samples must have in common to share a pass."""
        return None

    @classmethod
    def suits(cls, config: Any) -> bool:
        """Whether the adapter is right for a model of one of its types; some types have towers of several kinds."""
        return True

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        """Whether the vision tower takes image tensors of this shape; another family's processor makes others."""
        return True

    @abstractmethod
    def image_inputs(self, image: Picture) -> tuple[dict[str, Tensor], Geometry]:
        """The official image processor's tensors, and where their visual tokens lie on the image."""

    @abstractmethod
    def view_inputs(
        self, image: Picture, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The same for the image shown at another scale."""

    # how an 8-bit picture [3, H, W], resized by the processor, becomes its pixel values; None where only it knows that
    laid_out: ClassVar[Callable[[Any, Tensor], Tensor] | None] = None

    @property
    @abstractmethod
    def image_token(self) -> str:
        """The image token: once per picture in the chat template, and once per visual token in the model's input."""

    @property
    def image_token_id(self) -> int:
        return int(self.config.image_token_id)

    def expand(self, geometry: Geometry) -> str:
        """The text that replaces the chat template's image token of a picture."""
        return self.image_token * geometry.tokens

    def visual_positions(self, ids: Tensor, geometry: Geometry) -> Tensor:
        """Positions of a picture's visual tokens in token ids, in the geometry's order; others have no cell."""
        return (ids == self.image_token_id).nonzero()[:, 0]

    # what differs between families that take clips

    def sample_frames(self, facts: Facts, fps: float | None, num_frames: int | None) -> Sequence[int]:
        """The frames of a video that the family's own rule takes; `fps` and `num_frames` are the user's wishes."""
        raise self._no_clips()

    def clip_inputs(self, clip: LoadedClip) -> tuple[dict[str, Tensor], Piece]:
        """The official video processor's tensors, and where and when their visual tokens lie."""
        raise self._no_clips()

    def clip_view_inputs(
        self, clip: LoadedClip, anchor: Piece, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Piece]:
        """The same for the clip shown at another scale."""
        raise self._no_clips()

    @property
    def video_token(self) -> str | None:
        """What stands for a clip in the chat template."""
        return None

    def expand_clip(self, piece: Piece) -> str:
        """The text that replaces the chat template's token of a clip."""
        return str(self.video_token) * piece.tokens

    def _no_clips(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"{self.family} takes no videos: use another model, or give some of their frames as a list of pictures."
        )

    @property
    def feature_tokens(self) -> tuple[int, ...]:
        """Ids of the tokens that image features replace: first those of pictures, then those of clips."""
        return (self.image_token_id,)

    def position_ids(self, samples: Sequence[Prepared], mask: Tensor) -> Tensor:
        """Rotary positions [B, L] (or [3, B, L]) of left-padded samples."""
        return (mask.cumsum(-1) - 1).clamp(min=0)

    def extra_inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Further model inputs, computed from the padded token ids."""
        return {}

    def tower_inputs(self, image_grids: Tensor) -> Any:
        """What the vision tower derives from the images' grids, computed here so that the device need not be read."""
        return None

    def image_features(self, batch: Batch) -> Tensor:
        """The image features [N, d] of a batch, in the order of its image tokens."""
        few = all(len(value) <= _FEW_PICTURES for value in batch.pixels.values())
        if self.graphs is None or not few:
            return self._features(**batch.pixels)
        key = ("tower", *((name, tuple(value.shape), value.dtype) for name, value in batch.pixels.items()))
        return torch.as_tensor(self.graphs.run(key, batch.pixels, self._features))

    def _features(self, **pixels: Tensor) -> Tensor:
        features = self.model.model.get_image_features(**pixels, return_dict=True).pooler_output
        return torch.cat(list(features)) if isinstance(features, list | tuple) else torch.as_tensor(features)

    @contextmanager
    def view_context(self, kind: ViewKind) -> Iterator[None]:
        """Changes that the model needs while a view of this kind runs; none by default."""
        yield
