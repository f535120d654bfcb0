"""`ercr evaluate`: several methods on a dataset, into one folder of rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column, Table

from ercr.commands.options import AnswerLengthOption, JsonOption, ModelOption, choose_model
from ercr.commands.output import emit_data, notes, results, say
from ercr.errors import InputError, require
from ercr.progress import TimeLeft
from ercr.zoo.defaults import model_for_dataset

if TYPE_CHECKING:
    from ercr.evaluate import Done, Run

NEEDED = ("pyarrow", "cv2", "scipy", "rouge", "rouge_score")  # modules of the extra `evaluate`
_SHOWN = {"obj_iou": "Obj-IoU", "func_iou": "Func-IoU", "f1_iou": "F1-IoU"}


def evaluate(
    dataset: Annotated[
        str,
        typer.Option("--dataset", "-d", help="coco:FOLDER, hf:FOLDER, grandf:FOLDER, openpsg:FOLDER or scenes:COUNT."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run; an unfinished one is continued.")],
    model: ModelOption = None,
    task: Annotated[
        Literal["maps", "grounding"],
        typer.Option(help="Score maps of methods, or whether each word was seen or guessed."),
    ] = "maps",
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            help="For example cam,tam,ercr:context=tam,views=1 ; repeatable.",
            show_default="cam,tam,ercr",
        ),
    ] = None,
    signals: Annotated[
        Literal["all", "own"],
        typer.Option(
            help="For grounding: every signal, or only those that need no further pass, in a third of the time."
        ),
    ] = "all",
    names: Annotated[
        int,
        typer.Option(
            help="For grounding: present things to ask about per picture, and as many absent ones of each kind: at "
            "random, popular, and often together with what is there."
        ),
    ] = 2,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="One process, or workers of a Ray cluster.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="Number of Ray workers; each takes a GPU if there are any.")] = 1,
    batch_size: Annotated[str, typer.Option(help="Samples per batch, or auto; halved if memory runs out.")] = "auto",
    limit: Annotated[int | None, typer.Option(help="Only the first samples.", show_default=False)] = None,
    protocol: Annotated[
        str, typer.Option(help="tam or clean, optionally with changed options: tam,subword=mean.")
    ] = "tam",
    faithfulness: Annotated[
        Literal["off", "table", "curve"],
        typer.Option(help="Delete and insert pixels: at 10, 20, 30 %, or from 0 to 100 %."),
    ] = "off",
    baseline: Annotated[Literal["mean", "blur"], typer.Option(help="What replaces deleted pixels.")] = "mean",
    suppression: Annotated[
        bool, typer.Option("--suppression", help="Also measure what the context residual removes.")
    ] = False,
    part_size: Annotated[int, typer.Option(help="Samples that are written together.")] = 32,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Compute failed samples again.")] = False,
    maps: Annotated[bool, typer.Option("--maps", help="Store the maps in the rows.")] = False,
    answers: Annotated[
        Literal["generated", "references"], typer.Option(help="Explain generated answers, or the first reference.")
    ] = "generated",
    max_new_tokens: AnswerLengthOption = 256,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="auto (all GPUs), cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    as_json: JsonOption = None,
) -> None:
    """Score methods on a dataset: one row per sample, token and method; can be interrupted and resumed."""
    from transformers.utils.logging import disable_progress_bar

    from ercr.commands.output import check_outputs

    require("Evaluations need packages that score and store", "evaluate", *NEEDED)
    from ercr.evaluate import evaluate as run_evaluation

    check_outputs([], as_json)
    disable_progress_bar()  # transformers' bar for loading weights would disturb our own
    if task == "grounding" and methods:
        raise InputError("The task grounding has no methods: omit --methods.")
    default = model_for_dataset(dataset)
    bar = Bar()

    def begin(total: int, done: int) -> None:
        choose_model(model, default)  # announces the default only after all other checks
        bar.begin(total, done)

    started = time.perf_counter()
    try:
        with bar:
            run = run_evaluation(
                model or default.name,
                dataset,
                [] if task == "grounding" and not methods else methods or ["cam,tam,ercr"],
                out,
                task=task,
                signals=signals,
                names=names,
                engine=engine,
                workers=workers,
                batch_size=read_batch_size(batch_size),
                retry_failed=retry_failed,
                begin=begin,
                progress=bar.advance,
                say=say,
                moved=bar.move,
                protocol=protocol,
                answers=answers,
                max_new_tokens=max_new_tokens,
                faithfulness=faithfulness,
                baseline=baseline,
                suppression=suppression,
                maps=maps,
                limit=limit,
                part_size=part_size,
                revision=revision,
                device=device,
                dtype=dtype,
            )
    except KeyboardInterrupt:
        kept = f"{bar.done} of {bar.total} samples are kept in {out}; run the same command again to resume."
        notes.print(kept, markup=False, soft_wrap=True)
        raise
    summary = _summary(run, time.perf_counter() - started)
    if as_json is not None:
        emit_data(summary, as_json)
    else:
        _show(summary)


class Bar:
    """Progress bar with speed, time left and failures; shown only if standard error is a terminal."""

    def __init__(self, what: str = "samples", done: str = "evaluated") -> None:
        """`what` is counted, and `done` is what happens to it."""
        self._what, self._done = what, done
        told = (TextColumn("{task.fields[speed]}"), TimeLeft(), TextColumn("{task.fields[failed]}"))
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *told)
        self.progress = Progress(*columns, console=notes, transient=True)
        self.progress.disable = not notes.is_terminal
        self.task = self.progress.add_task("preparing", total=None, speed="", failed="", **_clock(0))
        self.total = self.done = self.there = self.failed = 0
        self.loaded, self.fresh = False, 0.0  # samples finished by this call; fractions for samples in work

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def begin(self, total: int, done: int) -> None:
        self.total, self.done, self.there = total, done, done
        self.fresh, self.loaded = 0.0, False
        told = "loading the model" if done < total else self._what
        self.progress.update(self.task, description=told, total=total, completed=done, **_clock(done))
        if 0 < done < total:
            notes.print(f"{done} of {total} {self._what} were {self._done} before.")

    def move(self, samples: float) -> None:
        """More finished samples, possibly fractions; timing starts with the first call, when the model is loaded."""
        if not self.loaded:
            self.loaded = True
            self.progress.update(self.task, **_clock(self.there))
        self._show(self.fresh + samples)

    def advance(self, part: Done) -> None:
        """A part was written; Ray workers report nothing smaller than a part."""
        self.done, self.failed = self.done + part.samples, self.failed + part.failed
        self._show(max(self.fresh, float(self.done - self.there)))

    def _show(self, fresh: float) -> None:
        self.fresh = fresh
        now = time.perf_counter()
        speed = f"{fresh / max(now - self.progress.tasks[0].fields['began'], 1e-9):.2f}/s" if fresh else ""
        failed = f"[red]{self.failed} failed[/red]" if self.failed else ""
        completed = self.there + round(fresh, 6)
        told: dict[str, Any] = {"description": self._what, "speed": speed, "failed": failed, "moved": now}
        self.progress.update(self.task, completed=completed, **told)


def _clock(there: int) -> dict[str, Any]:
    """Fields from which the time left is computed: the start time and the samples done before it."""
    return {"began": time.perf_counter(), "moved": time.perf_counter(), "there": there}


def read_batch_size(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"--batch-size must be auto or a whole number of at least 1, not {text!r}.")
    return int(text)


def _summary(run: Run, seconds: float) -> dict[str, Any]:
    from ercr.evaluate.scores import failures

    settings = run.settings
    failed = run.table(["index", "status", "reason"])
    return {
        "run": str(run.path),
        "model": settings["model"]["name"],
        "dataset": settings["dataset"],
        "protocol": settings["protocol"]["text"],
        "task": run.task,
        "tagger": settings["tagger"],
        "figures": run.scores(),
        "failures": failures(failed),
        "seconds": round(seconds, 1),
    }


def _percent(found: dict[str, float | None] | None) -> str:
    if found is None or found["value"] is None:
        return "–"
    return f"{100 * found['value']:.1f} ({found['words']:,})"


def _show(summary: dict[str, Any]) -> None:
    (_show_grounding if summary["task"] == "grounding" else _show_methods)(summary)
    for kind, count in summary["failures"].items():
        notes.print(f"{count} samples failed ({kind}); the column reason of their rows says why", markup=False)
    notes.print(
        f"{summary['dataset']['samples']} samples in {summary['seconds']} s: {summary['run']}",
        markup=False,
        soft_wrap=True,
    )


def _show_grounding(summary: dict[str, Any]) -> None:
    """How well `seen` and the best single signal tell what is there."""
    words = Column("words", no_wrap=True)
    table = Table(words, Column("seen, AUROC", justify="right"), Column("best single signal", justify="right"))
    for group, found in summary["figures"].items():
        if group == "verdicts":
            continue
        best = max((name for name in found if name != "seen"), key=lambda name: found[name]["auroc"]["value"] or 0)
        table.add_row(group, _auroc(found["seen"]), f"{best} {_auroc(found[best])}")
    results.print(table)
    notes.print("Intervals are 95 %, over pictures. `ercr report` shows every signal.")


def _auroc(found: dict[str, Any]) -> str:
    score = found["auroc"]
    if score["value"] is None:
        return "–"
    return f"{score['value']:.3f} ({score['low']:.3f}–{score['high']:.3f})" if score["low"] else f"{score['value']:.3f}"


def _show_methods(summary: dict[str, Any]) -> None:
    table = Table(Column("method", no_wrap=True), *(Column(name, justify="right") for name in _SHOWN.values()))
    for method, scores in summary["figures"].items():
        table.add_row(method, *(_percent(scores.get(name)) for name in _SHOWN))
    results.print(table)
    notes.print("Scores in percent; in parentheses the number of words.")
    notes.print(f"protocol {summary['protocol']}, words tagged by {summary['tagger']}", markup=False)
