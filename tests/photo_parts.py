"""What tests of the model for photographs are made of: the published tower, a tiny language model, a tokenizer."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests import tiny

# the published description of EfficientNet-Lite0: repeats, kernel, stride, expansion, channels in and out
PUBLISHED = (
    "r1_k3_s11_e1_i32_o16",
    "r2_k3_s22_e6_i16_o24",
    "r2_k5_s22_e6_i24_o40",
    "r3_k3_s22_e6_i40_o80",
    "r3_k5_s11_e6_i80_o112",
    "r4_k5_s22_e6_i112_o192",
    "r1_k3_s11_e6_i192_o320",
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<image>\n{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _same(x: Tensor, convolution: nn.Conv2d, stride: int) -> Tensor:
    """TensorFlow's "same": every place is computed, and of even sizes the second of two is kept."""
    y = F.conv2d(x, convolution.weight, padding=convolution.kernel_size[0] // 2, groups=convolution.groups)
    if stride == 1:
        return y
    return y[..., (y.shape[-2] + 1) % 2 :: 2, (y.shape[-1] + 1) % 2 :: 2]


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    def __init__(self, kernel: int, stride: int, expansion: int, narrow: int, out: int) -> None:
        super().__init__()
        wide = narrow * expansion
        self.stride, self.expands, self.skips = stride, expansion > 1, stride == 1 and narrow == out
        if self.expands:
            self._expand_conv, self._bn0 = nn.Conv2d(narrow, wide, 1, bias=False), _norm(wide)
        self._depthwise_conv, self._bn1 = nn.Conv2d(wide, wide, kernel, groups=wide, bias=False), _norm(wide)
        self._project_conv, self._bn2 = nn.Conv2d(wide, out, 1, bias=False), _norm(out)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = F.relu6(self._bn1(_same(y, self._depthwise_conv, self.stride)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.skips else y


class Published(nn.Module):
    """EfficientNet-Lite0 with its batch norms, under the names of the published file."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, bias=False), _norm(32)
        blocks = []
        for line in PUBLISHED:
            repeats, kernel, stride, expansion, narrow, out = map(int, re.findall(r"\d+", line))
            blocks += [
                Block(kernel, 1 if i else stride % 10, expansion, out if i else narrow, out) for i in range(repeats)
            ]
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = nn.Conv2d(320, 1280, 1, bias=False), _norm(1280)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps at strides 16 and 32."""
        x = F.relu6(self._bn0(_same(x, self._conv_stem, 2)))
        maps = {}
        for block in self._blocks:
            x = block(x)
            maps[x.shape[1]] = x
        return maps[112], F.relu6(self._bn1(self._conv_head(x)))


def published(seed: int = 0) -> Published:
    """Random weights and random statistics under which signals neither die nor grow."""
    torch.manual_seed(seed)
    model = Published().eval()
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.normal_(part.weight, std=(2 / part.weight[0].numel()) ** 0.5)
        if isinstance(part, nn.BatchNorm2d):
            for values, low, high in (
                (part.weight.data, 0.8, 1.4),
                (part.bias.data, -0.2, 0.4),
                (part.running_mean, -0.3, 0.3),
                (part.running_var, 0.5, 1.5),
            ):
                values.uniform_(low, high)
    return model


def tokenizer() -> Any:
    return tiny.tokenizer({"start": "<|im_start|>", "eos": "<|im_end|>"}, TEMPLATE, {"image_token": "<image>"})


def llama(tok: Any, seed: int = 0) -> Any:
    """A tiny language model whose states differ from token to token, with fewer keys than queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        **tiny._text(tok, num_hidden_layers=2, head_dim=16, tie_word_embeddings=True),
        rope_parameters={"rope_type": "default", "rope_theta": 5e4},
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
            else:
                parameter.uniform_(0.5, 1.5)
    return model
