"""Greedy decoding of a batch that records as it goes, and lets finished answers leave the batch.

The tokens are those of the model's own `generate` for the same batch, in every precision; the loop is our own so that
a bulk run stops paying for answers that have ended, and so that nothing is worked out on the device only to be read
back. Every other kind of decoding
(sampling, beams, penalties, assistants) is left to `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.models.base import Adapter, Batch

_PLAIN_OPTIONS = frozenset(
    "max_new_tokens do_sample num_beams temperature top_p top_k eos_token_id pad_token_id num_return_sequences".split()
)
# settings of a checkpoint that change greedy decoding, with the values that do not
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
_ROOM = 256  # tokens that an answer first has room for; it grows as it is spoken, whatever its limit is
_LEAVE = 8  # finished answers leave when they are more than one in so many


def is_plain_greedy(adapter: Adapter, options: dict[str, Any]) -> bool:
    """Whether the options and the checkpoint's own settings mean: take the most probable token, nothing else.

    Tokens that the checkpoint never says (`suppress_tokens`) are left out by `likeliest`.
    """
    if options.get("do_sample") or options.get("num_beams", 1) != 1 or not set(options) <= _PLAIN_OPTIONS:
        return False
    settings = adapter.model.generation_config
    return all(getattr(settings, name, None) in values for name, values in _NEUTRAL.items())


def end_tokens(adapter: Adapter, options: dict[str, Any]) -> list[int]:
    ends = options.get("eos_token_id", adapter.model.generation_config.eos_token_id)
    return [ends] if isinstance(ends, int) else list(ends or [])


def likeliest(adapter: Adapter, states: Tensor) -> Tensor:
    """The most probable token behind the last of the states [B, L, d], of those that may be said."""
    logits: Tensor = adapter.head(states[:, -1:])[:, -1].float()  # as `generate` asks, whose rounding this keeps
    suppressed_tokens = adapter.suppressed_tokens
    return (
        logits if suppressed_tokens is None else logits.masked_fill(suppressed_tokens.to(logits.device), -torch.inf)
    ).argmax(-1)


class Speech:
    """A batch being spoken: tokens and states so far, and which rows still speak."""

    def __init__(self, adapter: Adapter, batch: Batch, limit: int, ends: Sequence[int]) -> None:
        from transformers import DynamicCache

        self._adapter, self._limit = adapter, limit
        self._embed = adapter.model.get_input_embeddings()
        self._ends = torch.tensor(ends, device=batch.ids.device, dtype=torch.long)
        self._cache = DynamicCache(config=adapter.model.config.get_text_config())
        self._mask, self._next = batch.mask, batch.next_positions
        rows = len(batch.ids)
        self.tokens = batch.ids.new_full((rows, min(limit, _ROOM)), -1)
        self._speaking = torch.arange(rows, device=batch.ids.device)  # rows of the batch that are still in the cache
        self._done = torch.zeros(rows, dtype=torch.bool, device=batch.ids.device)
        self.length = 0
        # products of fewer rows may round differently, which in half precision can change a word
        self._leaves = torch.promote_types(adapter.model.dtype, torch.float32) == adapter.model.dtype

    @torch.no_grad()
    def choose(self, states: Tensor) -> Tensor:
        """The next token of every speaking row, from its last state."""
        said = likeliest(self._adapter, states).to(self.tokens.device)
        self.newest = said
        self.length += 1
        return said

    def hear(self, states: Tensor) -> bool:
        """Take down the next token of every speaking row; False when all have ended."""
        said = self.choose(states)
        room = self.tokens.shape[1]
        if self.length > room:
            self.tokens = F.pad(self.tokens, (0, min(room, self._limit - room)), value=-1)
        if len(self._ends):
            # rows that have ended but not left speak into the void
            self.tokens[self._speaking, self.length - 1] = said.masked_fill(self._done, -1)
            self._done = self._done | torch.isin(said, self._ends)
        else:
            self.tokens[:, self.length - 1] = said
        if self.length == self._limit:
            return False
        return self._leave() if len(self._ends) else True

    def _leave(self) -> bool:
        ended = int(self._done.sum())
        if ended == len(self._done):
            return False
        if self._leaves and ended * _LEAVE > len(self._done):
            keep = (~self._done).nonzero()[:, 0]
            self._cache.batch_select_indices(keep)
            self._mask = None if self._mask is None else self._mask[keep]
            self._next, self._speaking = self._next[keep], self._speaking[keep]
            self.newest, self._done = self.newest[keep], self._done[keep]
        return True

    def first(self, batch: Batch) -> Tensor:
        """The pass over the prompts."""
        self.embeds = self._adapter.embed(batch)
        return self._adapter.read(self.embeds, batch.positions, batch.mask, self._cache)

    def step(self) -> Tensor:
        """The pass over the newest tokens."""
        if self._mask is not None:
            self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)
        embeds = self._embed(self.newest[:, None])
        states = self._adapter.read(embeds, self._next, self._mask, self._cache)
        self._next = self._next + 1
        return states

    def spread(self, states: Tensor, rows: int) -> Tensor:
        """States [b, 1, d] of the speaking rows as rows of the whole batch [B, 1, d]."""
        if len(states) == rows:
            return states
        return states.new_zeros(rows, *states.shape[1:]).index_copy(0, self._speaking.to(states.device), states)


def answers(tokens: Tensor) -> list[Tensor]:
    """Rows of spoken tokens on the host, without what lies behind their end."""
    spoken = tokens.cpu()
    return [row[: int((row >= 0).sum())] for row in spoken]
