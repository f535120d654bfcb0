"""The parts of a decoder, found by transformers' accessors and by structure, so that no family is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ercr.errors import UnsupportedModel
from ercr.models.replica import execution_device, replica

_NORMS = ("norm", "final_layernorm", "final_layer_norm", "final_norm", "embedding_norm", "ln_f")
_ATTENTION = ("self_attn", "self_attention", "attention", "attn")
_MLP = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "moe")
_OUTPUT = ("o_proj", "out_proj", "dense", "wo", "c_proj", "attn_out")
_BEFORE_ATTENTION = ("input_layernorm", "operator_norm", "attention_norm", "attn_norm", "norm1", "ln_1")
# in this order: some blocks have a norm behind attention and another one before the MLP
_BEFORE_MLP = ("pre_feedforward_layernorm", "ffn_norm", "feedforward_norm", "ff_norm", "norm2", "ln_2")


def decoder_of(model: Any) -> nn.Module:
    """The module that takes embeddings and ends in the final norm."""
    found: Any = model.get_decoder()
    while not _lists(found):  # a causal model with a head, or another wrapper
        inner = next((part for name in ("model", "decoder", "language_model") if (part := _child(found, name))), None)
        if inner is None:
            raise UnsupportedModel(
                f"{type(model).__name__} has no decoder made of blocks that could be read: use a model of another type."
            )
        found = inner
    return found  # type: ignore[no-any-return]


def blocks_of(decoder: nn.Module) -> nn.ModuleList:
    """The decoder's blocks: its longest list of modules."""
    return max(_lists(decoder), key=len)


def final_norm_of(decoder: nn.Module) -> nn.Module:
    """The norm behind the last block."""
    named = [part for name in _NORMS if (part := _child(decoder, name)) is not None]
    norms = named or [part for part in decoder.children() if type(part).__name__.endswith(("Norm", "Norm2d"))]
    if not norms:
        raise UnsupportedModel(f"{type(decoder).__name__} has no final norm, from which states are read.")
    return norms[0]


def attention_of(block: nn.Module) -> nn.Module | None:
    """A block's attention, or None if the block mixes positions in another way (linear attention, convolution)."""
    found = _first(block, _ATTENTION)
    # a list of heads or a recurrent layer under the same name has no attention function
    return found if found is not None and hasattr(found, "config") else None


def output_projection(attention: nn.Module) -> nn.Module | None:
    return _first(attention, _OUTPUT)


def norm_before_attention(block: nn.Module) -> nn.Module | None:
    return _first(block, _BEFORE_ATTENTION)


def norm_before_mlp(block: nn.Module) -> nn.Module | None:
    """The norm whose output the MLP reads; blocks that compute attention and MLP side by side share one norm."""
    if (found := _first(block, _BEFORE_MLP)) is not None:
        return found
    if _child(block, "post_feedforward_layernorm") is not None:
        return None  # norms stand behind attention and MLP only
    return _first(block, ("post_attention_layernorm", *_BEFORE_ATTENTION))


def mlp_of(block: nn.Module) -> nn.Module | None:
    return _first(block, _MLP)


def logit_change(model: Any, head: nn.Module) -> Callable[[Tensor], Tensor]:
    """How the model makes its logits from the head's output: not at all, scaled, or bent below a cap.

    Settings of that name do not count in every class, so the model is asked, with a made-up last state.
    """
    own = replica(model)
    width = own.get_output_embeddings().weight.shape[-1]
    weight: Any = head.weight
    offloaded = weight.device.type == "meta"
    device = (execution_device(head) or torch.device("cpu")) if offloaded else weight.device
    state = torch.linspace(-3, 3, width, dtype=model.dtype)[None, None].to(device)
    # some classes have no base model of their own, but a causal model inside
    inner = own.base_model if own.base_model is not own else decoder_of(own)
    inner.forward = lambda *args, **kwargs: _Answer(state)
    outputs: list[Tensor] = []
    own.get_output_embeddings().register_forward_hook(lambda _, args, out: outputs.append(out))
    with torch.no_grad():
        logits = own(input_ids=torch.zeros(1, 1, dtype=torch.long, device=state.device), return_dict=True).logits
    plain, logits = outputs[0].float().cpu().double(), logits.float().cpu().double()
    for change in _changes(model.config.get_text_config()):
        if torch.allclose(change(plain), logits, rtol=1e-2, atol=1e-6):
            return change
    raise UnsupportedModel(f"{type(model).__name__} changes its logits in a way that is not known.")


class _Answer(dict[str, Any]):
    """Stands for the output of a model without its head: a last state, and nothing else."""

    def __init__(self, state: Tensor) -> None:
        super().__init__(last_hidden_state=state)

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return self["last_hidden_state"] if key == 0 else super().__getitem__(key)


def _changes(config: Any) -> Iterator[Callable[[Tensor], Tensor]]:
    yield lambda logits: logits
    scale, divisor = _number(config, "logit_scale"), _number(config, "logits_scaling")
    cap = _number(config, "final_logit_softcapping")
    if scale is not None:
        yield lambda logits: logits * scale
    if divisor is not None:
        yield lambda logits: logits / divisor
    if cap is not None:
        yield lambda logits: torch.tanh(logits / cap) * cap


def _number(config: Any, name: str) -> float | None:
    value = getattr(config, name, None)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value else None


def _lists(module: nn.Module) -> list[nn.ModuleList]:
    return [part for part in module.children() if isinstance(part, nn.ModuleList) and len(part)]


def _child(module: nn.Module, name: str) -> nn.Module | None:
    found = getattr(module, name, None)
    return found if isinstance(found, nn.Module) else None


def _first(module: nn.Module, names: Iterable[str]) -> nn.Module | None:
    return next((part for name in names if (part := _child(module, name)) is not None), None)
