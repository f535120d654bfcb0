"""The installed tagger and lemmatizer, and nouns matched to categories."""

from __future__ import annotations

import sys
from types import SimpleNamespace

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
    with pytest.raises(module.InputError, match="is not the expected version"):
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


def test_what_tags_and_what_finds_lemmas_is_named_and_used_wherever_it_comes_from(monkeypatch):
    nltk, wordnet = ("nltk 1", lambda word: f"n-{word}"), SimpleNamespace(name="W", noun_lemma=lambda word: f"w-{word}")
    spacy = module.Language("spacy 1", lambda word: f"s-{word}", lambda word: f"l-{word}")

    def found(*parts):
        for name, part in zip(("_nltk_tagger", "find_wordnet", "_spacy"), parts, strict=True):
            monkeypatch.setattr(module, name, lambda part=part: part)
        language = english.__wrapped__()
        return language.name, language.tag("a"), language.lemma("a")

    assert found(nltk, wordnet, None) == ("nltk 1, lemmas of W", "n-a", "w-a")
    assert found(nltk, wordnet, spacy) == ("nltk 1, lemmas of W", "n-a", "w-a")
    assert found(nltk, None, spacy) == ("nltk 1, lemmas of spacy 1", "n-a", "l-a")
    assert found(None, wordnet, spacy) == ("spacy 1, lemmas of W", "s-a", "w-a")
    assert found(None, None, spacy) == ("spacy 1", "s-a", "l-a")
    for parts in ((nltk, None, None), (None, wordnet, None)):
        with pytest.raises(module.InputError):
            found(*parts)


def test_taggers_read_a_word_alone_and_are_none_where_they_are_missing(monkeypatch):
    tagged = SimpleNamespace(__version__="1", pos_tag=lambda words: [(word, f"tag of {word}") for word in words])
    monkeypatch.setitem(sys.modules, "nltk", tagged)
    name, tag = module._nltk_tagger()
    assert (name, tag("dog")) == ("nltk 1", "tag of dog")

    def no_data(words):
        raise LookupError

    tagged.pos_tag = no_data
    assert module._nltk_tagger() is None
    for package in ("nltk", "spacy"):
        monkeypatch.setitem(sys.modules, package, None)
    assert module._nltk_tagger() is module._spacy() is None
    tokens = [SimpleNamespace(tag_="NN", lemma_="ice"), SimpleNamespace(tag_="VB", lemma_="cream")]
    read = module._by_pipeline("p", lambda word: tokens if word else [])
    assert (read.name, read.tag("ice-cream"), read.lemma("ice-cream")) == ("p", "NN", "ice")
    assert (read.tag(""), read.lemma("")) == ("", "")
