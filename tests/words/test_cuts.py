"""Token ids to pieces, and pieces to words, over a decoding that is written out here."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from ercr.words.pieces import group, pieces


def decoding(tokens):
    """A tokenizer's decoding: the bytes of the tokens together; the text loses a space that it begins with."""

    def decode(ids):
        return b"".join(tokens[i] for i in ids).decode(errors="replace").removeprefix(" ")

    return decode


@given(st.text(alphabet="a 狗é🐕", max_size=8), st.data())
def test_pieces_are_what_each_token_adds_however_the_bytes_are_cut(text, data):
    text = "x" + text
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1)))) if len(raw) > 1 else []
    tokens = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    found = pieces(decoding(tokens), range(len(tokens)))
    assert "".join(found) == text
    done = b""
    for token, piece in zip(tokens, found, strict=True):
        done += token
        try:
            done.decode()
        except UnicodeDecodeError:
            assert piece == ""
        else:
            assert piece


def test_a_character_that_is_still_open_is_held_back_until_the_text_is_complete():
    tokens = [b"a", " 狗".encode()[:2], " 狗".encode()[2:], "🐕".encode()[:3]]
    decode = decoding(tokens)
    assert pieces(decode, [0, 1], complete=False) == ["a", ""]
    assert pieces(decode, [0, 1, 2], complete=False) == ["a", "", " 狗"]
    assert pieces(decode, [0, 1, 2, 3], complete=False) == ["a", "", " 狗", ""]
    assert pieces(decode, [0, 1, 2, 3]) == ["a", "", " 狗", "\ufffd"]
    assert pieces(decode, [0], complete=False) == ["a"]
    assert pieces(decode, []) == []


def test_a_word_starts_at_spaces_punctuation_and_each_character_of_scripts_without_spaces():
    assert group(["a", " dog", "s", ",", " it", "'s"]) == [[0], [1, 2], [3], [4], [5]]
    for mark in string.punctuation:
        assert group(["a", mark]) == [[0], [1]]
    # the first and last characters of hiragana and katakana, of the ideographs and their extensions
    for first, last in ("\u3040\u30ff", "\u3400\u4dbf", "\u4e00\u9fff", "\uf900\ufaff", "\U00020000\U0002fa1f"):
        assert group(["a", first]) == group(["a", last]) == [[0], [1]]
        assert group(["a", chr(ord(first) - 1)]) == [[0, 1]]
        assert group(["a", chr(ord(last) + 1)]) == [[0, 1]] or chr(ord(last) + 1) in "\u3400\u4e00"
    assert group(["いぬ", "と", "ネコ"]) == [[0], [1], [2]]
    assert group(["é", "é", "ж"]) == [[0, 1, 2]]


def test_a_break_starts_a_word_wherever_it_falls():
    assert group(["do", "g", "gy"], {2}) == [[0, 1], [2]]
    assert group(["do", "", "gy"], {1}) == [[0], [1, 2]]  # the token that the break is at completes nothing yet
    assert group(["do", "g"], {0}) == [[0, 1]]


def test_tokens_without_text_go_with_what_they_complete_or_with_the_word_before():
    assert group(["a", "", " 狗"]) == [[0], [1, 2]]
    assert group(["a", "", "b"]) == [[0, 1, 2]]
    assert group(["a", ""]) == [[0, 1]]
    assert group(["", "a", " b", "", ""]) == [[0, 1], [2, 3, 4]]
    assert group(["", ""]) == [[0, 1]]
    assert group([""]) == [[0]]
    assert group([]) == []
