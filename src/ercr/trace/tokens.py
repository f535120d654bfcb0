"""Token ids of answers: where an answer ends, what pads a batch, and how tokens are spelt. Runs no model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ercr.models.base import Adapter


def cut_answer(tokens: Tensor, ends: int | Sequence[int] | None, pad: int) -> Tensor:
    """The answer up to and including its end token, without the batch's padding."""
    stops = [ends] if isinstance(ends, int) else list(ends or [])
    at = torch.isin(tokens, torch.tensor(stops, dtype=tokens.dtype)).nonzero()
    if len(at):
        return tokens[: int(at[0]) + 1]
    written = (tokens != pad).nonzero()
    return tokens[: int(written[-1]) + 1] if len(written) else tokens[:0]


def pad_token(adapter: Adapter) -> int:
    for source in (adapter.tokenizer, adapter.model.generation_config, adapter.config):
        token = getattr(source, "pad_token_id", None)
        if token is not None:
            return int(token)
    ends = adapter.model.generation_config.eos_token_id
    return int(ends[0] if isinstance(ends, list) else ends or 0)


def retokenise(adapter: Adapter, ids: Tensor) -> list[str]:
    """Token strings after decoding and tokenising again."""
    text = adapter.tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return [str(token) for token in adapter.tokenizer.tokenize(text)]
