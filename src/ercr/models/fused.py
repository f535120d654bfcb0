"""A decoder of the usual kind in plain functions: the model's own weights, in few and large kernels.

What lies between two matrix products is one kernel on a GPU (`models/kernels.py`), and plain torch elsewhere. Tokens of
all samples stand in one row, so nothing is padded: attention gets their edges. Keys and values lie in slots of equal
length, one for each sample that is being answered.

`fused_decoder` returns None where a model's blocks are of another kind or compute anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.decoder import blocks_of, final_norm_of
from ercr.models.packed import attend_packed, has_flash
from ercr.models.steps import steps_for

Linear = tuple[Tensor, Tensor | None]  # weight and bias
# norm; query, key and value, or all three in one; norms of queries and keys
Heads = tuple[Tensor, tuple[Linear, ...], tuple[Tensor, Tensor] | None]
Tail = tuple[Linear, Tensor, Tensor, Tensor, Tensor]  # output of attention; norm; gate, up and down of the MLP
Cache = tuple[Tensor, Tensor]  # keys and values of a block
_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_NORMS = {"q_norm", "k_norm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_SILU = ("SiLU", "SiLUActivation")
_CLOSE = 0.01  # of the largest number of a state; another equation differs by more


class Slots:
    """Keys and values of samples that are being answered, at fixed addresses: a slot of equal length for each."""

    def __init__(self, depth: int, rows: int, length: int, shape: tuple[int, int], like: Tensor) -> None:
        self.rows, self.length = rows, length
        self.nowhere = rows * length  # the place of tokens that nobody will look at
        self.caches: list[Cache] = [
            (like.new_zeros(rows * length + 1, *shape), like.new_zeros(rows * length + 1, *shape)) for _ in range(depth)
        ]
        self.first = torch.arange(rows, device=like.device) * length  # where each slot begins
        self.edges = torch.arange(rows + 1, device=like.device, dtype=torch.int32)
        self.bounds = self.edges * length

    def attend(self, layer: int, query: Tensor, at: Tensor, seen: Tensor, scale: float) -> Tensor:
        """Attention of a token in each of the first n slots [n, heads, d] to the first `seen` places, up to `at`."""
        rows, (keys, values) = len(query), self.caches[layer]
        if has_flash(query):
            found: Tensor = torch.ops.aten._flash_attention_forward(
                *(query, keys, values, self.edges[: rows + 1], self.bounds[: rows + 1], 1, self.length),
                *(0.0, False, False),
                scale=scale,
                seqused_k=seen,
            )[0]
            return found.flatten(1)
        shown = (torch.arange(self.length, device=at.device) <= at[:, None])[:, None, None]
        k, v = (self._by_slot(part)[:rows].transpose(1, 2) for part in (keys, values))
        return F.scaled_dot_product_attention(query[:, :, None], k, v, shown, scale=scale, enable_gqa=True).flatten(1)

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy some slots over others."""
        for keys_and_values in self.caches:
            for part in keys_and_values:
                slots = self._by_slot(part)
                slots[targets] = slots[sources]

    def take(self, smaller: Slots) -> None:
        """Copy the places of slots with fewer of them."""
        for own, other in zip(self.caches, smaller.caches, strict=True):
            for part, given in zip(own, other, strict=True):
                self._by_slot(part)[:, : smaller.length] = smaller._by_slot(given)

    def _by_slot(self, part: Tensor) -> Tensor:
        return part[: self.nowhere].view(self.rows, self.length, *part.shape[1:])


@dataclass(frozen=True)
class Packed:
    """Samples one behind the other: their edges [B + 1] on the device, and their lengths."""

    edges: Tensor
    lengths: tuple[int, ...]

    @property
    def longest(self) -> int:
        return max(self.lengths)


