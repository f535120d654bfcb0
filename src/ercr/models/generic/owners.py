"""Which position of the decoder's sequence each number of a picture reaches, read from gradients.

With every attention of the vision tower replaced by "pass on your own value", a tower works patch by patch. Take a
random projection of the decoder's input embeddings, multiply it by a weight for each position, and sum. A number that
reaches one position only has a gradient that is proportional to that position's weight. So the ratio of two gradients
names the position, and a third one tells whether it is alone.

It makes no difference for this which weights the layers have, as long as they are not zero. So quantised and offloaded
layers are replaced by random ones, and of a list of equal blocks only the first one is computed: the others pass their
input on. All is computed in float64, and in float32 where the device has no more: half precision and TF32, which torch
uses for convolutions on GPUs, cannot tell a thousand positions apart. Everything happens on a replica, and only what
runs up to the decoder is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ercr.models.base import Adapter
from ercr.models.quantised import packed_shape

_SEED = 1
_TINY = 1e-7  # gradients below this share of the largest count as none
_NEAR = {torch.float64: 0.02, torch.float32: 0.1}  # how far from a whole position a number's owner may be
_ALONE = {torch.float64: 1e-5, torch.float32: 2e-3}  # how far from its owner's third weight
_PURE = 0.99  # share of numbers with one owner from which blocks are known to keep positions apart

Sampled = tuple[NDArray[np.float64], NDArray[np.int64]]
Resampled = dict[tuple[int, int], tuple[Sampled, Sampled]]  # of grids (rows, columns) that were interpolated
Rest = tuple[Any, ...] | None  # what a block answers behind its stream; None if it answers with the stream alone


class Reached(Exception):
    """Raised when the decoder is called, which ends the probe's pass."""


@dataclass(frozen=True)
class Owners:
    """Per number of the picture (all leaves flattened and joined): its position, -1 if it reaches several or none."""

    position: Tensor  # [n] long
    weighted: Tensor  # [n] mean position that a number reaches, if it reaches several
    strength: Tensor  # [n] size of its gradient
    length: int  # positions of the sequence
    resampled: Resampled = field(default_factory=dict)

    def kept(self, strength: bool) -> Owners:
        """The same in less memory, without what is not needed to place the cells."""
        none = self.strength.new_empty(0)
        return replace(self, position=self.position.int(), weighted=none, strength=self.strength if strength else none)

    @property
    def nbytes(self) -> int:
        return self.position.nbytes + self.weighted.nbytes + self.strength.nbytes

    @property
    def purity(self) -> float:
        """Share of the numbers with an effect that reach one position alone."""
        used = int((self.strength > 0).sum())
        return float((self.position >= 0).sum()) / used if used else 0.0


