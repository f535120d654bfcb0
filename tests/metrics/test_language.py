"""The installed tagger and lemmatizer, and nouns matched to categories."""

from __future__ import annotations

import pytest

from ercr.metrics import language as module
from ercr.metrics.language import english
from ercr.metrics.matching import match_category
from tests.metrics.made import CATEGORIES, LANGUAGE


def test_the_installed_tagger_and_lemmatizer_know_english():
    language = english()
    assert [language.kind(w) for w in ("the", "dog", "umbrellas", "and", "red", "she", "can")] == [
        "function", "noun", "noun", "function", "other", "function", "function",
    ]  # fmt: skip
    assert [language.stem(w) for w in ("Dogs", "umbrellas", "bus")] == ["dog", "umbrella", "bus"]
    assert language.name.startswith(("nltk", "spacy"))
    assert match_category("Dogs", CATEGORIES, language, "exact") == 18
    assert match_category("men", CATEGORIES, language, "synonyms") == 1


def test_without_any_tagger_the_error_says_what_to_install(monkeypatch):
    for name in ("_nltk_tagger", "_spacy"):
        monkeypatch.setattr(module, name, lambda: None)
    with pytest.raises(module.InputError, match=r"\.\[evaluate\]"):
        english.__wrapped__()


def test_another_content_under_the_name_of_the_copied_model_is_refused(tmp_path, monkeypatch):
    """The copy on PyPI is a stranger's, so its files are compared; no code of its package runs."""
    pytest.importorskip("spacy")
    home = tmp_path / module._COPY
    (home / module._COPY_FOLDER).mkdir(parents=True)
    (home / "__init__.py").write_text("raise SystemExit('imported')")
    (home / module._COPY_FOLDER / "meta.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(module.InputError, match="not the one that scores are defined with"):
        module._checked_copy()


def test_matching_follows_its_three_rules():
    def found(word, match):
        return match_category(word, CATEGORIES, LANGUAGE, match)

    assert found("dogs", "any") == 58  # the last match wins, as published results have it
    assert found("dogs", "exact") == 18
    assert found("Bear", "exact") == found("teddy", "any") == 88
    assert [found("woman", match) for match in ("any", "exact", "synonyms")] == [None, None, 1]
    assert found("sofa", "synonyms") is None
    assert match_category("dog", {58: "hot dog", 18: "dog"}, LANGUAGE) == 18
    assert match_category("tshirt", {7: "T-shirt"}, LANGUAGE) == 7
    assert match_category("dog", {0: "dog"}, LANGUAGE) is None  # 0 is the background
    assert match_category("dog", {0: "dog"}, LANGUAGE, background=True) == 0
    assert match_category("dog", [(1, "hot dog"), (2, "dog"), (1, "dog house")], LANGUAGE) == 1
