"""The fit of `seen`: the file says what was fitted, thresholds keep their promises, COCO is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from training.grounding import __main__ as command
from training.grounding import fit
from training.grounding.fit import Examples

from ercr.metrics.detection import Told
from ercr.words.calibration import Calibration, Part, find_calibration, packaged_calibrations
from ercr.words.grounding import features

NAMES = ("effect", "lens.size", "focus")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    there = rng.random(4000) < 0.4
    values = rng.normal(size=(4000, 3)) + there[:, None] * [1.0, 2.0, 0.0]
    values[:, 0] = np.minimum(values[:, 0], 1.5)  # as `examples` gives them
    images = np.asarray([f"picture {i}" for i in rng.integers(0, 400, 4000)])
    function = ~there & (rng.random(4000) < 0.1)
    return Examples(values, there, np.ones(4000), np.ones(4000), images, ~function, function)


def test_the_file_says_what_was_fitted(data):
    found = fit.fit("made", data, NAMES, {"on": ["numbers"]})
    model = fit._logistic(data, np.ones(4000, bool))
    seen = [found.seen(dict(zip(NAMES, row, strict=True)))[0] for row in data.values[:200]]
    assert seen == pytest.approx(model.predict(data.values[:200]), abs=2e-2)
    assert found.seen({"effect": 1.5, "lens.size": 1.0, "focus": 0.0}) == found.seen(
        {"effect": 9.0, "lens.size": 1.0, "focus": 0.0}
    )
    from sklearn.linear_model import LogisticRegression

    standard = np.clip((data.values - data.values.mean(0)) / data.values.std(0), -3, 3)
    theirs = LogisticRegression(C=1.0).fit(standard, data.there)
    assert [part.weight for part in found.parts] == pytest.approx(theirs.coef_[0], abs=2e-2)
    assert found.fitted["pictures"] == len(set(data.images))


def test_which_word_it_is_tells_nothing_in_matched_words():
    texts = np.asarray(["Dog"] * 30 + ["dog"] * 10 + ["cat"] * 8 + ["sofa"] * 5, object)
    there = np.asarray([True] * 33 + [False] * 7 + [True] * 2 + [False] * 6 + [True] * 5)
    weights = fit._matched(texts, there)
    assert weights.sum() == pytest.approx(1)
    for word in ("dog", "cat"):
        same = np.asarray([text.lower() == word for text in texts])
        assert weights[same & there].sum() == pytest.approx(weights[same & ~there].sum())
        assert (weights[same] > 0).all()
    assert not weights[-5:].any()  # it is always there


def test_weights_set_by_hand_keep_their_proportions(data):
    base = Calibration("hand", (Part("effect", 0.5, 2.0, 1.0), Part("lens.size", 1.0, 1.0, -3.0)), 0.0, 0.3, 0.6)
    values = np.stack([data.values[:, 0], -data.values[:, 1], data.function.astype(float)], 1)
    found = fit.scale("made", replace(data, values=values), base, {})
    effect, size, function = found.parts
    assert size.weight / effect.weight == pytest.approx(-3, rel=1e-3)
    assert function.weight < 0
    seen = np.array([found.seen(dict(zip(("effect", "lens.size", "function"), row, strict=True)))[0] for row in values])
    told = Told(seen[data.names], data.there[data.names], data.images[data.names].tolist())
    assert told.calibration_error() < 0.05
    assert told.auroc() > 0.85


def test_thresholds_accept_so_many_wrong_verdicts_and_no_more(data):
    seen = fit._logistic(data, np.ones(4000, bool)).predict(data.values)
    below, above = fit.thresholds(data, seen)
    assert 0 < below <= 0.3 < 0.6 <= above < 1
    absent, present = (seen[data.names & (data.there == there)] for there in (False, True))
    assert (absent >= above).mean() <= fit.ABSENT_SEEN + 1e-3
    assert (present < below).mean() <= fit.PRESENT_GUESSED + 1e-3
    assert (seen[data.function] >= above).mean() <= fit.FUNCTION_SEEN + 0.01
    certain = np.where(data.there, 0.99, 0.01)
    assert fit.thresholds(data, certain) == (0.3, 0.6)


def test_packaged_calibrations_weigh_what_is_measured_and_were_not_fitted_to_coco():
    lead = {"lens.size": 3.0, "lens.rank": 2.0, "lens.probability": 0.1, "focus": 0.5, "chosen": 1.0, "entropy": 2.0}
    lead |= dict.fromkeys(("lens.lead", "lens.mean", "lens.usual_size", "lens.usual_mean"), 1.0)
    known = features(-1.0, {"text": 0.5}, lead)
    for name in packaged_calibrations():
        calibration = find_calibration(name)
        assert {part.name for part in calibration.parts} <= set(known), name
        assert calibration.below < calibration.above
        assert "coco" not in str(calibration.fitted).lower()
    assert known["likely.size"] == pytest.approx(3 * np.exp(-0.5))


def test_runs_on_coco_are_refused(monkeypatch, tmp_path):
    run = SimpleNamespace(settings={"dataset": {"spec": "coco:somewhere"}})
    monkeypatch.setattr(command.Run, "open", lambda path: run)
    monkeypatch.setattr(sys, "argv", ["grounding", "fit", "made", str(tmp_path)])
    with pytest.raises(SystemExit, match="nothing is fitted"):
        command.main()
    monkeypatch.setattr(sys, "argv", ["grounding", "usual", "made", "coco:somewhere"])
    with pytest.raises(SystemExit, match="nothing is fitted"):
        command.main()