class OwnValues(TorchFunctionMode):
    """Attention in which every position passes on its own value; only in the thread that enters it.

    A grid of features that is interpolated gives each place its nearest feature; `resampled` notes where between the
    features it really lies.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resampled: Resampled = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            return _attend(*args[:3], **{name: kwargs[name] for name in ("query", "key", "value") if name in kwargs})
        if function in (F.softmax, torch.softmax, Tensor.softmax):
            out = function(*args, **kwargs)
            square = out.ndim >= 3 and out.shape[-1] == out.shape[-2] > 1
            return torch.eye(out.shape[-1], dtype=out.dtype, device=out.device).expand_as(out) if square else out
        if function is F.interpolate and args and args[0].requires_grad and args[0].ndim == 4:
            return self._nearest(args[0], function(*args, **kwargs), bool(kwargs.get("align_corners")))
        return function(*args, **kwargs)

    def _nearest(self, features: Tensor, out: Tensor, corners: bool) -> Tensor:
        """The nearest features [B, C, h, w] instead of a mean of several, if there are fewer afterwards."""
        before, after = features.shape[-2:], out.shape[-2:]
        if any(new > old for old, new in zip(before, after, strict=True)):
            return out
        lines = [_sampled(old, new, corners) for old, new in zip(before, after, strict=True)]
        self.resampled[after[0], after[1]] = lines[0], lines[1]
        for axis, (_, nearest) in zip((-2, -1), lines, strict=True):
            features = features.index_select(axis, torch.from_numpy(nearest).to(features.device))
        return features


def _sampled(old: int, new: int, corners: bool) -> Sampled:
    """Where the places of an interpolated line lie, counted in features, and the feature that is nearest to each."""
    places = np.arange(new, dtype=np.float64)
    at = places * ((old - 1) / max(new - 1, 1)) if corners else (places + 0.5) * (old / new) - 0.5
    nearest = np.clip(np.rint(at), 0, old - 1).astype(np.int64)
    return at, nearest


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if value.shape[-3] != query.shape[-3]:
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if query.shape[-2] == key.shape[-2]:
        return value
    # a few queries over all positions, as in a resampler: each gets some of everything
    return value.mean(-2, keepdim=True).expand(*value.shape[:-2], query.shape[-2], value.shape[-1])


def owners(
    adapter: Adapter,
    call: Callable[[Adapter, list[Tensor]], Tensor],
    leaves: list[Tensor],
    passed: dict[str, Rest] | None = None,
) -> Owners | None:
    """Owners of the numbers in `leaves`; None if no number has an effect on the embeddings.

    `call(own, leaves)` runs the replica `own` up to the decoder and returns the embeddings [L, d]. `passed` remembers
    lists of blocks that keep every position to itself, so that next time none of their blocks has to run.
    """
    precision = torch.float32 if adapter.device.type == "mps" else torch.float64
    known = {} if passed is None else passed
    for skip in (True, False):
        own, rests = adapter.on_replica(), dict(known)
        wide = [leaf.to(adapter.device, precision).requires_grad_() for leaf in leaves]
        try:
            with torch.enable_grad(), OwnValues() as mode:
                idle = _skip_equal_blocks(own, rests) if skip else []
                _widen(own, precision, (*own.blocks, own.head, *idle))
                found = _decoded(call(own, wide), wide, mode.resampled)
        except torch.OutOfMemoryError:
            raise
        # a list of blocks whose shapes differ cannot be skipped
        except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, KeyError):
            if not skip:
                raise
            continue
        if found is not None and found.purity > _PURE:
            known.update({name: rest for name, rest in rests.items() if not _holds_tensors(rest)})
        return found
    raise AssertionError


def _decoded(rows: Tensor, leaves: list[Tensor], resampled: Resampled) -> Owners | None:
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
        found.append(torch.cat([part.detach().reshape(-1).float().cpu() for part in parts]))
    plain, rising, random = found
    strength = plain.abs()
    used = strength > _TINY * strength.max()
    if not bool(used.any()):
        return None
    ratio = torch.where(used, rising / torch.where(used, plain, 1), 0.0)
    at = (ratio - 1) * count
    near = at.round().long().clamp(0, count - 1)
    expected = third[near]
    alone = used & ((at - near).abs() < _NEAR[rows.dtype])
    alone &= (torch.where(used, random / torch.where(used, plain, 1), 0.0) - expected).abs() < _ALONE[rows.dtype]
    return Owners(torch.where(alone, near, -1), at, torch.where(used, strength, 0.0), count, resampled)


def _widen(own: Adapter, precision: torch.dtype, idle: Iterable[nn.Module]) -> None:
    """The replica's layers in this precision, without gradients of their own.

    The tables of the vocabulary and layers that do not run would take long to convert: they get zeros that need no
    memory, because models look at any layer for the precision of their pixels.
    """
    aside = {id(part) for module in idle for part in module.modules()}
    aside |= {id(part) for part in own.language_model.modules() if isinstance(part, nn.Embedding)}
    aside.add(id(own.model.get_input_embeddings()))
    device = own.device
    for module in own.model.modules():
        config = getattr(module, "config", None)
        if "flash" in str(getattr(config, "_attn_implementation", "")):
            module.config = _Stock(config)
        _detach_from_storage(module)
        if id(module) not in aside:
            _stand_in(module, device)
        table: Any = module._parameters  # plain tensors are allowed here
        for name, value in table.items():
            if value is not None and value.is_floating_point():
                away = id(module) in aside
                table[name] = _zeros(value, precision, device) if away else value.detach().to(precision)
        for name, value in module._buffers.items():
            if value is not None and value.is_floating_point():
                module._buffers[name] = value.to(precision)


def _zeros(value: Tensor, precision: torch.dtype, device: torch.device) -> Tensor:
    place = device if value.device.type == "meta" else value.device
    return torch.zeros((), dtype=precision, device=place).expand(value.shape)


class _Stock:
    """A configuration whose attention is torch's own, which can be replaced."""

    _attn_implementation = "sdpa"

    def __init__(self, config: Any) -> None:
        self.original = config

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["original"], name)


