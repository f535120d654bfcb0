"""ROUGE-L and METEOR are the packages' own, and WordNet is read where it is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ercr.metrics import text
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
    wordnet = find_wordnet()
    reader = wordnet.reader if wordnet else text._NoSynonyms()
    words = [reference.lower().split() for reference in REFERENCES]
    assert text.meteor(ANSWER, REFERENCES) == meteor.meteor_score(words, ANSWER.lower().split(), wordnet=reader)
    assert text.meteor(ANSWER, [ANSWER]) == pytest.approx(1, abs=0.01)
    assert text.meteor(ANSWER, []) is None
    assert text.meteor("", REFERENCES) == 0
    assert ("without synonyms" in text.meteor_backend()) == (wordnet is None)


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
    wordnet = find_wordnet()
    assert [wordnet.noun_lemma(w) for w in ("dogs", "buses", "women", "zzyx")] == ["dog", "bus", "woman", "zzyx"]
    assert "3.0" in wordnet.name
    assert "couch" in {lemma for synset in wordnet.reader.synsets("sofa") for lemma in synset.lemma_names()}
    assert text.meteor("a sofa", ["a couch"]) == text.meteor("a couch", ["a couch"])
