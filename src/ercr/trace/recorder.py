"""One pass of the decoder with its states recorded: a hook on the final norm, and one on a block's input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ercr.errors import ModelStateError
from ercr.models.base import Adapter
from ercr.models.inputs import Prepared, ViewKind
from ercr.trace.cancel import cancellable
from ercr.trace.data import checked_layer
from ercr.trace.tokens import pad_token


class Recorder:
    """Records the outputs of some modules during passes of `own`, whose replica of the model no other run uses."""

    def __init__(self, adapter: Adapter, layer: int, lens: Sequence[int] = ()) -> None:
        """`lens` are further layers, of which the states of the first pass are kept."""
        self.norm: list[Tensor] = []
        self.block: list[Tensor] = []
        self._first: dict[int, Tensor] = {}  # by layer
        # 0: embeddings, n: after block n, last: after the final norm
        index = checked_layer(layer, len(adapter.blocks) + 1)
        self.at_end = index == len(adapter.blocks)
        self._adapter, self._index, self.lens = adapter, index, tuple(lens)

    @property
    def needs_hooks(self) -> bool:
        """Whether states are wanted that captured passes do not give."""
        return not self.at_end or bool(self.lens)

    @cached_property
    def own(self) -> Adapter:
        """The adapter whose passes are recorded; captured passes do without it."""
        own = cancellable(self._adapter)
        own.final_norm.register_forward_hook(self._keep_output)
        if not self.at_end:
            own.blocks[self._index].register_forward_pre_hook(self._keep_input, with_kwargs=True)
        for each in self.lens:
            if each < len(self._adapter.blocks):
                own.blocks[each].register_forward_pre_hook(self._keep_first(each), with_kwargs=True)
        return own

    def take_lens(self) -> list[Tensor]:
        """States [B, positions, d] of the further layers in the first pass since the last call."""
        found = [self._first[layer] for layer in sorted(self._first)]
        self._first.clear()
        return found

    def take(self) -> tuple[Tensor, Tensor]:
        """Final states and states of the requested layer, both [B, positions, d], since the last call."""
        if not self.norm:
            raise ModelStateError(
                "The model's final norm was not called: undo torch.compile or a replaced forward first."
            )
        norm = _joined(self.norm)
        block = norm if self.at_end else _joined(self.block)
        self.norm.clear()
        self.block.clear()
        return norm, block

    def visual(self, layer_states: Tensor) -> Tensor:
        """The states that methods read: those of an earlier layer still have to pass the final norm."""
        return layer_states if self.at_end else self.normed(layer_states)

    def normed(self, states: Tensor) -> Tensor:
        norm: Tensor = self._adapter.final_norm(states)  # the user's module, which has no recording hook
        return norm

    def _keep_output(self, _: nn.Module, args: object, output: Tensor) -> None:
        self.norm.append(output)

    def _keep_first(self, layer: int) -> Callable[..., None]:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._first.setdefault(layer, args[0] if args else kwargs["hidden_states"])

        return keep

    def _keep_input(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.block.append(args[0] if args else kwargs["hidden_states"])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate the states of consecutive passes."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


def forward(
    adapter: Adapter, samples: Sequence[Prepared], recorder: Recorder, kind: ViewKind = "pad"
) -> tuple[Tensor, Tensor]:
    """One pass over left-padded samples, without the language head: final and requested states [B, L, d]."""
    batch = adapter.pack(samples, pad_token(adapter))
    if adapter.compiled is not None and kind == "pad" and not recorder.needs_hooks:
        states = adapter.compiled.forward(batch)
        return states, states
    own = recorder.own
    with own.view_context(kind):
        own.read(own.decoder_inputs(batch))
    return recorder.take()
