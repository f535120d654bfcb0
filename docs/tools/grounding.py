"""Write the tables of `grounding.md` and draw its curves, from the documents of `python -m training.grounding score`.

    python docs/tools/grounding.py

Only what stands between the marks is replaced.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ercr.report.document import Plot, Series
from ercr.report.plots import files
from ercr.report.sections.grounding import LABELS
from ercr.words.calibration import FIXED, GENERAL, Part, find_calibration, packaged_calibrations

DOCS = Path(__file__).resolve().parents[1]
PAGE, FOLDER = DOCS / "grounding.md", DOCS / "images" / "grounding"
_MARK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_GROUPS = {
    "names": "names",
    "own nouns": "own nouns",
    "nouns of captions, this picture's and another's": "nouns of captions",
}
_VERDICTS = ("absent_names_seen", "present_names_guessed", "absent_own_nouns_seen", "present_own_nouns_guessed")
_FUNCTION = ("function_words_seen", "function_words_seen_without_list")
_BESIDE = {"scenes-only": "fitted on scenes alone"}
_COLOURS = 128  # of a plot: half the bytes, and letters stay sharp
_PARTS = {
    "effect": "image effect, nats",
    "lens.log_rank": "logarithm of the lens's best rank",
    "lens.log_probability": "logarithm of the lens's highest probability",
    "lens.size": "lens's highest logit, in standard deviations of the vocabulary's",
    "lens.mean": "lens's mean logit over all visual tokens, likewise",
    "lens.usual_size": "what one picture in ten exceeds by its highest logit of the word",
    "lens.usual_mean": "what the mean logit of the word usually is",
    "chosen": "1 if the word was the model's first choice, else 0",
    "chosen.entropy": "entropy of the prediction, for first choices",
    "chosen.lead": "lead of the highest logit over that of rivals, for first choices",
    "focus": "focus",
    "likely": "root of the own probability",
    "likely.size": "the same times the lens's highest logit",
    "log_probability": "logarithm of the own probability",
    "function": "1 for a function word, else 0",
}


def document(name: str) -> dict[str, Any]:
    return dict(json.loads((DOCS / "tables" / f"grounding-{name}.json").read_text(encoding="utf-8")))


def scored() -> list[dict[str, Any]]:
    """The documents of all models and datasets, photographs first."""
    names = (path.stem.removeprefix("grounding-") for path in (DOCS / "tables").glob("grounding-*.json"))
    found = [document(name) for name in sorted(names)]
    return sorted(
        (one for one in found if "groups" in one), key=lambda one: (one["dataset"] != "coco", one["style"] == "unseen")
    )


def page(text: str) -> str:
    """The page with the tables of the documents."""
    return _MARK.sub(lambda found: f"{found[1]}{_TABLES[found[2]]()}\n{found[3]}", text)


def overview() -> str:
    """AUROC, calibration and wrong verdicts of `seen` on every dataset."""
    head = ("model, pictures", "names", "own nouns", "calibration error", "absent names seen", "present names guessed")
    return _table((*head, "function words seen", "were they on no list"), map(_overview_row, scored()))


def _overview_row(one: dict[str, Any]) -> list[str]:
    names = one["groups"]["names"]["signals"]["seen"]
    own = one["groups"].get("own nouns", {}).get("signals", {}).get("seen", {})
    shares = [one["verdicts"].get(key) for key in (*_VERDICTS[:2], *_FUNCTION)]
    where = "photographs" if one["dataset"] == "coco" else f"scenes, {one['style']} style"
    return [
        f"{one['model']}, {one['pictures']} {where}",
        _score(names.get("auroc")),
        _score(own.get("auroc")),
        _score(names.get("calibration_error")),
        *(_percent(share) for share in shares),
    ]


def signals() -> str:
    """Every signal on the photographs, beside `seen`."""
    return _signals(document("photographs"))


def further() -> str:
    """The signals that need further passes, on fewer photographs."""
    return _signals(document("photographs")["fewer"])


def _signals(one: dict[str, Any]) -> str:
    groups = [group for group in _GROUPS if group in one["groups"]]
    counts = {group: one["groups"][group] for group in groups}
    head = ["signal"]
    for group in groups:
        there, words = counts[group]["there"], counts[group]["words"]
        head += [f"{_GROUPS[group]} ({there} there, {words - there} not)", "lead of `seen`"]
    rows = []
    for signal, label in LABELS.items():
        cells = [counts[group]["signals"].get(signal, {}) for group in groups]
        if any(cells):
            shown = [text for cell in cells for text in (_score(cell.get("auroc")), _lead(cell.get("lead")))]
            rows.append([f"**{label}**" if signal == "seen" else label, *shown])
    return _table(head, rows)


def strata() -> str:
    """`seen` by kind of word on the photographs."""
    rows = []
    for group, one in document("photographs")["groups"].items():
        best = max(
            (name for name in one["signals"] if name != "seen"), key=lambda name: one["signals"][name]["auroc"]["value"]
        )
        seen, other = (one["signals"][name]["auroc"] for name in ("seen", best))
        rows.append(
            [
                group,
                str(one["there"]),
                str(one["words"] - one["there"]),
                _score(seen),
                f"{LABELS.get(best, best)} {_score(other)}",
            ]
        )
    return _table(("words", "there", "not", "AUROC of `seen`", "best single signal, chosen by these words"), rows)


def verdicts() -> str:
    """Wrong verdicts about the model's own nouns."""
    rows = []
    for one in scored():
        where = "photographs" if one["dataset"] == "coco" else f"scenes, {one['style']} style"
        rows.append([f"{one['model']}, {where}", *(_percent(one["verdicts"].get(key)) for key in _VERDICTS[2:])])
    return _table(("model, pictures", "own nouns not there, shown as seen", "own nouns there, shown as guessed"), rows)


