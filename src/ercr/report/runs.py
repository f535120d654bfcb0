"""Reads runs for a report: what was evaluated, and the sums of every method, batch by batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ercr.errors import FileFormatError, InputError
from ercr.evaluate import image_sums
from ercr.evaluate.run import Run
from ercr.methods.specs import Spec, read
from ercr.metrics.pooled import Interval, Pooled
from ercr.metrics.protocol import Protocol
from ercr.report import paper

DATASETS = {"coco": "COCO Caption", "grandf": "GranDf", "openpsg": "OpenPSG", "scenes": "Scenes"} | {
    "moving": "Moving clips",
    "pairs": "Pairs of scenes",
}
Part = Literal["words", "suppression", "faithfulness", "places"]
_BATCH = 1 << 17  # rows


@dataclass
class Scores:
    """The scores of one method in one run, as sums per image."""

    spec: Spec
    words: Pooled = field(default_factory=Pooled)  # obj_iou, func_iou, precision, recall
    suppression: Pooled = field(default_factory=Pooled)
    faithfulness: Pooled = field(default_factory=Pooled)
    places: Pooled = field(default_factory=Pooled)  # share_there, most_there
    tokens: Counter[str] = field(default_factory=Counter)  # by group, of those with suppression
    scored: set[str] = field(default_factory=set)  # images
    failed: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)  # images whose answers the protocol takes no score from
    _summaries: dict[Part, dict[str, Interval]] = field(default_factory=dict)

    def summary(self, part: Part) -> dict[str, Interval]:
        """Scores and intervals of one kind, computed once."""
        if part not in self._summaries:
            pooled: Pooled = getattr(self, part)
            self._summaries[part] = pooled.summary()
        return self._summaries[part]


@dataclass
class Evaluated:
    """A run that has been read."""

    path: Path
    settings: dict[str, Any]
    finished: bool
    checked: bool  # its files carry checksums
    protocol: Protocol
    scores: dict[str, Scores]
    text: Pooled = field(default_factory=Pooled)  # rouge_l, meteor
    reasons: dict[str, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )  # reason: images without a score for it
    model: str = ""  # as tables name it
    dataset: str = ""

    @property
    def name(self) -> str:
        return str(self.settings["model"]["name"])

    @property
    def samples(self) -> int:
        return int(self.settings["dataset"]["samples"])

    @property
    def spec(self) -> str:
        return str(self.settings["dataset"]["spec"])

    @property
    def images(self) -> int:
        """How many have been evaluated, failed ones included."""
        seen: set[str] = set()
        for scores in self.scores.values():
            seen |= scores.scored | scores.failed
        return len(seen)

    def count(self, what: str) -> int:
        """Number of images that failed, or were left out, for any method."""
        found: set[str] = set()
        for scores in self.scores.values():
            found |= getattr(scores, what)
        return len(found)

    def fact(self) -> str:
        """How the scores were measured, in one line."""
        counts = [f"{self.images:,} images" + ("" if self.finished else f" of {self.samples:,}, unfinished")]
        counts.append(f"{self.count('failed'):,} failed")
        if left := self.count("left_out"):
            counts.append(f"{left:,} left out by the protocol")
        given = " · answers: references" if self.settings.get("answers") == "references" else ""
        return (
            f"{self.model} on {self.dataset}: {', '.join(counts)}{given} · protocol {self.protocol} · "
            f"tagger {self.settings.get('tagger', 'unknown')} · bootstrap 95 % intervals over images"
        )


def read_runs(folders: Sequence[str | Path]) -> list[Evaluated]:
    """Every run with its sums, and with a name that is unique in the tables."""
    if not folders:
        raise InputError("Name at least one run folder, as `ercr evaluate --out FOLDER` writes it.")
    runs = [read_run(folder) for folder in dict.fromkeys(Path(folder) for folder in folders)]
    _check_comparable(runs)
    _name(runs)
    return runs


def read_run(folder: str | Path) -> Evaluated:
    """One run, finished or not."""
    path = Path(folder)
    if not path.exists():
        raise InputError(f"There is no folder {path}.")
    run = Run.open(path)
    settings = run.settings
    try:
        methods = [entry["spec"] for entry in settings["methods"]]
        protocol = Protocol.from_dict(settings["protocol"])
        scores = {method: Scores(read(method)) for method in methods}
        evaluated = Evaluated(path, settings, run.complete, run.checked, protocol, scores)
        budgets = [float(share) for share in settings.get("budgets") or ()]
        _ = evaluated.name, evaluated.samples, evaluated.spec
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{path}/settings.json is not from an evaluation ({error!r}): name a folder that `ercr evaluate` wrote."
        ) from None
    for batch in _batches(run):
        _add(evaluated, batch, budgets)
    return evaluated


def _batches(run: Run) -> Iterator[pa.RecordBatch]:
    """The columns that scores are computed from, in batches of rows; maps and answers are not read."""
    for path in run.sources():
        try:
            with pq.ParquetFile(path) as file:
                missing = [name for name in image_sums.COLUMNS if name not in file.schema_arrow.names]
                if missing:
                    raise FileFormatError(
                        f"{path} has no column {missing[0]!r}: it was not written by `ercr evaluate`."
                    )
                more = [name for name in image_sums.PLACES if name in file.schema_arrow.names]
                yield from file.iter_batches(_BATCH, columns=[*image_sums.COLUMNS, *more])
        except (pa.ArrowException, OSError) as error:
            text = " ".join(str(error).split())
            raise FileFormatError(f"{path} is damaged ({text[:120]}): remove it and evaluate again.") from None


def _add(run: Evaluated, batch: pa.RecordBatch, budgets: Sequence[float]) -> None:
    """Add a batch of rows; an image may be spread over several batches."""
    table = pa.Table.from_batches([batch])
    for method, sample, status, reason, rouge, meteor in image_sums.samples(table):
        scores = run.scores.setdefault(method, Scores(read(method)))
        (scores.scored if status == "ok" else scores.failed).add(sample)
        if reason:
            run.reasons[reason].add(sample)
        if status != "ok":
            continue
        if reason:
            scores.left_out.add(sample)
        for pooled in (scores.words, scores.suppression, scores.faithfulness, scores.places):
            pooled.add(sample, {})  # an image without a score is still resampled by the bootstrap
        known = {"rouge_l": rouge, "meteor": meteor}
        run.text.images[sample] = {name: (value, 1.0) for name, value in known.items() if value is not None}
    table = table.filter(pc.equal(table["status"], "ok"))
    for method, sample, pairs in image_sums.words(table):
        run.scores[method].words.add(sample, pairs)
    for method, sample, group, tokens, pairs in image_sums.suppression(table):
        run.scores[method].suppression.add(sample, pairs)
        run.scores[method].tokens[group] += tokens
    for method, sample, pairs in image_sums.faithfulness(table, budgets):
        run.scores[method].faithfulness.add(sample, pairs)
    for method, sample, pairs in image_sums.places(table):
        run.scores[method].places.add(sample, pairs)


def _check_comparable(runs: Iterable[Evaluated]) -> None:
    """Refuse runs scored by different rules; only the rule for subwords may differ, for its own table."""
    first: Evaluated | None = None
    for run in runs:
        first = first or run
        if replace(run.protocol, subword="max") != replace(first.protocol, subword="max"):
            raise InputError(
                f"{first.path} was scored by protocol {first.protocol} and {run.path} by {run.protocol}: "
                "report them separately."
            )
        if run.settings.get("answers") != first.settings.get("answers"):
            raise InputError(f"{first.path} and {run.path} explain different kinds of answers: report them separately.")


def _name(runs: Sequence[Evaluated]) -> None:
    """Give models and datasets short names, or longer ones if two would be equal."""
    short = {run.name: paper.find_model(run.name) or PurePath(run.name).name or run.name for run in runs}
    for run in runs:
        twins = [name for name in short if short[name] == short[run.name]]
        run.model = short[run.name] if len(twins) == 1 else run.name
        kind = run.spec.partition(":")[0]
        same = {_data_key(other): other for other in runs if other.spec.partition(":")[0] == kind}
        run.dataset = DATASETS.get(kind) or PurePath(run.spec).name or kind
        if len(same) > 1:
            counts = [other.samples for other in same.values()]
            run.dataset += f", {run.samples:,} images" if counts.count(run.samples) == 1 else f" ({run.spec})"


def _data_key(run: Evaluated) -> tuple[str, int]:
    return str(run.settings["dataset"].get("fingerprint")), run.samples
