"""Answers scored by every protocol, compared with the protocol re-enacted in loops; and what each option changes."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from ercr.metrics.answers import score_answer
from ercr.metrics.pooled import Pooled
from ercr.metrics.protocol import OPTIONS, Protocol
from tests.metrics.made import CATEGORIES, END, LANGUAGE, SHARED, blobs, explanation, sums, tag
from tests.metrics.reenacted import centre_crop, reenact

TAM, CLEAN = Protocol.preset("tam"), Protocol.preset("clean")
TOGGLED = list(
    dict.fromkeys(
        replace(base, **{name: value}) for base in (TAM, CLEAN) for name, values in OPTIONS.items() for value in values
    )
)
SAID = [" a", " the", " and", " dog", "gy", " dogs", " chair", "s", " person", " man", " bear", " umbrellas", " sky"]
SAID += [" red", " them", "selves", ",", ".", "'s", "狗", "ネコ", "ね", " -", " hot", ".\n"]


def random_answer(rng):
    """Tokens, maps, labels: neighbours often share a category, and some categories are not in the picture."""
    texts = ["A" if rng.random() < 0.5 else "dog"]
    texts += [SAID[rng.integers(len(SAID))] if rng.random() < 0.7 else texts[-1] for _ in range(rng.integers(0, 14))]
    texts += [END] if rng.random() < 0.7 else []
    labels = rng.choice([0, 1, 18, 58], (3, 4)).repeat(11, 0).repeat(13, 1).astype(np.uint8)
    return texts, blobs(rng, len(texts)), labels


def score(texts, maps, labels, protocol=TAM, categories=CATEGORIES, **options):
    return score_answer(explanation(texts, maps), labels, categories, LANGUAGE, protocol, **options)


def again(texts, special, maps, labels, categories, rules, crop=None):
    """Re-enacted, with categories as the public code has them: names, each with its id."""
    named = [(name, id_) for id_, name in categories]
    return reenact(texts, special, maps, labels, named, tag, LANGUAGE.lemma, rules, crop)


def pooled(scored):
    objects = [(w.pooled.iou, w.pooled.precision, w.pooled.recall) for w in scored.words if w.pooled]
    return objects, [w.quiet for w in scored.words if w.quiet is not None]


@pytest.mark.parametrize("protocol", TOGGLED, ids=str)
def test_random_answers_score_as_the_protocol_reenacted(protocol):
    rng = np.random.default_rng(0)
    figures, lists = Pooled(), {"scores": [], "quiet": []}
    for number in range(60):
        texts, maps, labels = random_answer(rng)
        special = [text == END for text in texts]
        categories = SHARED if number % 2 else list(CATEGORIES.items())
        found = score(texts, maps, labels, protocol, categories)
        made = again(texts, special, maps, labels, categories, asdict(protocol))
        assert [w.text for w in found.words] == made["words"]
        objects, quiet = pooled(found)
        np.testing.assert_allclose(np.reshape(objects, (-1, 3)), np.reshape(made["scores"], (-1, 3)), atol=1e-12)
        np.testing.assert_allclose(quiet, made["quiet"], atol=1e-12)
        assert found.limit == (None if made["b"] is None else pytest.approx(made["b"], abs=1e-12))
        figures.add(str(number), sums(found))
        for name in lists:
            lists[name] += made[name]
    objects, functions = np.mean(lists["scores"], 0), np.mean(lists["quiet"])
    values = {name: interval.value for name, interval in figures.summary(10).items()}
    expected = [*objects, functions, 2 * objects[0] * functions / (objects[0] + functions)]
    names = ("obj_iou", "precision", "recall", "func_iou", "f1_iou")
    np.testing.assert_allclose([values[n] for n in names], expected, atol=1e-9)


def test_rows_hold_every_token_and_every_word_once():
    schema = pytest.importorskip("ercr.evaluate.schema")
    rng = np.random.default_rng(1)
    for _ in range(20):
        texts, maps, labels = random_answer(rng)
        found = score(texts, maps, labels)
        rows = found.rows()
        assert all(list(row) == [name for name, _ in schema.TOKEN + schema.WORD] for row in rows)
        assert [row["token_text"] for row in rows] == texts
        assert [row["token_id"] for row in rows] == [101 + i for i in range(len(texts))]
        for column, figure in (("object_iou", "obj_iou"), ("function_quiet", "func_iou"), ("object_recall", "recall")):
            values = [row[column] for row in rows if row[column] is not None]
            assert (sum(values), len(values)) == (pytest.approx(sums(found)[figure][0]), sums(found)[figure][1])
        for row in rows:
            assert (row["threshold"] is not None) == (row["kind"] == "noun")
            assert row["category_name"] == CATEGORIES.get(row["category"])
            assert (row["iou"] is not None) == (row["category"] in labels)
            assert (row["quiet"] is not None) == (row["kind"] == "function" and found.limit is not None)


class TestOptions:
    """One answer per option: what changes, and that nothing else does."""

    labels = np.zeros((60, 90), np.uint8)
    labels[10:40, 10:50] = 18
    labels[40:60, 60:90] = 62

    def both(self, texts, option, one, other, seed=0):
        maps = blobs(np.random.default_rng(seed), len(texts))
        return [score(texts, maps, self.labels, replace(CLEAN, **{option: value})) for value in (one, other)]

    def test_end_token(self):
        glued, dropped = self.both(["A", " dog", END], "end_token", "glue", "drop")
        assert [w.text for w in glued.words] == ["A", f"dog{END}"]
        assert glued.words[1].category is None
        assert glued.words[1].threshold >= dropped.words[1].threshold  # a noun of two tokens now
        assert dropped.words[1].category == 18
        assert [len(s.rows()) for s in (glued, dropped)] == [3, 2]

    def test_mismatch(self):
        texts, maps = ["A", " dog", "gy"], blobs(np.random.default_rng(0), 3)
        left = score(texts, maps, self.labels, TAM, retokenized=["A", " doggy"])
        assert left.left_out == "the answer has 3 tokens but 2 after decoding and tokenising again"
        assert (left.rows(), sums(left)["obj_iou"], left.limit) == ([], (0, 0), None)
        kept = score(texts, maps, self.labels, replace(TAM, mismatch="score"), retokenized=["A", " doggy"])
        assert kept == score(texts, maps, self.labels, replace(TAM, mismatch="score"))
        again = score(texts, maps, self.labels, TAM, retokenized=["A", " dog", " dog"])
        assert [w.text for w in again.words] == ["A", "dog", "dog"]
        assert again.left_out is None

    def test_split(self):
        token, character = self.both(["the", " dog", "'s", " chair", ".\n"], "split", "token", "character")
        assert [w.text for w in token.words] == ["the", "dog's", "chair.\n"]
        assert [w.text for w in character.words] == ["the", "dog", "'s", "chair", "."]

    def test_match(self):
        last, whole = self.both(["dog", " man"], "match", "any", "exact")
        assert [w.category for w in last.words] == [58, None]
        assert [w.category for w in whole.words] == [18, None]
        assert [s.limit for s in (last, whole)] == [whole.limit] * 2  # matched or not, nouns set the limit
        assert [w.category for w in self.both(["dog", " man"], "match", "any", "synonyms")[1].words] == [18, 1]

    def test_background(self):
        categories = {0: "blue sky", 18: "dog"}
        maps = blobs(np.random.default_rng(0), 3)
        dropped, noun = (
            score(["the", " sky", " dog"], maps, self.labels, replace(TAM, background=value), categories)
            for value in ("drop", "noun")
        )
        assert [(w.kind, w.category) for w in dropped.words[1:]] == [("other", None), ("noun", 18)]
        assert [(w.kind, w.category) for w in noun.words[1:]] == [("noun", None), ("noun", 18)]
        assert dropped.limit == dropped.words[2].threshold
        assert noun.limit == (noun.words[1].threshold + noun.words[2].threshold) / 2

    def test_empty(self):
        maps = np.zeros((1, 6, 9))
        no_number, zero = (score([" dog"], maps, self.labels, replace(CLEAN, empty=value)) for value in ("nan", "zero"))
        assert np.isnan(no_number.words[0].overlap.precision)
        assert zero.words[0].overlap == replace(no_number.words[0].overlap, precision=0.0)
        figures = Pooled()
        figures.add("one", sums(no_number))
        figures.add("two", sums(score([" dog"], np.ones((1, 6, 9)), self.labels, CLEAN)))
        found = figures.summary(10)
        assert np.isnan(found["precision"].value)  # as the public code's mean over the dataset is
        assert np.isfinite([found["obj_iou"].value, found["recall"].value]).all()

    def test_an_id_with_several_names_is_found_by_each_and_the_last_name_wins(self):
        maps = blobs(np.random.default_rng(0), 3)
        scored = score([" dog", " man", " person"], maps, self.labels, TAM, SHARED)
        assert [w.category for w in scored.words] == [1, 18, 1]
        assert [row["category_name"] for row in scored.rows()][1] == "dog / man"
        whole = score([" dog", " man", " person"], maps, self.labels, CLEAN, SHARED)
        assert [w.category for w in whole.words] == [18, 18, 1]

    def test_merge_of_two_words_for_one_object(self):
        for scored in self.both([" dog", " dogs", " chair"], "merge", "list", "words"):
            ious = [w.overlap.iou for w in scored.words]
            assert [o[0] for o in pooled(scored)[0]] == [max(ious[:2]), ious[2]]

    def test_merge_strikes_others_when_the_second_word_has_no_mask(self):
        quirky, clean = self.both([" dog", " chair", " person", " person"], "merge", "list", "words")
        ious = [w.overlap.iou for w in clean.words[:2]]
        assert [o[0] for o in pooled(clean)[0]] == ious
        assert [o[0] for o in pooled(quirky)[0]] == [max(ious)]
        assert [w.overlap for w in quirky.words] == [w.overlap for w in clean.words]

    def test_subword(self):
        texts = ["the", " umb", "re", "llas", " dog"]
        names = {"umbrellas": "NN", "dog": "NN", "the": "DT"}
        language = replace(LANGUAGE, tag=lambda word: names.get(word, "JJ"), lemma=lambda w: w.removesuffix("s"))
        maps = blobs(np.random.default_rng(3), 5)
        labels = np.where(self.labels == 18, 28, 0)
        found = {}
        for subword in ("max", "mean", "first"):
            rules = replace(CLEAN, subword=subword)
            scored = score_answer(explanation(texts, maps), labels, {28: "umbrella", 18: "dog"}, language, rules)
            tokens = scored.tokens[1:4]
            found[subword] = scored.words[1]
        ious, thresholds = [t.overlap.iou for t in tokens], [t.threshold for t in tokens]
        assert (found["max"].overlap.iou, found["max"].threshold) == (max(ious), max(thresholds))
        assert found["max"].overlap == tokens[int(np.argmax(ious))].overlap
        assert found["mean"].overlap.iou == pytest.approx(np.mean(ious))
        assert found["mean"].overlap.precision == pytest.approx(np.mean([t.overlap.precision for t in tokens]))
        assert found["mean"].threshold == pytest.approx(np.mean(thresholds))
        assert (found["first"].overlap, found["first"].threshold) == (tokens[0].overlap, thresholds[0])

    def test_place(self):
        box, maps = (15, 0, 75, 60), blobs(np.random.default_rng(4), 2, (6, 6))
        cropped = explanation(["the", " dog"], maps, (60, 90), tuple(map(float, box)))
        seen = score_answer(cropped, self.labels, CATEGORIES, LANGUAGE, CLEAN)
        stretched = score_answer(cropped, self.labels, CATEGORIES, LANGUAGE, replace(CLEAN, place="stretch"))
        for scored, crop in ((seen, centre_crop((60, 90), box)), (stretched, None)):
            rules = asdict(CLEAN)
            made = again(["the", " dog"], [False] * 2, maps, self.labels, CATEGORIES.items(), rules, crop)
            np.testing.assert_allclose(pooled(scored)[0], made["scores"], atol=2e-3)
            assert scored.limit == pytest.approx(made["b"], abs=1)
        assert seen.words[1].overlap != stretched.words[1].overlap


class TestEdges:
    labels = np.zeros((60, 90), np.uint8)
    labels[10:40, 10:50] = 18

    @pytest.mark.parametrize("protocol", [TAM, CLEAN], ids=str)
    def test_no_nouns_means_no_function_score(self, protocol):
        scored = score(["a", " red", " the"], blobs(np.random.default_rng(0), 3), self.labels, protocol)
        assert scored.limit is None
        assert sums(scored) == dict.fromkeys(("obj_iou", "func_iou", "precision", "recall"), (0, 0))

    @pytest.mark.parametrize("protocol", [TAM, CLEAN], ids=str)
    def test_an_empty_answer_has_no_rows(self, protocol):
        scored = score([], np.zeros((0, 6, 9)), self.labels, protocol)
        assert (scored.rows(), scored.words, scored.left_out) == ([], (), None)

    def test_a_category_that_is_not_in_the_picture_gives_a_threshold_but_no_score(self):
        scored = score(["the", " chair"], blobs(np.random.default_rng(0), 2), self.labels)
        assert scored.words[1].category == 62
        assert scored.words[1].overlap is None
        assert scored.limit == scored.words[1].threshold
        assert scored.words[0].quiet is not None

    def test_a_missing_label_file_is_an_empty_mask_of_the_grids_size(self):
        maps = np.random.default_rng(0).random((2, 6, 9))
        empty = {size: score(["the", " dog"], maps, np.zeros(size, np.uint8)) for size in ((6, 9), (60, 90))}
        assert score(["the", " dog"], maps, None) == empty[6, 9]
        assert empty[6, 9].limit != empty[60, 90].limit

    def test_masks_of_any_size_serve(self):
        maps = blobs(np.random.default_rng(2), 1)
        sizes = [np.kron(self.labels[::2, ::2], np.ones((k, k), np.uint8)) for k in (1, 2, 6)]
        ious = [score([" dog"], maps, labels, CLEAN).words[0].overlap.iou for labels in sizes]
        np.testing.assert_allclose(ious, ious[0], atol=0.05)

    def test_one_cell_and_empty_maps(self):
        for maps in (np.full((2, 1, 1), 0.7), np.zeros((2, 4, 5)), np.ones((2, 4, 5))):
            word = score(["the", " dog"], maps, self.labels, CLEAN).words[1]
            whole = float(maps.any())  # a flat map that is not 0 lies all above Otsu's threshold, which is 0 then
            assert word.threshold == 0
            assert word.overlap.recall == whole
            assert word.overlap.precision == pytest.approx(whole * (self.labels == 18).mean())

    def test_chinese_words_are_single_characters_and_bytes_stay_with_theirs(self):
        maps = blobs(np.random.default_rng(0), 5)
        names, language = {18: "狗"}, replace(LANGUAGE, lemma=lambda word: word)
        texts = ["一", "只", "", "狗", "。"]
        clean = score_answer(explanation(texts, maps), self.labels, names, language, CLEAN)
        assert [w.text for w in clean.words] == ["一", "只", "狗。"]
        texts[4] = "."
        clean = score_answer(explanation(texts, maps), self.labels, names, language, CLEAN)
        assert [(w.text, w.tokens) for w in clean.words][2] == ("狗", (2, 3))
        assert clean.words[2].category == 18
        broken = [*texts[:2], "\ufffd", "\ufffd", "."]
        tam = score_answer(explanation(texts, maps), self.labels, names, language, TAM, retokenized=broken)
        assert [w.text for w in tam.words] == ["一", "只\ufffd\ufffd", "."]

    def test_white_space_belongs_to_no_word(self):
        scored = score(["a", " ", " dog"], blobs(np.random.default_rng(0), 3), self.labels, CLEAN)
        assert [w.text for w in scored.words] == ["a", "dog"]
        assert [row["word"] for row in scored.rows()] == [0, None, 1]

    def test_kana_start_words_and_join_them_as_in_the_public_code(self):
        texts, maps = ["一", "匹", "の", "ネコ", "。"], blobs(np.random.default_rng(0), 5)
        assert [w.text for w in score(texts, maps, self.labels, CLEAN).words] == ["一", "匹", "の", "ネコ。"]
        assert [w.text for w in score(texts, maps, self.labels, TAM).words] == ["一", "匹のネコ。"]

    def test_tokens_marked_with_a_lower_bar_start_words(self):
        maps = blobs(np.random.default_rng(0), 3)
        scored = score(["a", " dog", END], maps, self.labels, TAM, retokenized=["▁a", "▁dog", END])
        assert [w.text for w in scored.words] == ["a", f"dog{END}"]


def test_a_models_answer_is_scored_like_a_made_one(load, picture):
    said = load("qwen2_vl").explain(picture, "Describe this image.", answer="a dog and the red umbrellas there")
    labels = np.zeros((180, 260), np.uint8)
    labels[40:120, 30:150] = 58
    found = score_answer(said, labels, CATEGORIES, LANGUAGE)
    answer = [t for t in said.text_tokens if t.kind == "answer"]
    maps = said.maps[[t.row for t in answer]]
    texts, special = [t.text for t in answer], [t.special for t in answer]
    made = again(texts, special, maps, labels, CATEGORIES.items(), asdict(TAM))
    np.testing.assert_allclose(pooled(found)[0], made["scores"])
    np.testing.assert_allclose(pooled(found)[1], made["quiet"])
    assert [row["probability"] for row in found.rows()] == [t.probability for t in answer]
