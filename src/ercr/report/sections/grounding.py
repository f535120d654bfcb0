"""Seen or guessed: how well `seen` and every signal tell what is in a picture, with curves; from runs of that task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ercr.evaluate.grounding_scores import Mask, Words, groups, verdicts
from ercr.evaluate.run import Run
from ercr.metrics.detection import Told, reliability, roc
from ercr.metrics.pooled import Comparison, Interval
from ercr.report.cells import slug
from ercr.report.document import Column, Estimate, Plot, Row, Section, Series, Table
from ercr.report.runs import DATASETS

# signals as tables name them; the first are the package's own, the others from the literature
LABELS = {
    "seen": "seen",
    "log_probability": "probability",
    "effect_text": "image effect, text alone",
    "effect_grey": "image effect, grey",
    "effect_noise": "image effect, noise",
    "effect_other": "image effect, another picture",
    "lens_size": "lens: highest logit",
    "lens_mean": "lens: mean logit",
    "lens_lead": "lens: lead over rivals",
    "lens_last_rank": "lens: best rank",
    "lens_last_probability": "lens: highest probability",
    "focus": "focus",
    "internal_confidence": "internal confidence",
    "entropy": "entropy (low)",
    "attention_1": "attention ratio, blocks 1/4",
    "attention_2": "attention ratio, blocks 2/4",
    "attention_3": "attention ratio, blocks 3/4",
    "attention_4": "attention ratio, blocks 4/4",
    "glsim": "global-local similarity",
    "tam_peak": "TAM, peak",
    "tam_strength": "TAM, strength",
    "ercr_peak": "ERCR, peak",
    "ercr_strength": "ERCR, strength",
}
_MAIN = {
    "names": "Names",
    "own nouns": "Own nouns",
    "nouns of captions, this picture's and another's": "Nouns of captions",
}
_CURVES = 5  # in a plot, `seen` among them
_VERDICTS = {
    "absent_names_seen": "Absent names shown as seen",
    "present_names_guessed": "Present names shown as guessed",
    "absent_own_nouns_seen": "Own nouns that are not there, shown as seen",
    "present_own_nouns_guessed": "Own nouns that are there, shown as guessed",
    "function_words_seen": "Function words shown as seen",
}


@dataclass(frozen=True)
class Judged:
    """A run of the task `grounding` that has been read."""

    run: Run
    settings: Mapping[str, Any]
    words: Words
    failed: int

    @property
    def model(self) -> str:
        name = str(self.settings["model"]["name"])
        return PurePath(name).name or name

    @property
    def dataset(self) -> str:
        kind, _, where = str(self.settings["dataset"]["spec"]).partition(":")
        return DATASETS.get(kind) or PurePath(where).name or kind

    def fact(self) -> str:
        images = len(set(self.words["sample"]))
        counts = f"{images:,} images" + (f", {self.failed:,} failed" if self.failed else "")
        counts += f", {int(self.words.judged.sum()):,} judged words"
        tagger = self.settings.get("tagger")
        return f"{self.model} on {self.dataset}: {counts} · tagger {tagger} · bootstrap 95 % intervals over images"

    def summary(self) -> dict[str, Any]:
        """The facts about the run for the head of the report."""
        return {
            "path": str(self.run.path),
            "title": self.model,
            "finished": self.run.complete,
            "model": self.settings["model"]["name"],
            "dataset": self.settings["dataset"]["spec"],
            "samples": int(self.settings["dataset"]["samples"]),
            "images": len(set(self.words["sample"])) + self.failed,
            "failed": self.failed,
            "left_out": 0,
            "protocol": "grounding",
            "tagger": self.settings.get("tagger"),
            "answers": "generated, references and names",
            "methods": [],
            "versions": self.settings.get("versions", {}),
            "reasons": {},
        }


def is_grounding(folder: str | Path) -> bool:
    """Whether a folder is a run of this task."""
    run = Run(folder)
    return run.begun and run.task == "grounding"


def read_judged(folder: str | Path) -> Judged:
    run = Run.open(folder)
    table = run.table()
    failed = pc.sum(pc.equal(table["status"], "failed")).as_py() or 0
    return Judged(run, run.settings, Words.of(table), int(failed))


def grounding(runs: Sequence[Judged]) -> Section | None:
    """Tables and curves of every run."""
    tables: list[Table] = []
    plots: list[Plot] = []
    for run in runs:
        known = {group: mask for group, mask in groups(run.words).items() if run.words.told("seen", mask) is not None}
        if not known:
            continue
        key = f"grounding-{slug(run.model)}-{slug(run.dataset)}"
        main = [group for group in _MAIN if group in known]
        tables += [_signals(run, key, known, main), _differences(run, key, known, main)]
        tables += [_strata(run, key, known), _verdicts(run, key, known)]
        plots += [plot for group in main for plot in _curves(run, key, group, known[group])]
    text = (
        "Names of things that are in the picture and of things that are not, given as answers such as “A dog.”; the "
        "nouns of the model's own answers; and those of a caption of the picture and of another one. A noun is there "
        "if its category has a mask or if a reference names it. AUROC is the share of pairs of a present and an absent "
        "thing that a signal puts in the right order, AP the average precision."
    )
    return Section("grounding", "Seen or guessed", text, tuple(tables), tuple(plots)) if tables else None


def _told(run: Judged, mask: Mask) -> dict[str, Told]:
    return {signal: told for signal in LABELS if (told := run.words.told(signal, mask)) is not None}


def _signals(run: Judged, key: str, known: Mapping[str, Mask], main: Sequence[str]) -> Table:
    """AUROC and average precision of every signal."""
    columns, cells = list[Column](), dict[str, dict[str, Estimate]]()
    for group in main:
        columns += [
            Column(f"{group} auroc", "AUROC", _MAIN[group], 3),
            Column(f"{group} ap", "AP", _MAIN[group], 3),
        ]
        for signal, told in _told(run, known[group]).items():
            found = {"auroc": told.interval(told.auroc), "ap": told.interval(told.average_precision)}
            cells.setdefault(signal, {}).update({f"{group} {name}": _estimate(one) for name, one in found.items()})
    rows = [Row((LABELS[signal],), cells[signal], ours=signal == "seen") for signal in LABELS if signal in cells]
    title = f"Signals that tell what is there, {run.model} on {run.dataset}"
    return Table(key, title, ("Signal",), tuple(columns), tuple(rows), (run.fact(),))


def _differences(run: Judged, key: str, known: Mapping[str, Mask], main: Sequence[str]) -> Table:
    """The AUROC of `seen` minus that of every other signal, over the same words."""
    cells: dict[str, dict[str, Estimate]] = {}
    for group in main:
        told = _told(run, known[group])
        for signal, other in told.items():
            if signal != "seen" and len(other) == len(told["seen"]):
                cells.setdefault(signal, {})[group] = _compared(told["seen"].over(other))
    columns = [Column(group, "AUROC", _MAIN[group], 3, None, signed=True) for group in main]
    rows = [Row((LABELS[signal],), cells[signal]) for signal in LABELS if signal in cells]
    notes = ("`seen` minus the signal. Intervals and p: paired bootstrap over images.",)
    return Table(
        f"{key}-differences", "Lead of seen over each signal", ("Signal",), tuple(columns), tuple(rows), (), notes
    )


def _strata(run: Judged, key: str, known: Mapping[str, Mask]) -> Table:
    """`seen` and the best single signal in every group of words."""
    rows = []
    for group, mask in known.items():
        told = _told(run, mask)
        best = max((name for name in told if name != "seen"), key=lambda name: told[name].auroc(), default=None)
        cells = {"seen": _estimate(told["seen"].interval(told["seen"].auroc))}
        if best is not None:
            cells["best"] = _estimate(told[best].interval(told[best].auroc))
        rows.append(Row((group, LABELS[best] if best else ""), cells))
    columns = (Column("seen", "AUROC of seen", digits=3), Column("best", "of the best single signal", digits=3))
    notes = ("The best single signal was chosen by these words themselves.",)
    return Table(f"{key}-groups", "By kind of word", ("Words", "Best signal"), columns, tuple(rows), (), notes)


def _verdicts(run: Judged, key: str, known: Mapping[str, Mask]) -> Table:
    """Wrong verdicts, the calibration error, and the accuracy at one half."""
    rows = [Row((_VERDICTS[name],), {"value": _estimate(found, 100.0)}) for name, found in verdicts(run.words).items()]
    for group in _MAIN:
        told = run.words.told("seen", known[group]) if group in known else None
        if told is not None:
            error, accuracy = told.interval(told.calibration_error), told.interval(told.accuracy)
            rows.append(Row((f"Calibration error, {_MAIN[group].lower()}",), {"value": _estimate(error, 100.0)}))
            rows.append(Row((f"Accuracy at 0.5, {_MAIN[group].lower()}",), {"value": _estimate(accuracy, 100.0)}))
    columns = (Column("value", "Percent", digits=1, better=None),)
    return Table(f"{key}-verdicts", "Verdicts and calibration", ("",), columns, tuple(rows))


def _curves(run: Judged, key: str, group: str, mask: Mask) -> list[Plot]:
    """ROC of `seen` and the best signals, and how `seen` agrees with shares."""
    told = _told(run, mask)
    best = sorted((name for name in told if name != "seen"), key=lambda name: -told[name].auroc())[: _CURVES - 1]
    lines = []
    for name in ("seen", *best):
        false, true = roc(told[name])
        at = np.linspace(0, 1, 101)
        heights = np.interp(at, false, true)
        label = f"{LABELS[name]} {told[name].auroc():.3f}"
        lines.append(Series(label, at.tolist(), heights.tolist(), ours=[name == "seen"] * len(at)))
    where = f"{_MAIN[group]}, {run.model} on {run.dataset}"
    axes = ("share of absent things above the threshold", "share of present things above it")
    plots = [Plot(f"{key}-{slug(group)}-roc", f"ROC: {where}", "lines", tuple(lines), *axes)]
    points = reliability(told["seen"])
    shares = [share for _, share in points]
    curve = Series(
        "share that was there",
        [mean for mean, _ in points],
        [share.value for share in shares],
        [share.low for share in shares],
        [share.high for share in shares],
        ours=[True] * len(points),
    )
    fair = Series("as calibrated", [0.0, 1.0], [0.0, 1.0])
    name = f"{key}-{slug(group)}-reliability"
    return [*plots, Plot(name, f"Reliability of seen: {where}", "lines", (curve, fair), "seen", "share that was there")]


def _estimate(found: Interval, scale: float = 1.0) -> Estimate:
    value, low, high = (scale * number for number in (found.value, found.low, found.high))
    return Estimate(value, low, high, images=found.n, words=int(found.total))


def _compared(found: Comparison) -> Estimate:
    return Estimate(found.difference, found.low, found.high, p=found.p, images=found.n, words=int(found.total))
