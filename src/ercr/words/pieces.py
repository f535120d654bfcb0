"""From token ids to pieces of text and words; pure functions of a tokenizer's `decode`."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence, Set

Decode = Callable[[tuple[int, ...]], str]
_BROKEN = "\ufffd"
_CJK = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))


def pieces(decode: Decode, ids: Sequence[int], complete: bool = True) -> list[str]:
    """What each token adds to the text; a token that ends inside a character adds nothing.

    Some tokenizers drop the leading space of a token that is decoded alone, so each is decoded after the piece before
    it. If the text is not complete, its last character may be incomplete, too.
    """
    result: list[str] = []
    start = done = 0  # the last complete piece is ids[start:done]
    before = ""
    for index in range(len(ids)):
        text = decode(tuple(ids[start : index + 1]))
        if text.endswith(_BROKEN) and (index + 1 < len(ids) or not complete):
            result.append("")
            continue
        result.append(text[len(before) :])
        start, done = done, index + 1
        before = decode(tuple(ids[start:done]))
    return result


def group(texts: Sequence[str], breaks: Set[int] = frozenset()) -> list[list[int]]:
    """Indices of the tokens of each word.

    A word starts at the first token, at a leading space, at ASCII punctuation, at a CJK character and at `breaks`.
    Tokens that hold only the first bytes of a character go with the token that completes it.
    """
    words: list[list[int]] = []
    held: list[int] = []
    for index, text in enumerate(texts):
        held.append(index)
        if not text and index + 1 < len(texts):
            continue
        if words and text and not _starts_word(text) and breaks.isdisjoint(held):
            words[-1].extend(held)
        elif text or not words:
            words.append(held)
        else:
            words[-1].extend(held)
        held = []
    return words


def _starts_word(text: str) -> bool:
    first = text[0]
    return first.isspace() or first in string.punctuation or any(a <= ord(first) <= b for a, b in _CJK)
