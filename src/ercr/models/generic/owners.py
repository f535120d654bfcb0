"""Which position of the decoder's sequence each number of a picture reaches, read from gradients.

With every attention of the vision tower replaced by "pass on your own value", a tower works patch by patch. Take a
random projection of the decoder's input embeddings, multiply it by a weight for each position, and sum. A number that
reaches one position only has a gradient that is proportional to that position's weight. So the ratio of two gradients
names the position, and a third one tells whether it is alone.

It makes no difference for this which weights the layers have, as long as they are not zero. So quantised and offloaded
layers are replaced by random ones, and of a list of equal blocks only the first one is computed: the others pass their
input on. All is computed in float32, because in half precision a ratio of gradients cannot tell a thousand positions
apart. Everything happens on a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ercr.models.base import Adapter
from ercr.models.quantised import packed_shape

_SEED = 1
_TINY = 1e-7  # gradients below this share of the largest count as none
_NEAR = 0.1  # how far from a whole position a number's owner may be
_ALONE = 2e-3  # how far from its owner's third weight


class Reached(Exception):
    """Raised when the decoder is called, which ends the probe's pass."""


@dataclass(frozen=True)
class Owners:
    """Per number of the picture (all leaves flattened and joined): its position, -1 if it reaches several or none."""

    position: Tensor  # [n] long
    weighted: Tensor  # [n] mean position that a number reaches, if it reaches several
    strength: Tensor  # [n] size of its gradient
    length: int  # positions of the sequence

    @property
    def purity(self) -> float:
        """Share of the numbers with an effect that reach one position alone."""
        used = int((self.strength > 0).sum())
        return float((self.position >= 0).sum()) / used if used else 0.0


class OwnValues(TorchFunctionMode):
    """Attention in which every position passes on its own value; only in the thread that enters it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            return _attend(*args[:3], **{name: kwargs[name] for name in ("query", "key", "value") if name in kwargs})
        if function in (F.softmax, torch.softmax, Tensor.softmax):
            out = function(*args, **kwargs)
            square = out.ndim >= 3 and out.shape[-1] == out.shape[-2] > 1
            return torch.eye(out.shape[-1], dtype=out.dtype, device=out.device).expand_as(out) if square else out
        return function(*args, **kwargs)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if value.shape[-3] != query.shape[-3]:
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if query.shape[-2] == key.shape[-2]:
        return value
    # a few queries over all positions, as in a resampler: each gets some of everything
    return value.mean(-2, keepdim=True).expand(*value.shape[:-2], query.shape[-2], value.shape[-1])


def owners(adapter: Adapter, call: Callable[[Adapter, list[Tensor]], Tensor], leaves: list[Tensor]) -> Owners | None:
    """Owners of the numbers in `leaves`; None if no number has an effect on the embeddings.

    `call(own, leaves)` runs the replica `own` up to the decoder and returns the embeddings [L, d].
    """
    for skip in (True, False):
        own = adapter.on_replica()
        wide = [leaf.to(adapter.device, torch.float32).requires_grad_() for leaf in leaves]
        try:
            with torch.enable_grad(), _float32(own), OwnValues():
                if skip:
                    _skip_equal_blocks(own)
                rows = call(own, wide)
                return _decoded(rows, wide)
        # a list of blocks whose shapes differ cannot be skipped
        except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, KeyError):
            if not skip:
                raise
    raise AssertionError


def _decoded(rows: Tensor, leaves: list[Tensor]) -> Owners | None:
    if not rows.requires_grad:
        return None
    count = len(rows)
    generator = torch.Generator().manual_seed(_SEED)
    projection = torch.randn(rows.shape[-1], generator=generator).to(rows)
    scores = rows @ projection
    index = torch.arange(count, dtype=torch.float32)
    third = 0.5 + torch.rand(count, generator=generator)
    weights = [torch.ones(count), 1 + index / count, third]
    found = []
    for number, weight in enumerate(weights):
        grads = torch.autograd.grad(
            scores, leaves, weight.to(scores), retain_graph=number < len(weights) - 1, allow_unused=True
        )
        parts = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves, strict=True)]
        found.append(torch.cat([part.detach().reshape(-1) for part in parts]).cpu().double())
    plain, rising, random = found
    strength = plain.abs()
    used = strength > _TINY * strength.max()
    if not bool(used.any()):
        return None
    ratio = torch.where(used, rising / torch.where(used, plain, 1), 0.0)
    at = (ratio - 1) * count
    near = at.round().long().clamp(0, count - 1)
    expected = third.double()[near]
    alone = used & ((at - near).abs() < _NEAR)
    alone &= ((torch.where(used, random / torch.where(used, plain, 1), 0.0)) - expected).abs() < _ALONE
    return Owners(torch.where(alone, near, -1), at, torch.where(used, strength, 0.0), count)


@contextmanager
def _float32(own: Adapter) -> Iterator[None]:
    """The replica's layers outside the decoder's blocks in float32, without gradients of their own."""
    inside = {id(part) for block in own.blocks for part in block.modules()}
    for module in own.model.modules():
        if id(module) in inside:
            continue
        _stand_in(own, module)
        lookup = type(module).forward is nn.Embedding.forward  # others multiply with their table
        table: Any = module._parameters  # plain tensors are allowed here
        for name, value in table.items():
            # converting the whole vocabulary would take long: its rows are converted instead
            if value is None or lookup:
                continue
            table[name] = value.detach().float() if value.is_floating_point() else value
        for name, value in module._buffers.items():
            if value is not None and value.is_floating_point():
                module._buffers[name] = value.float()
        if lookup:
            module.register_forward_hook(lambda _, args, out: out.detach().float())
        config = getattr(module, "config", None)
        if "flash" in str(getattr(config, "_attn_implementation", "")):
            module.config = _Stock(config)
    yield


class _Stock:
    """A configuration whose attention is torch's own, which can be replaced."""

    _attn_implementation = "sdpa"

    def __init__(self, config: Any) -> None:
        self.original = config

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["original"], name)


