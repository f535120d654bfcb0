"""The language model as stacked weights with low-rank updates, for training at the speed of the device.

It computes what `transformers`' Llama computes (a test compares them), but holds each kind of weight of all layers in
one tensor: the updates of all layers are then one product, and a step has few enough kernels to be captured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.updates import JOINED

SCALE = 2  # of the updates: with it a rate that suits the other new parts suits them, too


@dataclass(frozen=True)
class Shape:
    heads: int
    groups: int
    width: int  # of a head
    epsilon: float
    theta: float

    @classmethod
    def of(cls, config: Any) -> Shape:
        return cls(
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.rms_norm_eps,
            config.rope_parameters["rope_theta"],
        )


@dataclass
class Cache:
    """What tokens so far left behind, layer by layer, and the updated weights, which stay the same meanwhile."""

    weights: dict[str, tuple[Tensor, ...]]
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def repeat(self, times: int) -> None:
        """Every row so many times, to go on in as many ways."""
        self.keys = [part.repeat_interleave(times, 0) for part in self.keys]
        self.values = [part.repeat_interleave(times, 0) for part in self.values]

    @property
    def length(self) -> int:
        return self.keys[0].shape[2] if self.keys else 0

    def add(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], 2)
            self.values[layer] = torch.cat([self.values[layer], value], 2)
        return self.keys[layer], self.values[layer]


class Decoder(nn.Module):
    """A frozen Llama with trained updates: W + SCALE * outer @ inner for every joined weight of every layer."""

    def __init__(self, llama: Any, rank: int, precision: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.shape, self.precision = Shape.of(llama.config), precision
        layers = llama.model.layers
        self.inner, self.outer = nn.ParameterDict(), nn.ParameterDict()
        for name, parts in JOINED.items():
            rows = [torch.cat([layer.get_submodule(part).weight.data for part in parts]) for layer in layers]
            weight = torch.stack(rows).float()
            self.register_buffer(name, weight, persistent=False)
            self.inner[name] = nn.Parameter(torch.randn(len(layers), rank, weight.shape[2]) / weight.shape[2] ** 0.5)
            self.outer[name] = nn.Parameter(torch.zeros(len(layers), weight.shape[1], rank))
        order, sign = self._rows()
        self.register_buffer("order", order, persistent=False)
        self._keep("sign", sign)
        self._keep("before", torch.stack([layer.input_layernorm.weight.data for layer in layers]))
        self._keep("between", torch.stack([layer.post_attention_layernorm.weight.data for layer in layers]))
        self._keep("last", llama.model.norm.weight.data)
        self._keep("table", llama.get_input_embeddings().weight.data)

    def _keep(self, name: str, value: Tensor) -> None:
        self.register_buffer(name, value.to(self.precision), persistent=False)

    def weights(self) -> dict[str, tuple[Tensor, ...]]:
        """Updated weights by kind, one tensor per layer; unbinding keeps the gradient one tensor per kind."""
        joined = {}
        for name in JOINED:
            update = torch.bmm(self.outer[name].to(self.precision), self.inner[name].to(self.precision))
            whole = (self.get_buffer(name) + SCALE * update).to(self.precision)
            if name == "qkv":
                whole = whole[:, self.order] * self.sign[:, None]
            joined[name] = whole.unbind(0)
        return joined

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Embeddings [B, T, d] to the states behind the final norm; with a cache, of one token behind those before."""
        weights = cache.weights if cache else self.weights()
        past = cache.length if cache else 0
        turn = self._turns(past, past + x.shape[1], x.device)
        size, shape = x.shape[-1:], self.shape
        for i in range(len(self.before)):
            h = F.rms_norm(x, size, self.before[i], shape.epsilon)
            query, key, value = self._heads(F.linear(h, weights["qkv"][i]), turn)
            if cache:
                key, value = cache.add(i, key, value)
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=past == 0)
            x = x + F.linear(seen.transpose(1, 2).flatten(2), weights["out"][i])
            h = F.rms_norm(x, size, self.between[i], shape.epsilon)
            gate, up = F.linear(h, weights["up"][i]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, weights["down"][i])
        return F.rms_norm(x, size, self.last, shape.epsilon)

    def _rows(self) -> tuple[Tensor, Tensor]:
        """Rows of the attention's weight as [queries, keys, both turned by a quarter, values], each per query head.

        Turning and repeating rows of a weight costs nothing beside doing so with the states of every token.
        """
        shape = self.shape
        rows = torch.arange((shape.heads + 2 * shape.groups) * shape.width).view(-1, shape.width)
        query, key, value = rows.split([shape.heads, shape.groups, shape.groups])
        again = shape.heads // shape.groups
        turned = torch.cat([query, key.repeat_interleave(again, 0)])
        half = shape.width // 2
        quarter = torch.cat([turned[:, half:], turned[:, :half]], 1)
        order = torch.cat([turned, quarter, value.repeat_interleave(again, 0)])
        sign = torch.ones(order.shape)
        sign[len(turned) : 2 * len(turned), :half] = -1
        return order.flatten(), sign.flatten()

    def _turns(self, first: int, last: int, device: torch.device) -> tuple[Tensor, Tensor]:
        width = self.shape.width
        speeds = self.shape.theta ** -(torch.arange(0, width, 2, device=device).float() / width)
        angles = torch.arange(first, last, device=device).float()[:, None] * speeds
        angles = torch.cat([angles, angles], -1)[:, None]
        return angles.cos().to(self.precision), angles.sin().to(self.precision)

    def _heads(self, joined: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Queries, keys and values [B, heads, T, width]."""
        heads, (cos, sin) = self.shape.heads, turn
        batch, length, _ = joined.shape
        plain, quarter, value = joined.view(batch, length, -1, self.shape.width).split([2 * heads, 2 * heads, heads], 2)
        query, key = torch.addcmul(plain * cos, quarter, sin).split(heads, 2)
        return tuple(part.transpose(1, 2) for part in (query, key, value))
