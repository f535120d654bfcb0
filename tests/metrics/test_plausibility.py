"""Scores of maps against label pictures, re-enacted step by step, and accumulators that merge in any order."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from ercr.metrics.faithfulness import changes, perturbed, top_masks
from ercr.metrics.language import Language, english
from ercr.metrics.matching import match_category
from ercr.metrics.plausibility import Plausibility, WordScore, merge_neighbours, score_words

CATEGORIES = {1: "person", 18: "dog", 41: "skateboard", 58: "hot dog", 62: "chair"}
NOUNS = {"dog", "dogs", "bicycle", "umbrellas", "sofa"}
FUNCTIONS = {"a", "the", "and", "there"}


@pytest.fixture(scope="module")
def language():
    """A stand-in with known answers, so that the scores are tested and not the tagger."""

    def tag(word):
        return "NN" if word in NOUNS else "DT" if word in FUNCTIONS else "JJ"

    return Language("stand-in", tag, lambda word: word.removesuffix("s"))


def test_the_installed_tagger_and_lemmatizer_know_english():
    language = english()
    assert [language.kind(w) for w in ("the", "dog", "umbrellas", "and", "red", "she", "can")] == [
        "function", "noun", "noun", "function", "other", "function", "function",
    ]  # fmt: skip
    assert [language.stem(w) for w in ("Dogs", "umbrellas", "bus", "T-shirts")] == ["dog", "umbrella", "bus", "tshirt"]
    assert language.name.startswith(("nltk", "spacy"))


def test_matching_follows_its_three_rules(language):
    assert match_category("dogs", CATEGORIES, language) == 58  # the last match wins, as published results have it
    assert match_category("dogs", CATEGORIES, language, "exact") == 18
    assert match_category("woman", CATEGORIES, language, "exact") is None
    assert match_category("woman", CATEGORIES, language, "synonyms") == 1
    assert match_category("sofa", CATEGORIES, language) is None


def test_scores_equal_the_protocol_step_by_step(load, picture, language):
    answer = "a dog and the red umbrellas there"
    explanation = load("qwen2_vl").explain(picture, "Describe this image.", answer=answer)
    labels = np.zeros((180, 260), np.uint8)
    labels[40:120, 30:150] = 58
    scores = {s.text: s for s in score_words(explanation, labels, CATEGORIES, language)}

    thresholds, best = {}, 0.0
    for word in ("dog", "umbrellas"):
        per_token = []
        for token in explanation.word(word).tokens:
            small = (explanation.maps[token.row] * 255).astype(np.uint8)
            large = cv2.resize(small, (260, 180))
            limit, binary = cv2.threshold(large, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
            per_token.append(limit)
            if word == "dog":
                inside, predicted = labels == 58, binary > 0
                best = max(best, (inside & predicted).sum() / (inside | predicted).sum())
        thresholds[word] = max(per_token)
    assert scores["dog"].iou == pytest.approx(best)
    assert scores["umbrellas"].iou is None
    assert {w: scores[w].threshold for w in thresholds} == thresholds
    bar = np.mean(list(thresholds.values()))
    for word in ("a", "and", "the", "there"):
        shares = [
            ((explanation.maps[t.row] * 255).astype(np.uint8) < bar).mean() for t in explanation.word(word).tokens
        ]
        assert scores[word].quiet == pytest.approx(np.mean(shares))
    assert scores["red"].kind == "other"


def test_no_nouns_means_no_function_score(load, picture, language):
    explanation = load("qwen2_vl").explain(picture, "x", answer="a red the")
    scores = score_words(explanation, np.zeros((9, 9), np.uint8), CATEGORIES, language)
    assert all(s.quiet is None and s.iou is None for s in scores)
    total = Plausibility()
    total.add("x", scores)
    assert total.summary(resamples=10)["obj_iou"][0] == 0


def test_neighbours_of_one_category_count_once():
    def noun(category, iou):
        return WordScore("w", "noun", category, 10.0, iou)

    gap = WordScore("and", "function")
    assert merge_neighbours([noun(1, 0.2), noun(1, 0.5), gap, noun(1, 0.1), noun(2, 0.4)]) == [0.5, 0.1, 0.4]
    assert merge_neighbours([noun(1, None), noun(1, 0.3)]) == [0.3]


def test_any_partition_of_the_images_gives_the_same_figures():
    rng = np.random.default_rng(0)
    parts = [Plausibility() for _ in range(4)]
    whole = Plausibility()
    for image in range(40):
        scores = [WordScore("n", "noun", int(c), 1.0, float(v)) for c, v in zip(range(3), rng.random(3), strict=True)]
        scores += [WordScore("the", "function", quiet=float(rng.random()))]
        parts[image % 4].add(f"{image:03d}", scores)
        whole.add(f"{image:03d}", scores)
    merged = parts[3].merge(parts[0]).merge(parts[2]).merge(parts[1])
    for name, figures in whole.summary(resamples=200).items():
        np.testing.assert_allclose(merged.summary(resamples=200)[name], figures, atol=1e-9)
        assert figures[1] <= figures[0] <= figures[2]


def test_deletion_and_insertion_take_exactly_the_top_pixels():
    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    heat = np.zeros((4, 5), np.float32)
    heat[1, 2], heat[3, 4] = 0.9, 0.5
    deleted, inserted, baseline = perturbed(image, heat, (0.05, 0.1))
    assert top_masks(heat, [0.1])[0].sum() == 2
    assert (deleted[0] != image).any(-1).sum() == 1
    assert (deleted[1][[1, 3], [2, 4]] == baseline[[1, 3], [2, 4]]).all()
    assert (inserted[1] == np.where(top_masks(heat, [0.1])[0][..., None], image, baseline)).all()
    assert top_masks(np.zeros((2, 3), np.float32), [0.5])[0].ravel().tolist() == [True] * 3 + [False] * 3
    assert changes(-1.0, -5.0, [-2.0], [-4.0]) == ([1.0], [1.0])


def test_fixed_answers_are_rescored_under_other_images(load, picture):
    explainer = load("llava")
    spoken = explainer.explain(picture, "x", answer="a dog", method="cam")
    rows = explainer.answer_log_probabilities([picture, picture.rotate(180)], "x", "a dog")
    np.testing.assert_allclose(np.exp(rows[0]), [t.probability for t in spoken.tokens], rtol=1e-4)
    assert not np.allclose(rows[0], rows[1])


def test_methods_that_can_share_a_run_do_and_agree_with_single_runs(load, picture, monkeypatch):
    from ercr import explainer as module

    explainer = load("internvl_single")
    names = ["cam", "ercr", "tam", "attention", "ercr:views=1", "cam:layer=1"]
    alone = [explainer.explain(picture, "x", answer="a dog", method=name) for name in names]
    runs, original = [], module.trace_samples
    monkeypatch.setattr(module, "trace_samples", lambda *args: runs.append(1) or original(*args))
    together = explainer.explain_all(picture, "x", answer="a dog", methods=names)
    assert len(runs) == 2
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.maps, other.maps, atol=1e-5)
        assert one.provenance["settings"] == other.provenance["settings"]