def _stand_in(own: Adapter, module: nn.Module) -> None:
    """Random weights where the layer's own are quantised or are not in memory."""
    packed = packed_shape(module)
    if packed is not None:
        module._parameters["weight"] = _random(packed, own.device)  # type: ignore[assignment]
        module.forward = lambda states: F.linear(states, module.weight, module._parameters.get("bias"))  # type: ignore[arg-type]
    for name, value in list(module._parameters.items()):
        if value is not None and value.device.type == "meta":
            module._parameters[name] = _random(tuple(value.shape), own.device)  # type: ignore[assignment]
            vars(module).pop("_hf_hook", None)
            if "forward" in vars(module) and packed is None:
                del module.forward


def _random(shape: tuple[int, ...], device: torch.device) -> Tensor:
    found: Tensor = torch.randn(shape, generator=torch.Generator().manual_seed(_SEED)) / max(1, shape[-1]) ** 0.5
    return found.to(device)


def _skip_equal_blocks(own: Adapter) -> None:
    """Of every list of equal blocks outside the decoder, all but the first pass their input on."""
    inside = {id(part) for part in own.language_model.modules()}
    for module in own.model.modules():
        if isinstance(module, nn.ModuleList) and id(module) not in inside and len(module) > 2:
            kinds = {(type(block), *(part.shape for part in block.parameters())) for block in module}
            if len(kinds) == 1:
                answers: list[Any] = []
                module[0].register_forward_hook(lambda _, args, out, answers=answers: answers.append(out))
                for block in list(module)[1:]:
                    block.forward = _passing(answers)


def _passing(answers: list[Any]) -> Callable[..., Any]:
    """A block's forward that answers with its input, in the form in which the first block has answered."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        stream = args[0] if args else kwargs["hidden_states"]
        first = answers[0]
        shaped = first[0] if isinstance(first, tuple) else first
        if shaped.shape != stream.shape:
            raise RuntimeError("The blocks of this list change the shape of what they get.")
        return (stream, *first[1:]) if isinstance(first, tuple) else stream

    return forward
