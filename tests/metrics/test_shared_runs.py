"""Methods compared with each other are explained together: same maps, fewer runs."""

from __future__ import annotations

import numpy as np


def test_methods_that_can_share_a_run_do_and_agree_with_single_runs(load, picture, monkeypatch):
    from ercr.explaining import runs as module

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
