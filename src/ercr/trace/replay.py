"""A second pass over prompt and answer from which methods get attention, states of blocks and gradients.

It runs after the answer is complete, over the same tokens, and stores only what was asked for. Gradients use float32
copies of the parameters, so the model's requires_grad flags, precision and mode do not change. Every pass has its hooks
and patches on a replica of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ercr.errors import InputError
from ercr.models.base import Adapter, Prepared
from ercr.trace.attention import Attention, Backend, describe, observe, repeat_heads, replace_attention
from ercr.trace.cancel import cancellable, check, checked_backward
from ercr.trace.data import checked_layer, refuse_image_tokens
from ercr.trace.lrp import Rule, apply_rule

Entry = tuple[nn.Module, Tensor, dict[str, Any]]  # a block, its input (the residual stream), its other arguments
_BACKWARD_BYTES = 2**30  # memory for the gradients of one batch of target tokens


class Replay:
    """Runs the model again over prompt and answer of one sample, on demand. Rows are the text tokens of the trace."""

    def __init__(
        self, adapter: Adapter, sample: Prepared, emitting: Tensor, targets: Tensor, embeds: Tensor | None = None
    ) -> None:
        self._adapter = adapter
        self._sample = sample
        self._embeds = embeds  # [L, d] input embeddings of the first pass, so that the vision tower need not run again
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

    def attentions(self, layers: Sequence[int]) -> dict[int, Attention]:
        """Queries, keys and values of some blocks, from one pass with the model's own backend."""
        wanted: set[int] = {checked_layer(layer, self.depth) for layer in layers}
        kept: dict[int, Attention] = {}

        def record(layer: int, attention: Attention) -> None:
            if layer in wanted:
                kept[layer] = attention.to(self.visual.device)

        own = cancellable(self._adapter)
        replace_attention(own, observe(record))
        self._forward(own)
        return kept

    def states(self, layer: int | None = None) -> Tensor:
        """Final states [L, d], or the residual stream [L, d] that enters a block."""
        own = cancellable(self._adapter)
        if layer is not None:
            layer = checked_layer(layer, self.depth)
            return self._entries(own, slice(layer, layer + 1))[0][1][0].to(self.visual.device)
        kept: list[Tensor] = []
        own.final_norm.register_forward_hook(lambda module, args, out: kept.append(out))
        self._forward(own)
        return kept[0][0].to(self.visual.device)

    def read(self, states: Tensor) -> Tensor:
        """The final norm applied to states of the residual stream."""
        out: Tensor = self._adapter.final_norm(states)
        return out

    @torch.no_grad()
    def _forward(self, own: Adapter) -> None:
        after = self._sample.input_ids[int(self._sample.visual[-1]) + 1 :]
        refuse_image_tokens(after, self._adapter.image_token_id)
        if self._embeds is None:
            self._embeds = own.embed(own.pack([self._sample], 0))[0]
        positions = own.position_ids([self._sample], torch.ones(1, self.length, dtype=torch.long))
        own.read(self._embeds[None], positions.to(self._embeds.device), None)

    # gradients of the emitted logits

    def tapped_gradients(self, layer: int, module: str, rows: slice) -> tuple[Tensor, Tensor]:
        """A module's output at the visual tokens [N, d] and the gradients [R, N, d] of the rows' logits there.

        The output is treated as an independent variable: gradients stop there.
        """
        own, taps = cancellable(self._adapter), list[Tensor]()
        entries = self._entries(own, slice(checked_layer(layer, self.depth), None))

        def tap(_: nn.Module, args: object, output: Tensor) -> Tensor:
            taps.append(output.detach().requires_grad_())
            return taps[0]

        getattr(entries[0][0], module).register_forward_hook(tap)
        with torch.enable_grad():
            logits = self._logits(own, entries, rows)
            device = self.visual.device
            kept = torch.cat([grads[0].to(device)[:, 0, self.visual] for _, grads in self._backward(logits, taps, 4)])
        return taps[0].detach()[0].to(device)[self.visual], kept

    def relevance(self, rule: Rule, rows: slice) -> Tensor:
        """Signed relevance [R, N] at the projected image embeddings: their product with the modified gradient."""
        own = cancellable(self._adapter)
        entries = self._entries(own, slice(None))
        apply_rule(own, rule)
        with torch.enable_grad():
            start = self._float(entries[0][1]).requires_grad_()
            logits = self._logits(own, entries, rows, start)
            parts = [
                (grads[0] * start).sum(-1).detach().to(self.visual.device)[:, 0, self.visual]
                for _, grads in self._backward(logits, [start], 4)
            ]
        return torch.cat(parts)

    def attention_gradients(self, rows: slice) -> Iterator[tuple[slice, list[Tensor], list[Tensor]]]:
        """A few rows at a time: attention probabilities [H, L, L] of all blocks, and their gradients [R, H, L, L]."""
        probabilities: list[Tensor] = []

        def explicit(original: Backend) -> Backend:
            return _explicit_attention(probabilities)

        own = cancellable(self._adapter)
        entries = self._entries(own, slice(None))
        replace_attention(own, explicit)
        with torch.enable_grad():
            logits = self._logits(own, entries, rows, self._float(entries[0][1]).requires_grad_())
        weights = [p.detach() for p in probabilities]
        for part, grads in self._backward(logits, probabilities, 4 + 3 * self.depth):
            yield slice(rows.start + part.start, rows.start + part.stop), weights, grads

    def _backward(self, logits: Tensor, inputs: list[Tensor], copies: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Gradients of the logits, as many per backward pass as `_BACKWARD_BYTES` allows."""
        config = self._adapter.config.get_text_config()
        width = max(config.intermediate_size, config.num_attention_heads * self.length)
        step = max(1, _BACKWARD_BYTES // (4 * self.length * width * copies))
        for start in range(0, len(logits), step):
            check()
            part = slice(start, min(start + step, len(logits)))
            seeds = torch.eye(len(logits), device=logits.device, dtype=logits.dtype)[part]
            last = part.stop == len(logits)
            grads = torch.autograd.grad(logits, inputs, seeds, is_grads_batched=True, retain_graph=not last)
            yield part, [grad.detach() for grad in grads]

    def _logits(self, own: Adapter, entries: list[Entry], rows: slice, stream: Tensor | None = None) -> Tensor:
        """Logits [R] of the rows' tokens where they are emitted, computed from the first entry's block onwards."""
        stream = self._float(entries[0][1]) if stream is None else stream
        for block, _, options in entries:
            check()
            stream = _call(block, stream, options)
            checked_backward(stream)
        final = _call(own.final_norm, stream, {})
        target = self._adapter.unembedding_rows(self._targets[rows].to(final.device)).to(final)
        return (final[0, self.emitting[rows].to(final.device)] * target).sum(-1)

    def _entries(self, own: Adapter, blocks: slice) -> list[Entry]:
        """Some blocks with their inputs in one pass."""
        entries: list[Entry] = []

        def hook(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            options = {key: value for key, value in kwargs.items() if key != "hidden_states"}
            entries.append((block, args[0] if args else kwargs["hidden_states"], options))

        handles = [block.register_forward_pre_hook(hook, with_kwargs=True) for block in own.blocks[blocks]]
        self._forward(own)
        for handle in handles:  # because these blocks will be called again
            handle.remove()
        return entries

    @staticmethod
    def _float(states: Tensor) -> Tensor:
        return states.detach().to(torch.promote_types(states.dtype, torch.float32)).clone()


def _call(module: nn.Module, stream: Tensor, options: dict[str, Any]) -> Tensor:
    """Call a module on the residual stream, with detached parameters in the stream's precision."""
    if any(p.device.type == "meta" for p in module.parameters()):
        raise InputError("Gradient methods need the whole model in memory: load it without offloading.")
    parameters = {name: _constant(p, stream.dtype) for name, p in module.named_parameters()}
    cast = {key: _cast(value, stream.dtype) for key, value in options.items()}
    out = torch.func.functional_call(module, parameters, (stream,), cast)
    result: Tensor = out[0] if isinstance(out, tuple) else out
    return result


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
        module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        attention = describe(module, query, key, value, kwargs)
        everywhere = torch.arange(query.shape[2], device=query.device)
        weights = attention.probabilities(everywhere).to(query.dtype)
        kept.append(weights)
        out = weights @ repeat_heads(attention.value, attention.heads)
        return out.transpose(0, 1)[None], None

    return function
