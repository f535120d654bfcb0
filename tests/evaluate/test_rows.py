"""Rows against the same figures computed one sample and one method at a time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ercr.datasets.registry import open_dataset
from ercr.evaluate import evaluate
from ercr.evaluate.plan import Plan
from ercr.evaluate.rows import Scorer
from ercr.metrics.answers import score_answer
from ercr.metrics.faithfulness import BUDGETS
from ercr.metrics.grouping import answer_words
from ercr.metrics.language import english
from ercr.metrics.pixels import levels
from ercr.metrics.protocol import Protocol
from ercr.metrics.text import meteor, rouge_l
from tests.metrics.made import explanation

from .conftest import OPTIONS

METHODS = ("cam", "ercr", "ercr:context=tam,views=1")


def labelled(sample):
    return sample.labels, sample.categories, english(), Protocol.parse("clean")


def same(one, other):
    return one == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)


@pytest.fixture(scope="module")
def full(explainer, tmp_path_factory):
    """A run with everything in it."""
    options = {**OPTIONS, "dataset": "scenes:2", "methods": METHODS, "suppression": True, "maps": True}
    run = evaluate(explainer, out=tmp_path_factory.mktemp("full") / "run", faithfulness="table", **options)
    return run.table().to_pylist()


def test_rows_equal_single_explanations(explainer, full):
    for index, sample in enumerate(open_dataset("scenes:2")):
        for method in METHODS:
            explanation = explainer.explain(sample.image, sample.prompt, answer=sample.references[0], method=method)
            score = score_answer(explanation, *labelled(sample))
            rows = [row for row in full if row["index"] == index and row["method"] == method]
            assert len(rows) == len(score.rows()) > 5
            for row, expected in zip(rows, score.rows(), strict=True):
                assert all(same(row[key], value) for key, value in expected.items())
                assert (row["sample"], row["status"], row["answer"]) == (sample.id, "ok", explanation.text)
                assert (row["rows"], row["columns"]) == explanation.geometry.grid
                assert row["limit"] == pytest.approx(score.limit)
                assert row["rouge_l"] == rouge_l(explanation.text, sample.references)
                assert row["meteor"] == meteor(explanation.text, sample.references)
                stored = np.frombuffer(row["map"], np.uint8).reshape(explanation.geometry.grid)
                token = [t for t in explanation.text_tokens if t.kind == "answer"][row["token"]]
                assert np.abs(stored.astype(int) - levels(explanation.maps[token.row])).max() <= 1
    assert any(row["object_iou"] is not None for row in full)


def test_suppression_compares_with_the_map_without_context(explainer, full):
    sample = open_dataset("scenes:1")[0]
    given = {"answer": sample.references[0]}
    for method in METHODS[1:]:
        after = explainer.explain(sample.image, sample.prompt, method=method, **given)
        before = explainer.explain(sample.image, sample.prompt, method=method, context="none", **given)
        for row in full:
            if (row["index"], row["method"]) == (0, method):
                at = after.tokens[row["token"]].row
                assert row["mass_before"] == pytest.approx(before.maps[at].sum(), rel=1e-4)
                assert row["mass_after"] == pytest.approx(after.maps[at].sum(), rel=1e-4, abs=1e-5)
                assert (row["inside_before"] is None) == (row["iou"] is None)
    assert all(row["mass_before"] is None for row in full if row["method"] == "cam")


def test_faithfulness_scores_the_answer_under_perturbed_pictures(explainer, full):
    sample = open_dataset("scenes:1")[0]
    image = np.asarray(sample.image)
    answer = sample.references[0]
    explanation = explainer.explain(sample.image, sample.prompt, answer=answer, method="ercr")
    rows = [row for row in full if (row["index"], row["method"]) == (0, "ercr") and row["score_whole"] is not None]
    words = [w for w in score_answer(explanation, *labelled(sample)).words if w.category is not None]
    assert [row["token"] for row in rows] == [word.tokens[0] for word in words] != []
    mean = image.reshape(-1, 3).mean(0).round().astype(np.uint8)
    for row in rows:
        heat = explanation.geometry.to_pixels(explanation.maps[explanation.tokens[row["token"]].row]).ravel()
        top = np.argsort(-heat, kind="stable")
        pictures = [image, np.broadcast_to(mean, image.shape)]
        for share in BUDGETS:
            chosen = np.isin(np.arange(heat.size), top[: int(share * heat.size)]).reshape(image.shape[:2])
            pictures += [np.where(chosen[..., None], mean, image), np.where(chosen[..., None], image, mean)]
        logs = explainer.answer_log_probabilities(pictures, sample.prompt, answer)[:, row["token"]]
        assert row["score_whole"] == pytest.approx(logs[0], abs=1e-3)
        assert row["score_blank"] == pytest.approx(logs[1], abs=1e-3)
        assert row["deleted"] == pytest.approx(logs[2::2], abs=1e-3)
        assert row["inserted"] == pytest.approx(logs[3::2], abs=1e-3)


def test_a_curve_begins_and_ends_with_the_whole_and_the_blank_picture(explainer, tmp_path):
    options = {**OPTIONS, "dataset": "scenes:1", "methods": "cam", "faithfulness": "curve"}
    run = evaluate(explainer, out=tmp_path / "run", **options)
    rows = [row for row in run.table().to_pylist() if row["score_whole"] is not None]
    assert run.settings["budgets"] == [step / 20 for step in range(21)]
    for row in rows:
        ends = row["score_whole"], row["score_blank"]
        assert (row["deleted"][0], row["deleted"][-1]) == ends == (row["inserted"][-1], row["inserted"][0])
        assert len(row["deleted"]) == len(row["inserted"]) == 21
    assert {"deletion_auc", "insertion_20"} <= set(run.scores()["cam"])


def test_words_of_tokenizers_that_drop_the_space_are_those_of_the_public_code():
    """The public code looks at the piece, whose bar marks a new word, and decodes it alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: i for i, piece in enumerate(["▁a", "▁dog", "gy", "▁", ",", "▁cat", "?"])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="?", continuing_subword_prefix=""))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?")
    assert tokenizer.decode([vocabulary["▁dog"]]) == "dog"  # alone, a piece loses its space
    ids = [vocabulary[piece] for piece in ("▁a", "▁dog", "gy", ",", "▁cat")]
    said = explanation([tokenizer.decode([i]) for i in ids], np.zeros((5, 2, 2)), prompt=())
    tokens = tuple(replace(token, id=id_) for token, id_ in zip(said.text_tokens, ids, strict=True))
    explainer = SimpleNamespace(adapter=SimpleNamespace(tokenizer=tokenizer, device=torch.device("cpu")))
    texts = Scorer(explainer, Plan("m", "scenes:1", ("cam",)))._retokenized(SimpleNamespace(text_tokens=tokens))
    assert texts == ["▁a", "▁dog", "gy", ",", "▁cat"]
    assert [word.text for word in answer_words(tokens, Protocol(), texts)] == ["a", "doggy", ",", "cat"]


def test_an_answer_that_is_left_out_has_no_figure_at_all(explainer, tmp_path, monkeypatch):
    monkeypatch.setattr(Scorer, "_retokenized", lambda *_: ["another"])
    options = {**OPTIONS, "dataset": "scenes:1", "methods": "cam", "protocol": "tam"}
    run = evaluate(explainer, out=tmp_path / "run", **options)
    (row,) = run.table().to_pylist()
    assert (row["status"], row["rouge_l"], row["meteor"]) == ("ok", None, None)
    assert "tokenising again" in row["reason"]
    assert run.settings["rouge"].startswith("rouge 1")


def test_generated_answers_are_scored_as_they_were_spoken(explainer, tmp_path):
    options = {**OPTIONS, "answers": "generated", "max_new_tokens": 5}
    table = evaluate(explainer, out=tmp_path / "run", **options).table().to_pylist()
    sample = open_dataset("scenes:1")[0]
    spoken = explainer.explain(sample.image, sample.prompt, max_new_tokens=5)
    assert [row["token_id"] for row in table if (row["index"], row["method"]) == (0, "cam")] == [
        token.id for token in spoken.text_tokens if token.kind == "answer" and not token.special
    ]
