"""A second pass over prompt and answer from which methods get attention, states of blocks and gradients.

It runs after the answer is complete, over the same tokens, and stores only what was asked for. The decoder is run as a
whole, with all that the first pass gave it, so that features added between blocks, masks and token types are part of
it. Gradients use float32 copies of the parameters, so the model's requires_grad flags, precision and mode do not
change. Every pass has its hooks and parameters on a replica of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ercr.errors import InputError, UnsupportedModel
from ercr.models.base import Adapter
from ercr.models.decoder import norm_before_attention, norm_before_mlp
from ercr.models.inputs import Inputs, Prepared
from ercr.models.quantised import packed_shape, unpack
from ercr.trace.attention import Attention, Backend, describe, observe, repeat_heads, replace_attention
from ercr.trace.cancel import cancellable, check, checked_backward
from ercr.trace.data import checked_layer
from ercr.trace.lrp import Rule, apply_rule

Place = Literal["attention", "mlp"]
_TAPS = {"attention": norm_before_attention, "mlp": norm_before_mlp}
_BACKWARD_BYTES = 2**30  # memory for the gradients of one batch of target tokens


class Replay:
    """Runs the model again over prompt and answer of one sample, on demand. Rows are the text tokens of the trace."""

    def __init__(
        self, adapter: Adapter, sample: Prepared, emitting: Tensor, targets: Tensor, features: Tensor | None = None
    ) -> None:
        self._adapter = adapter
        self._sample = sample
        self._features = features  # [n, d] image features of the first pass, so that the tower need not run again
        self._inputs: Inputs | None = None  # what the decoder is called with, made once
        self.emitting = emitting.clamp(min=0).to(adapter.device)  # [S] positions that emit the text rows
        self.own = (emitting + 1).to(adapter.device)  # [S] positions of the text rows
        self.visual = sample.visual.to(adapter.device)  # [N]
        self._targets = targets

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self._adapter.blocks)

    @property
    def mlp_cam_block(self) -> int:
        return self._adapter.mlp_cam_block

    @property
    def length(self) -> int:
        return len(self._sample.input_ids)

    # passes without gradients

    def attentions(self, layers: Sequence[int] | None = None) -> dict[int, Attention]:
        """Queries, keys and values of some blocks, or of all, from one pass with the model's own backend.

        A single block that has no attention stands for the nearest one before it that has.
        """
        kept: dict[int, Attention] = {}

        def record(layer: int, attention: Attention) -> None:
            if layer in wanted:
                kept[layer] = attention.to(self.visual.device)

        own = cancellable(self._adapter)
        known = replace_attention(own, observe(record))
        wanted = self._with_attention(layers, known)
        self._forward(own)
        if set(kept) != wanted:
            raise UnsupportedModel(
                f"{type(own.model).__name__} computes attention in a way that cannot be read: "
                f"use a method that reads visual states, such as ercr, tam or cam."
            )
        return kept

    def _with_attention(self, layers: Sequence[int] | None, known: Sequence[int]) -> set[int]:
        if layers is None:
            self._refuse_hybrid(known)
            return set(known)
        asked = {checked_layer(layer, self.depth) for layer in layers}
        if len(asked) == 1:
            asked = {max((layer for layer in known if layer <= max(asked)), default=max(asked))}
        if asked - set(known):
            self._refuse_hybrid(known)
        return asked

    def _refuse_hybrid(self, known: Sequence[int]) -> None:
        if len(known) != self.depth:
            raise UnsupportedModel(
                f"{self.depth - len(known)} of this model's {self.depth} blocks have no attention matrix (they use "
                f"linear attention or convolutions), and this method needs one from every block: use another method."
            )

    def states(self, layer: int | None = None) -> Tensor:
        """Final states [L, d], or the residual stream [L, d] that enters a block."""
        own = cancellable(self._adapter)
        if layer is None:
            return self._forward(own)[0].to(self.visual.device)
        kept: list[Tensor] = []
        block = own.blocks[checked_layer(layer, self.depth)]
        block.register_forward_pre_hook(lambda _, args, kwargs: kept.append(_stream(args, kwargs)), with_kwargs=True)
        self._forward(own)
        return kept[0][0].to(self.visual.device)

    def read(self, states: Tensor) -> Tensor:
        """The final norm applied to states of the residual stream."""
        out: Tensor = self._adapter.final_norm(states)
        return out

    @torch.no_grad()
    def _forward(self, own: Adapter) -> Tensor:
        return own.read(self._decoder_inputs(own))

    @torch.no_grad()
    def _decoder_inputs(self, own: Adapter) -> Inputs:
        if self._inputs is None:
            batch = own.pack([self._sample], 0)
            features = None if self._features is None else self._features.to(own.device)
            self._inputs = own.decoder_inputs(replace(batch, features=features))
        return self._inputs

    # gradients of the emitted logits

    def tapped_gradients(self, layer: int, place: Place, rows: slice) -> tuple[Tensor, Tensor]:
        """The output [N, d] at visual tokens of the norm before a block's attention or MLP, and gradients [R, N, d].

        The gradients are those of the rows' logits. The output is treated as an independent variable: gradients stop
        there.
        """
        own, taps = cancellable(self._adapter), list[Tensor]()
        layer = checked_layer(layer, self.depth)
        norm = _TAPS[place](own.blocks[layer])
        if norm is None:
            raise UnsupportedModel(
                f"{type(own.blocks[layer]).__name__} has no norm before its {place}, which this method reads: "
                f"use another method."
            )

        def tap(_: nn.Module, args: object, output: Tensor) -> Tensor:
            taps.append(output.detach().requires_grad_())
            return taps[0]

        norm.register_forward_hook(tap)
        with torch.enable_grad():
            logits = self._logits(own, layer, rows)
            device = self.visual.device
            kept = torch.cat([grads[0].to(device)[:, 0, self.visual] for _, grads in self._backward(logits, taps, 4)])
        return taps[0].detach()[0].to(device)[self.visual], kept

    def relevance(self, rule: Rule, rows: slice) -> Tensor:
        """Signed relevance [R, N] at the projected image embeddings: their product with the modified gradient."""
        own, starts = cancellable(self._adapter), list[Tensor]()
        apply_rule(own, rule)
        with torch.enable_grad():
            logits = self._logits(own, 0, rows, lambda stream: starts.append(stream.requires_grad_()))
            parts = [
                (grads[0] * starts[0]).sum(-1).detach().to(self.visual.device)[:, 0, self.visual]
                for _, grads in self._backward(logits, starts, 4)
            ]
        return torch.cat(parts)

    def attention_gradients(self, rows: slice) -> Iterator[tuple[slice, list[Tensor], list[Tensor]]]:
        """A few rows at a time: attention probabilities [H, L, L] of all blocks, and their gradients [R, H, L, L]."""
        probabilities: list[Tensor] = []

        def explicit(index: int, original: Backend) -> Backend:
            return _explicit_attention(probabilities)

        own = cancellable(self._adapter)
        self._refuse_hybrid(replace_attention(own, explicit))
        with torch.enable_grad():
            logits = self._logits(own, 0, rows, lambda stream: stream.requires_grad_())
        weights = [p.detach() for p in probabilities]
        for part, grads in self._backward(logits, probabilities, 4 + 3 * self.depth):
            yield slice(rows.start + part.start, rows.start + part.stop), weights, grads

    def _backward(self, logits: Tensor, inputs: list[Tensor], copies: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Gradients of the logits, as many per backward pass as `_BACKWARD_BYTES` allows."""
        config = self._adapter.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        inner = max(inner) if isinstance(inner, list | tuple) else inner
        width = max(inner, config.num_attention_heads * self.length)
        step = max(1, _BACKWARD_BYTES // (4 * self.length * width * copies))
        for start in range(0, len(logits), step):
            check()
            part = slice(start, min(start + step, len(logits)))
            seeds = torch.eye(len(logits), device=logits.device, dtype=logits.dtype)[part]
            last = part.stop == len(logits)
            grads = torch.autograd.grad(logits, inputs, seeds, is_grads_batched=True, retain_graph=not last)
            yield part, [grad.detach() for grad in grads]

    def _logits(
        self, own: Adapter, first: int, rows: slice, enter: Callable[[Tensor], object] = lambda stream: None
    ) -> Tensor:
        """Logits [R] of the rows' tokens where they are emitted; the graph begins at block `first`.

        From there on, all is computed in float32 with detached parameters. `enter` gets the stream that enters `first`.
        """
        for block in own.blocks[first:]:
            block.register_forward_pre_hook(_constants, with_kwargs=True, prepend=True)
            for part in block.modules():
                if (shape := packed_shape(part)) is not None:
                    unpack(part, shape[1], _place(part), own.model.dtype)
        own.final_norm.register_forward_pre_hook(_constants, with_kwargs=True)

        def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            torch.set_grad_enabled(True)
            stream = _float(_stream(args, kwargs))
            enter(stream)
            return _replaced(stream, args, kwargs)

        own.blocks[first].register_forward_pre_hook(begin, with_kwargs=True)
        with torch.no_grad():  # up to block `first`; afterwards the mode is as before
            final = own.read(self._decoder_inputs(own))
        target = self._adapter.unembedding_rows(self._targets[rows].to(final.device)).to(final)
        return (final[0, self.emitting[rows].to(final.device)] * target).sum(-1)


def _stream(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The residual stream among a block's arguments."""
    return torch.as_tensor(args[0] if args else kwargs["hidden_states"])


def _replaced(stream: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((stream, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": stream})


def _float(states: Tensor) -> Tensor:
    return states.detach().to(torch.promote_types(states.dtype, torch.float32)).clone()


def _constants(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A hook before a block of a replica: its parameters and other arguments as constants in the stream's precision."""
    check()
    if any(p.device.type == "meta" for p in module.parameters()):
        raise InputError("Gradient methods need the whole model in memory: load it without offloading.")
    stream = _stream(args, kwargs)
    checked_backward(stream)
    precision = torch.promote_types(stream.dtype, torch.float32)
    for part in module.modules():
        table: Any = part._parameters  # plain tensors are allowed here
        for name, value in table.items():
            # packed weights, which nothing reads any more, keep their own type
            if value is not None and value.is_floating_point() and type(value.data) is Tensor:
                table[name] = _constant(value, precision)
    rest = {key: _cast(value, precision) for key, value in kwargs.items() if key != "hidden_states"}
    kwargs = {key: rest.get(key, value) for key, value in kwargs.items()}
    return _replaced(stream, (stream, *(_cast(value, precision) for value in args[1:])) if args else args, kwargs)


def _place(module: nn.Module) -> torch.device:
    """The device of a layer's numbers, whatever they are stored as."""
    tensors = (*module._parameters.values(), *module._buffers.values())
    return next(value.device for value in tensors if value is not None)


def _constant(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor detached, and copied if it was made in inference mode, so that a graph may use it."""
    value = value.detach().to(dtype)
    return value.clone() if value.is_inference() else value


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Rotary embeddings and additive masks in the stream's precision; other arguments unchanged."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return _constant(value, dtype)
    return tuple(_cast(part, dtype) for part in value) if isinstance(value, tuple) else value


def _explicit_attention(kept: list[Tensor]) -> Backend:
    """An attention function that stores its probabilities [H, L, L], so that gradients can be taken there."""

    def function(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        attention = describe(module, query, key, value, mask, kwargs)
        everywhere = torch.arange(query.shape[2], device=query.device)
        weights = attention.probabilities(everywhere).to(query.dtype)
        kept.append(weights)
        out = weights @ repeat_heads(attention.value, attention.heads)
        return out.transpose(0, 1)[None], None

    return function
