"""Token ids to pieces of text, and pieces to words."""

from __future__ import annotations

from ercr.words.pieces import group, pieces


def test_pieces_join_to_the_decoded_text_and_bytes_stay_with_their_character(load):
    adapter = load("qwen2_vl").adapter
    tokenizer = adapter.tokenizer
    for text in ("a dog 狗 and naïve café – ok", " x", "日本語 text"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        parts = pieces(adapter.decode, ids)
        assert "".join(parts) == text
        words = group(parts)
        assert [i for word in words for i in word] == list(range(len(ids)))
    assert group(["a", " dog", "s", ",", " 狗", "狗", "", "é"]) == [[0], [1, 2], [3], [4], [5, 6, 7]]
    assert group([]) == []
