"""Greedy decoding of a batch that removes finished answers from the batch.

The tokens are those of the model's own `generate` for the same batch, in every precision. The loop is separate from
`generate` so that a bulk run spends no time on answers that have ended, and so that positions and masks need not be
read back from the device. Every other kind of decoding (sampling, beams, penalties, assistants) is left to `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.models.base import Adapter
from ercr.models.inputs import Batch

Generation = dict[str, Any]  # options of the model's `generate`
_PLAIN_OPTIONS = frozenset(
    "max_new_tokens do_sample num_beams temperature top_p top_k eos_token_id pad_token_id num_return_sequences".split()
)
# generation settings that would change greedy decoding, with the values that do not
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "guidance_scale": (None, 1.0),
    **dict.fromkeys(
        "bad_words_ids sequence_bias begin_suppress_tokens forced_bos_token_id forced_eos_token_id "
        "exponential_decay_length_penalty penalty_alpha dola_layers prompt_lookup_num_tokens watermarking_config "
        "stop_strings max_time constraints force_words_ids assistant_early_exit".split(),
        (None,),
    ),
}
_INITIAL_LENGTH = (
    256  # tokens that are allocated first; the buffer grows with the answer, however large max_new_tokens is
)
_REMOVE_SHARE = 8  # rows are removed when more than one in 8 has ended


def is_plain_greedy(adapter: Adapter, options: Generation) -> bool:
    """Whether the options and the checkpoint's settings mean greedy decoding without any other rule.

    Only `suppress_tokens` is allowed in addition, because `greedy_token` applies it.
    """
    if (
        not adapter.steps
        or options.get("do_sample")
        or options.get("num_beams", 1) != 1
        or not set(options) <= _PLAIN_OPTIONS
    ):
        return False
    settings = adapter.model.generation_config
    return all(getattr(settings, name, None) in values for name, values in _NEUTRAL.items())


def end_tokens(adapter: Adapter, options: Generation) -> list[int]:
    ends = options.get("eos_token_id", adapter.model.generation_config.eos_token_id)
    return [ends] if isinstance(ends, int) else list(ends or [])


def greedy_token(adapter: Adapter, states: Tensor) -> Tensor:
    """The most probable next token [B] after the last of the states [B, L, d]; suppressed tokens are excluded."""
    logits: Tensor = adapter.head(states[:, -1:])[:, -1].float()  # one position at a time, to round as `generate` does
    suppressed_tokens = adapter.suppressed_tokens
    return (
        logits if suppressed_tokens is None else logits.masked_fill(suppressed_tokens.to(logits.device), -torch.inf)
    ).argmax(-1)


class GreedyDecoder:
    """The state of greedy decoding of one batch: its tokens and cache, and the rows that have not ended."""

    def __init__(self, adapter: Adapter, batch: Batch, limit: int, ends: Sequence[int]) -> None:
        from transformers import DynamicCache

        self._adapter, self._limit = adapter, limit
        self._embed = adapter.model.get_input_embeddings()
        self._ends = torch.tensor(ends, device=batch.ids.device, dtype=torch.long)
        self._cache = DynamicCache(config=adapter.model.config.get_text_config())
        self._mask, self._next = batch.mask, batch.next_positions
        rows = len(batch.ids)
        self.tokens = batch.ids.new_full((rows, min(limit, _INITIAL_LENGTH)), -1)
        self._rows = torch.arange(rows, device=batch.ids.device)  # the batch rows that are still in the cache
        self._ended = torch.zeros(rows, dtype=torch.bool, device=batch.ids.device)
        self.length = 0
        # a product with fewer rows may round differently, which can change a word in half precision
        self._may_remove_rows = torch.promote_types(adapter.model.dtype, torch.float32) == adapter.model.dtype

    @torch.no_grad()
    def next_tokens(self, states: Tensor) -> Tensor:
        """The next token of every row in the cache, from its last state."""
        tokens = greedy_token(self._adapter, states).to(self.tokens.device)
        self.newest = tokens
        self.length += 1
        return tokens

    def append_tokens(self, states: Tensor) -> bool:
        """Append the next token of every row in the cache; False when all answers have ended."""
        tokens = self.next_tokens(states)
        allocated = self.tokens.shape[1]
        if self.length > allocated:
            self.tokens = F.pad(self.tokens, (0, min(allocated, self._limit - allocated)), value=-1)
        if len(self._ends):
            # tokens of rows that have ended but are still in the cache are discarded
            self.tokens[self._rows, self.length - 1] = tokens.masked_fill(self._ended, -1)
            self._ended = self._ended | torch.isin(tokens, self._ends)
        else:
            self.tokens[:, self.length - 1] = tokens
        if self.length == self._limit:
            return False
        return self._remove_ended() if len(self._ends) else True

    def _remove_ended(self) -> bool:
        """Remove ended rows from the cache if that is worth it; False when all have ended."""
        ended = int(self._ended.sum())
        if ended == len(self._ended):
            return False
        if self._may_remove_rows and ended * _REMOVE_SHARE > len(self._ended):
            keep = (~self._ended).nonzero()[:, 0]
            self._cache.batch_select_indices(keep)
            self._mask = None if self._mask is None else self._mask[keep]
            self._next, self._rows = self._next[keep], self._rows[keep]
            self.newest, self._ended = self.newest[keep], self._ended[keep]
        return True

    def prefill(self, batch: Batch) -> Tensor:
        """The pass over the prompts: final states [B, L, d]."""
        inputs = self._adapter.decoder_inputs(batch)
        self.embeds = inputs["inputs_embeds"]
        return self._adapter.read(inputs, self._cache)

    def step(self) -> Tensor:
        """The pass over the newest tokens: final states [b, 1, d]."""
        if self._mask is not None:
            self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        embeds = self._embed(self.newest[:, None])
        inputs = {"inputs_embeds": embeds, "position_ids": self._next, "attention_mask": self._mask}
        states = self._adapter.read(inputs, self._cache)
        self._next = self._next + 1
        return states

    def all_rows(self, states: Tensor, rows: int) -> Tensor:
        """States [b, 1, d] of the rows in the cache as states of the whole batch [B, 1, d]; zeros for removed rows."""
        if len(states) == rows:
            return states
        return states.new_zeros(rows, *states.shape[1:]).index_copy(0, self._rows.to(states.device), states)


def answer_tokens(tokens: Tensor) -> list[Tensor]:
    """The token ids of each answer on the CPU, without the padding after its end."""
    return [row[: int((row >= 0).sum())] for row in tokens.cpu()]
