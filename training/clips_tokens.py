"""The tokenizer of the model for pairs and clips: that of the model for scenes with more whole words; no model here.

New merges stand behind the old ones, so whatever the old tokenizer wrote is written with the same tokens.
"""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .tokens import Speech

WORDS = (
    *(" stays", " moves", " enters", " leaves", " crosses", " from", " then", " first", " second", " picture"),
    *(" shows", " video", " happens", " the", " to", " in", " is", "What", "Which", "In", "Describe", " which"),
    *(" left", " right", " top", " bottom", " one", " sentence", " this", "?"),
)


def extended_tokenizer(folder: Path, speech: Speech) -> PreTrainedTokenizerFast:
    """The tokenizer of a model folder, with `WORDS` as single tokens."""
    stored = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    specials = set(speech.specials)
    names = [name for name, _ in sorted(stored["vocab"].items(), key=lambda item: item[1]) if name not in specials]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in stored["merges"]]
    tokenizer = _byte_pairs(names, merges)
    for word in WORDS:
        pieces = tokenizer.encode(word, add_special_tokens=False).tokens
        for before, after in _joins(pieces):
            if before + after not in names:
                names.append(before + after)
                merges.append((before, after))
        tokenizer = _byte_pairs(names, merges)
    tokenizer.add_special_tokens(list(speech.specials))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=speech.end,
        pad_token=speech.pad,
        chat_template=speech.template,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
        extra_special_tokens=dict(speech.named),
    )


def _joins(pieces: list[str]) -> list[tuple[str, str]]:
    """The merges that make one token of some pieces, from the right: beginnings are what other words share."""
    joined = list(accumulate(reversed(pieces), lambda behind, piece: piece + behind))
    return [(after.removesuffix(before), before) for before, after in pairwise(joined)]


def _byte_pairs(names: list[str], merges: list[tuple[str, str]]) -> Tokenizer:
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def moved_rows(old: PreTrainedTokenizerFast, new: PreTrainedTokenizerFast, table: Tensor) -> Tensor:
    """The embeddings of an old tokenizer's tokens for a new one; a new word is the mean of its old pieces."""
    known = old.get_vocab()
    rows = []
    for token, _ in sorted(new.get_vocab().items(), key=lambda item: item[1]):
        text = new.convert_tokens_to_string([token])
        ids = [known[token]] if token in known else old.encode(text, add_special_tokens=False)
        rows.append(table[torch.tensor(ids)].mean(0))
    return torch.stack(rows)
