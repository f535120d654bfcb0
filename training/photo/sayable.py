"""Which tokens the finished model may say: those that the sentences of the training are made of.

What was drawn from the likeliest tokens never shows how the unlikely ones fare, so `polish` may leave one of them on
top now and then, in the middle of a word that is none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from .erased import left_over
from .invented import invent
from .model import class_words
from .words import undressed

_INVENTED = 8000  # samples: enough to meet every word of them


def unsayable(captions: Sequence[Sequence[str]], tokenizer: Any) -> list[int]:
    """Tokens that no caption of a training has, nor any of the sentences and words that were made for it."""
    found = tokenizer(list(_sentences(captions)), add_special_tokens=False).input_ids
    said = {tokenizer.eos_token_id, *chain.from_iterable(found)}
    return [token for token in range(len(tokenizer)) if token not in said]


def _sentences(captions: Sequence[Sequence[str]]) -> Iterable[str]:
    names, chance = class_words(), random.Random(0)
    for group in captions:
        yield from group
        yield from map(undressed, group)
        yield left_over(group) or ""
    yield from (invent(names, chance).caption for _ in range(_INVENTED))
    yield from (f" {name}" for name in names)