def _stand_in(module: nn.Module, device: torch.device) -> None:
    """Random weights where the layer's own are quantised or are not in memory."""
    packed = packed_shape(module)
    if packed is not None:
        module._parameters["weight"] = _random(packed, device)  # type: ignore[assignment]
        module.forward = lambda states: F.linear(states, module.weight, module._parameters.get("bias"))  # type: ignore[arg-type]
    for name, value in list(module._parameters.items()):
        if value is not None and value.device.type == "meta":
            module._parameters[name] = _random(tuple(value.shape), device)  # type: ignore[assignment]


def _detach_from_storage(module: nn.Module) -> None:
    """Without accelerate's hook, which would load the weights of an offloaded layer."""
    if any(value is not None and value.device.type == "meta" for value in module._parameters.values()):
        vars(module).pop("_hf_hook", None)
        vars(module).pop("forward", None)


def _random(shape: tuple[int, ...], device: torch.device) -> Tensor:
    found: Tensor = torch.randn(shape, generator=torch.Generator().manual_seed(_SEED)) / max(1, shape[-1]) ** 0.5
    return found.to(device)


def _skip_equal_blocks(own: Adapter, rests: dict[str, Rest]) -> list[nn.Module]:
    """Of every list of equal blocks outside the decoder, all but the first pass their input on; those are returned.

    `rests` gets what the first block answers behind the stream. Where that is known already, the first one passes its
    input on, too.
    """
    inside, skipped = {id(part) for part in own.language_model.modules()}, list[nn.Module]()
    for name, module in own.model.named_modules():
        if isinstance(module, nn.ModuleList) and id(module) not in inside and len(module) > 2:
            kinds = {(type(block), *(part.shape for part in block.parameters())) for block in module}
            if len(kinds) == 1:
                first = 0 if name in rests else 1
                if first:
                    module[0].register_forward_hook(partial(_remember, name, rests), with_kwargs=True)
                for block in list(module)[first:]:
                    block.forward = partial(_pass_on, name, rests)
                    skipped.append(block)
    return skipped


def _remember(
    name: str, rests: dict[str, Rest], _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any
) -> None:
    stream = answer[0] if isinstance(answer, tuple) else answer
    if stream.shape != _stream(args, kwargs).shape:
        raise RuntimeError("The blocks of this list change the shape of what they get.")
    rests[name] = answer[1:] if isinstance(answer, tuple) else None


def _holds_tensors(rest: Rest) -> bool:
    return any(isinstance(part, Tensor) for part in rest or ())


def _pass_on(name: str, rests: dict[str, Rest], *args: Any, **kwargs: Any) -> Any:
    """A block's forward that answers with its input, in the form in which the first block has answered."""
    stream, rest = _stream(args, kwargs), rests[name]
    return stream if rest is None else (stream, *rest)


def _stream(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return torch.as_tensor(args[0] if args else kwargs["hidden_states"])
