"""EfficientNet-Lite0 as a vision tower for transformers: each cell of its grid is one visual token.

Mingxing Tan and Quoc Le, EfficientNet (2019), without squeeze-and-excite and with ReLU6. A token concatenates
the features at strides 16 and 32 (through a small neck) with a weighted sum of word vectors: those of the ImageNet
classes that the classifier finds in the cell, and of a few classes that were trained in addition, such as people.
Batch norms are folded into their convolutions.

Padding "same" moves what a convolution of stride 2 sees: on an even number of rows half a row down, on an odd one not.
Trained kernels make up for most of it on even grids. `EfficientNetLiteModel.lean` says what is left.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

# kernel, stride, expansion, channels, repeats
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _MIDDLE, _TOP = 32, 112, 1280
_MIDDLE_BLOCK = 10  # the last block at stride 16
_SURE = 20.0  # a typical logit of a cell that shows a class clearly


class EfficientNetLiteConfig(PretrainedConfig):  # type: ignore[misc]
    model_type = "efficientnet_lite"
    any_size = True  # it has no position embeddings, so the canvas may have any size
    canvas_multiple = 32  # sides of canvases that all strides divide, as in its training: all look alike

    def __init__(
        self, image_size: int = 288, neck_size: int = 1152, word_size: int = 576, classes: int = 1000, learnt: int = 0,
        **options: Any,
    ) -> None:  # fmt: skip
        self.image_size, self.patch_size = image_size, 16
        self.neck_size, self.word_size = neck_size, word_size
        self.classes, self.learnt = classes, learnt  # ImageNet's classes, and the additional ones
        self.hidden_size = neck_size + word_size
        self.num_hidden_layers, self.num_channels = 1, 3
        options.pop("hidden_size", None)
        super().__init__(**options)


def _padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Rows (or columns) that TensorFlow's "same" adds before and behind."""
    added = max((-(-length // stride) - 1) * stride + kernel - length, 0)
    return added // 2, added - added // 2


class _Conv(nn.Conv2d):
    """A convolution with TensorFlow's "same" padding, with which the weights were trained."""

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        if kernel == 1:
            return super().forward(x)
        rows, columns = (_padding(length, kernel, stride) for length in x.shape[-2:])
        return super().forward(F.pad(x, (*columns, *rows)))

    def middle(self) -> tuple[float, float]:
        """Row and column, counted from the first, that the kernel's energy (its squared weights) has in the middle."""
        energy = self.weight.detach().float().square().sum((0, 1)) + 1e-30  # of nothing the middle is the middle
        places = torch.arange(len(energy), device=energy.device)
        down, right = (energy.sum(1 - axis) @ places.float() / energy.sum() for axis in (0, 1))
        return float(down), float(right)


class _Block(nn.Module):
    """Inverted residual block: expand, convolve each channel, project back."""

    def __init__(self, kernel: int, stride: int, expansion: int, narrow: int, out: int) -> None:
        super().__init__()
        wide = narrow * expansion
        self.expand = _Conv(narrow, wide, 1) if expansion > 1 else None
        self.depthwise = _Conv(wide, wide, kernel, stride, groups=wide)
        self.project = _Conv(wide, out, 1)
        self.skip = stride == 1 and narrow == out

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.expand is None else F.relu6(self.expand(x))
        y: Tensor = self.project(F.relu6(self.depthwise(wide)))
        return x + y if self.skip else y


def _doubling(coarse: int, fine: int, like: Tensor) -> Tensor:
    """Bilinear doubling along one axis as a matrix [fine, coarse]; much faster on a GPU than interpolate."""
    at = ((torch.arange(fine, device=like.device) + 0.5) / 2 - 0.5).clamp(0, coarse - 1)
    distance = (at[:, None] - torch.arange(coarse, device=like.device)).abs()
    return (1 - distance).clamp(min=0).to(like.dtype)


class EfficientNetLiteModel(PreTrainedModel):  # type: ignore[misc]
    config_class = EfficientNetLiteConfig
    base_model_prefix = "efficientnet_lite"
    main_input_name = "pixel_values"

    def __init__(self, config: EfficientNetLiteConfig) -> None:
        super().__init__(config)
        self.stem = _Conv(3, _STEM, 3, 2)
        self.blocks = nn.ModuleList()
        narrow = _STEM
        for kernel, stride, expansion, out, repeats in _STAGES:
            for i in range(repeats):
                self.blocks.append(_Block(kernel, stride if i == 0 else 1, expansion, narrow, out))
                narrow = out
        self.head = _Conv(narrow, _TOP, 1)
        classes = config.classes + config.learnt
        self.classifier = nn.Linear(_TOP, classes)
        self.words = nn.Linear(classes, config.word_size, bias=False)
        self.middle_norm, self.top_norm = nn.LayerNorm(_MIDDLE), nn.LayerNorm(_TOP)
        self.neck = nn.Linear(_MIDDLE + _TOP, config.neck_size)
        self.post_init()

    def maps(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        """Features at stride 16, and at stride 32 upsampled to the same grid; each [B, N, c]."""
        x = F.relu6(self.stem(pixel_values))
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == _MIDDLE_BLOCK:
                middle = x
        top = F.relu6(self.head(x))
        # doubled and then cut, not stretched: a coarse cell covers exactly 2 x 2 fine ones
        down = _doubling(top.shape[-2], middle.shape[-2], top)
        across = _doubling(top.shape[-1], middle.shape[-1], top)
        top = down @ top @ across.T
        return middle.flatten(2).transpose(1, 2), top.flatten(2).transpose(1, 2)

    def lean(self, canvas: tuple[int, int]) -> tuple[Fraction, Fraction]:
        """How far down and to the right of their cells' middles the tokens of a canvas look, in cells.

        Paddings and strides say where each kernel lies, its energy where it looks. A token joins two maps as equals,
        so it looks in the middle of both; doubling the coarse one is symmetric.
        """
        return self._lean(canvas[0], 0), self._lean(canvas[1], 1)

    def _lean(self, length: int, axis: int) -> Fraction:
        at, step, beside = 0.5, 1, []  # pixels: where the first place looks, and from one place to the next
        for i, (kernel, stride, middle) in enumerate(self._walk):
            at += (middle[axis] - _padding(length, kernel, stride)[0]) * step
            length, step = -(-length // stride), step * stride
            if i in (1 + _MIDDLE_BLOCK, len(self._walk) - 1):  # the stem is the first
                beside.append(at - step / 2)
        return Fraction(round(100 * sum(beside) / len(beside) / self.config.patch_size), 100)

    @cached_property
    def _walk(self) -> list[tuple[int, int, tuple[float, float]]]:
        """Kernel, stride and the kernel's middle of every convolution that is wider than one place."""
        wide: list[Any] = [self.stem, *(block.depthwise for block in self.blocks)]
        return [(conv.kernel_size[0], conv.stride[0], conv.middle()) for conv in wide]

    def features(self, middle: Tensor, top: Tensor) -> Tensor:
        """The part of a token that does not depend on class names [B, N, neck_size]."""
        return F.gelu(self.neck(torch.cat([self.middle_norm(middle), self.top_norm(top)], -1)))

    def join(self, features: Tensor, logits: Tensor) -> Tensor:
        """Features and the weighted sum of class words of every cell, with more weight if its classes are more certain.

        ImageNet's classes exclude each other, so they share a softmax; the additional ones do not.
        """
        known, learnt = logits[..., : self.config.classes], logits[..., self.config.classes :]
        shares = known.softmax(-1) * (known.logsumexp(-1, keepdim=True) / _SURE)
        named = self.words(torch.cat([shares, learnt.clamp(min=0) / _SURE], -1))
        return torch.cat([features, named], -1)

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        middle, top = self.maps(pixel_values.to(self.stem.weight.dtype))
        hidden = self.join(self.features(middle, top), self.classifier(top))
        return BaseModelOutputWithPooling(last_hidden_state=hidden, hidden_states=(hidden,))


AutoConfig.register(EfficientNetLiteConfig.model_type, EfficientNetLiteConfig, exist_ok=True)
AutoModel.register(EfficientNetLiteConfig, EfficientNetLiteModel, exist_ok=True)
