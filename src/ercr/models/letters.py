"""How every token of a vocabulary is spelt, as numbers, so that spellings can be compared on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

LONGEST = 16  # letters that are kept of a token
_MARKS = "▁Ġ"  # what stands for a space before a word: SentencePiece's mark and that of byte-level tokenizers


def letters(tokenizer: Any, vocabulary: int) -> Tensor:
    """Letters [V, LONGEST] of every token without case and space before it; 0 behind its end."""
    table = np.zeros((vocabulary, LONGEST), np.int32)
    known = min(vocabulary, len(tokenizer))
    for id_, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(known)))):
        text = (token or "").strip(_MARKS + " ").lower()[:LONGEST]
        table[id_, : len(text)] = [ord(letter) for letter in text]
    return torch.from_numpy(table)