def unfamiliar() -> str:
    """Every signal about own nouns in the unseen style."""
    known = [one for one in scored() if one["style"] == "unseen"]
    counts = [one["groups"]["own nouns"] for one in known]
    head = [
        f"{one['model']} ({c['there']} there, {c['words'] - c['there']} not)"
        for one, c in zip(known, counts, strict=True)
    ]
    rows = []
    for signal, label in LABELS.items():
        cells = [count["signals"].get(signal, {}) for count in counts]
        if any(cells):
            shown = [_score(cell.get("auroc")) for cell in cells]
            rows.append([f"**{label}**" if signal == "seen" else label, *shown])
    return _table(("signal", *head), rows)


def beside() -> str:
    """Other calibrations than the model's own."""
    head = ("calibration", "names", "own nouns", "calibration error", "absent names seen", "present names guessed")
    rows = []
    for one in scored():
        where = "photographs" if one["dataset"] == "coco" else f"scenes, {one['style']} style"
        for name, found in one.get("beside", {}).items():
            own = found.get("own nouns", {})
            shares = (_percent(found["verdicts"].get(key)) for key in _VERDICTS[:2])
            names = found["names"]
            cells = [_score(names["auroc"]), _score(own.get("auroc")), _score(names["calibration_error"]), *shares]
            rows.append([f"{_BESIDE.get(name, f'`{name}`')}, {one['model']}, {where}", *cells])
    return _table(head, rows)


def weights() -> str:
    """What every calibration weighs."""
    names = [name for name in packaged_calibrations() if name not in (GENERAL, FIXED)]
    known = {name: find_calibration(name) for name in (FIXED, GENERAL, *names)}
    rows = []
    for part, label in _PARTS.items():
        found = [{one.name: one for one in calibration.parts}.get(part) for calibration in known.values()]
        if any(found):
            rows.append([label, *("–" if one is None else _weighed(one) for one in found)])
    rows.append(["constant", *(f"{one.bias:+.2f}" for one in known.values())])
    rows.append(["guessed below, seen from", *(f"{one.below:.2f}, {one.above:.2f}" for one in known.values())])
    return _table(("part", *(f"`{name}`" for name in known)), rows)


def _weighed(part: Part) -> str:
    return f"{part.weight:+.2f} × (x {-part.mean:+.2f}) / {part.scale:.2f}"


def cost() -> str:
    """Time with grounding over time without."""
    rows = []
    for path in sorted((DOCS / "tables").glob("grounding-*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        for row in one.get("rows", ()):
            times = f"{row['seconds without']:.2f} s, {row['seconds with']:.2f} s"
            size = " × ".join(map(str, row["size"]))
            spread = f"{row['lowest']:.2f} to {row['highest']:.2f}"
            cells = [
                f"{one['model']}, {one['dtype']}",
                one["device"],
                f"{row['row']}, {size}",
                str(row["answer tokens"]),
            ]
            rows.append([*cells, times, f"{row['ratio']:.2f} ({spread}, {row['turns']} turns)"])
    return _table(("model", "device", "", "tokens", "without, with", "ratio"), rows)


_TABLES = {
    "beside": beside,
    "unfamiliar": unfamiliar,
    "overview": overview,
    "signals": signals,
    "further": further,
    "strata": strata,
    "verdicts": verdicts,
    "weights": weights,
    "cost": cost,
}


def draw() -> dict[str, bytes]:
    """ROC and reliability on the photographs, as PNG files."""
    found = {}
    for group, one in document("photographs")["curves"].items():
        at = np.linspace(0, 1, 51).tolist()
        lines = [
            Series(LABELS.get(name, name), at, heights, ours=[name == "seen"] * len(at))
            for name, heights in one["roc"].items()
        ]
        axes = ("share of absent things above the threshold", "share of present things above it")
        means, shares, low, high = (list(column) for column in zip(*one["reliability"], strict=True))
        points = Series("share that was there", means, shares, low, high, ours=[True] * len(means))
        fair = Series("as calibrated", [0.0, 1.0], [0.0, 1.0])
        key = group.replace(" ", "-")
        plots = {
            f"{key}-roc": Plot(f"{key}-roc", f"ROC: {group}, photographs", "lines", tuple(lines), *axes),
            f"{key}-reliability": Plot(
                f"{key}-reliability",
                f"Reliability: {group}, photographs",
                "lines",
                (points, fair),
                "seen",
                "share that was there",
            ),
        }
        found |= {name: _smaller(files(plot)["png"]) for name, plot in plots.items()}
    return found


def _smaller(png: bytes) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(_COLOURS).save(out, "PNG", optimize=True)
    return out.getvalue()


def _score(found: dict[str, Any] | None) -> str:
    if not found or found["value"] is None:
        return "–"
    if found["low"] is None:
        return f"{found['value']:.3f}"
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def _lead(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    return f"{found['difference']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


def _percent(found: dict[str, Any] | None) -> str:
    if not found or found["value"] is None:
        return "–"
    return f"{100 * found['value']:.1f} % ({100 * found['low']:.1f} to {100 * found['high']:.1f}, {found['total']:,})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name, data in draw().items():
        (FOLDER / f"{name}.png").write_bytes(data)


if __name__ == "__main__":
    main()