class FusedDecoder:
    """The blocks and the final norm of a decoder."""

    def __init__(self, decoder: Any, blocks: Sequence[Any], norm: Any) -> None:
        self.heads = [_heads(block) for block in blocks]
        self.tails = [_tail(block) for block in blocks]
        self.norm, self.eps = norm.weight, float(norm.variance_epsilon)
        attention = blocks[0].self_attn
        self.width, self.scale = int(attention.head_dim), float(attention.scaling)
        self.rotary = decoder.rotary_emb
        self.steps = steps_for(self.norm)
        # heads of queries, and of keys and values
        self.own, self.shared = (len(weight) // self.width for weight, _ in self.heads[0][1][:2])

    def join(self) -> None:
        """Make queries, keys and values one product, with copied weights."""
        self.heads = [(norm, (_joined(parts),), norms) for norm, parts, norms in self.heads]

    def slots(self, rows: int, length: int) -> Slots:
        return Slots(len(self.heads), rows, length, (self.shared, self.width), self.norm)

    @torch.no_grad()
    def read(
        self, embeds: Tensor, positions: Tensor, packed: Packed, into: tuple[Slots, Tensor] | None = None
    ) -> Tensor:
        """Final states [T, d] of prompts; `into` names slots and the places [T] of the tokens' keys and values."""

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_packed(query, key, value, packed.edges, packed.lengths, self.scale, causal=True)

        return self._run(embeds, positions, attend, into)

    @torch.no_grad()
    def step(self, embeds: Tensor, positions: Tensor, slots: Slots, at: Tensor) -> Tensor:
        """Final states [n, d] of one new token in each of the first n slots; `at` [n] is its place in its slot."""
        seen = (at + 1).int()

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return slots.attend(layer, query, at, seen, self.scale)

        return self._run(embeds, positions, attend, (slots, slots.first[: len(at)] + at))

    def axes(self, positions: Tensor) -> Tensor:
        """Positions [1 or 3, T] as the rotary module takes them: some take three axes, equal ones for text."""
        if hasattr(self.rotary, "mrope_section"):
            return positions.expand(3, -1)[:, None]
        return positions[:1]

    def _run(
        self, x: Tensor, positions: Tensor, attend: Callable[..., Tensor], into: tuple[Slots, Tensor] | None
    ) -> Tensor:
        steps, eps, more = self.steps, self.eps, None
        cos, sin = (table[0, :, None] for table in self.rotary(x, positions))
        caches: Sequence[Cache | None] = [None] * len(self.heads) if into is None else into[0].caches
        to = None if into is None else into[1]
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            for layer, ((norm, parts, norms), tail) in enumerate(zip(self.heads, self.tails, strict=True)):
                out, middle, gate, up, down = tail
                x, y = steps.add_norm(x, more, norm, eps)
                q, k, v = self._projected(y, parts)
                q, k = steps.turn(q, k, v, cos, sin, norms, eps, caches[layer], to)
                x, y = steps.add_norm(x, F.linear(attend(layer, q, k, v), *out), middle, eps)
                more = F.linear(steps.gated(F.linear(y, gate), F.linear(y, up)), down)
            states: Tensor = steps.add_norm(x, more, self.norm, eps)[1]
        return states

    def _projected(self, x: Tensor, parts: Sequence[Linear]) -> list[Tensor]:
        """Queries, keys and values [T, heads, width]."""
        found: Sequence[Tensor] = [F.linear(x, *part) for part in parts]
        if len(found) == 1:
            own, shared = self.own * self.width, self.shared * self.width
            found = torch.split(found[0], [own, shared, shared], dim=-1)
        return [part.view(len(x), -1, self.width) for part in found]


def fused_decoder(adapter: Any) -> FusedDecoder | None:
    """The adapter's decoder in this form, or None if its blocks are of another kind."""
    decoder, blocks = adapter.language_model, list(adapter.blocks)
    if not all(map(_usual, blocks)) or not hasattr(decoder, "rotary_emb") or adapter.device.type == "meta":
        return None
    return FusedDecoder(decoder, blocks, adapter.final_norm) if _agrees(adapter) else None


def _usual(block: Any) -> bool:
    """Whether a block has just the parts that are computed here."""
    parts = {name for name, _ in block.named_children()}
    if parts != _PARTS:
        return False
    attention = {name for name, _ in block.self_attn.named_children()}
    mlp = {name for name, _ in block.mlp.named_children()}
    linear = [getattr(block.self_attn, name) for name in _ATTENTION if hasattr(block.self_attn, name)]
    linear += [getattr(block.mlp, name) for name in _MLP - {"act_fn"} if hasattr(block.mlp, name)]
    norms = (block.input_layernorm, block.post_attention_layernorm)
    return (
        attention - _NORMS == _ATTENTION
        and mlp == _MLP
        and type(block.mlp.act_fn).__name__ in _SILU
        and all(type(part) is nn.Linear for part in linear)
        and all(hasattr(norm, "variance_epsilon") for norm in norms)
        and getattr(block.self_attn, "sliding_window", None) is None
        and all(getattr(block.mlp, name).bias is None for name in _MLP - {"act_fn"})
    )


@torch.no_grad()
def _agrees(adapter: Any) -> bool:
    """Whether two blocks give the same states for made-up embeddings: classes may share names and not equations.

    In float32, because in half precision another order of sums alone may move states by several percent.
    """
    try:
        decoder = _two_blocks(adapter)
        blocks, norm = blocks_of(decoder), final_norm_of(decoder)
        weight: Any = norm.weight
        embeds = torch.randn(1, 12, len(weight), generator=torch.Generator().manual_seed(0)).to(weight)
        places = torch.arange(12, device=embeds.device)[None]
        own = decoder(inputs_embeds=embeds, position_ids=places, use_cache=False).last_hidden_state[0]
        found = FusedDecoder(decoder, list(blocks), norm)
        packed = Packed(torch.tensor([0, 12], dtype=torch.int32, device=embeds.device), (12,))
        ours = found.read(embeds[0], found.axes(places), packed)
    except (RuntimeError, ValueError, TypeError, KeyError):
        return False
    return bool((own - ours).abs().max() <= _CLOSE * own.abs().max())


def _two_blocks(adapter: Any) -> Any:
    """The decoder with its first and its last block alone, in float32."""
    decoder = copy(adapter.language_model)
    decoder._modules = dict(decoder._modules)
    names = {id(module): name for name, module in decoder._modules.items()}
    ends = (adapter.blocks[0], adapter.blocks[-1])
    decoder._modules[names[id(adapter.blocks)]] = nn.ModuleList(deepcopy(block).float() for block in ends)
    decoder._modules[names[id(adapter.final_norm)]] = deepcopy(adapter.final_norm).float()
    return decoder


def _heads(block: Any) -> Heads:
    own = block.self_attn
    parts = tuple((part.weight, part.bias) for part in (own.q_proj, own.k_proj, own.v_proj))
    norms = (own.q_norm.weight, own.k_norm.weight) if hasattr(own, "q_norm") else None
    return block.input_layernorm.weight, parts, norms


def _joined(parts: Sequence[Linear]) -> Linear:
    """Several products of the same states as one."""
    weight = nn.Parameter(torch.cat([weight for weight, _ in parts]), requires_grad=False)
    if all(bias is None for _, bias in parts):
        return weight, None
    biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in parts]
    return weight, nn.Parameter(torch.cat(biases), requires_grad=False)


def _tail(block: Any) -> Tail:
    out, mlp = block.self_attn.o_proj, block.mlp
    parts = (mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    return ((out.weight, out.bias), block.post_attention_layernorm.weight, *parts)
