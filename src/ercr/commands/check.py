"""`ercr check`: which words of an answer were seen in the picture and which were guessed, of one picture or of many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ercr.commands.given import FpsOption, FramesOption, MessagesOption, TurnOption, given, one_of_many
from ercr.commands.options import (
    AnswerLengthOption,
    CalibrationOption,
    JsonOption,
    MethodOption,
    ModelOption,
    check_calibration,
    check_options,
    choose_model,
    load_model,
)
from ercr.commands.output import emit_data, notes, outputs, results, working, write
from ercr.errors import InputError
from ercr.zoo.defaults import PROMPT, default_model

if TYPE_CHECKING:
    from ercr.explanation import Explanation


def check(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IMAGE]...",
            help="The picture or video: a file or a URL (http or https); several are shown together. Or many, each by "
            "itself, with prompts and answers: a .jsonl or .parquet file, a list of files (.txt), a folder, a glob.",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option("--answer", "-a", help="Check this answer instead of a generated one.", show_default=False),
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What to ask.")] = PROMPT,
    messages: MessagesOption = None,
    turn: TurnOption = None,
    fps: FpsOption = None,
    num_frames: FramesOption = None,
    model: ModelOption = None,
    method: MethodOption = "ercr",
    fail_below: Annotated[
        float | None,
        typer.Option(
            help="Exit with status 1 if any word is seen less than this, 0 to 1, or if a picture of many failed.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: .html, .ercr, .json, .npz or .png; repeatable. For many pictures: the folder of the "
            "run, which is continued if it is unfinished.",
        ),
    ] = None,
    as_json: JsonOption = None,
    calibration: CalibrationOption = None,
    without: Annotated[
        str, typer.Option(help="What stands instead of the picture: text, which is weighed, also grey, black, noise.")
    ] = "text",
    max_new_tokens: AnswerLengthOption = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
) -> None:
    """Tell the words of an answer that were seen in a picture from those that were guessed."""
    from ercr.methods import resolve
    from ercr.trace.without_picture import KINDS

    resolve(method)
    check_options(answer, dtype)
    check_calibration(calibration)
    kinds = tuple(part.strip() for part in without.split(",") if part.strip())
    if not kinds or not set(kinds) <= set(KINDS):
        raise InputError(f"--without must be some of {', '.join(KINDS)}, not {without!r}.")
    if fail_below is not None and not 0 <= fail_below <= 1:
        raise InputError(f"--fail-below must lie between 0 and 1, not {fail_below}.")
    options: dict[str, Any] = {"method": method, "max_new_tokens": max_new_tokens}
    names = images or []
    asks: dict[str, Any] = {"messages": messages, "turn": turn, "fps": fps, "num_frames": num_frames}
    image = one_of_many(names, asks)
    if image is not None:
        if answer is not None:
            raise InputError("--answer is for one picture; many take answers from their list.")
        options |= {"prompt": prompt, "calibration": calibration, "device": device, "dtype": dtype}
        below = _many(image, out or [], model, as_json, fail_below, options)
    else:
        targets = outputs(out or [], as_json, [])
        with working("Opening the picture"):
            asked = given(names, prompt, **asks)
        explainer = load_model(choose_model(model, default_model()), device, dtype)
        with working("Checking"):
            checked = {"calibration": calibration, "without": kinds, **options}
            found = explainer.check(**asked.arguments, answer=answer, **checked)
        facts = {"image": names[0]} if len(names) == 1 else {"images": names}
        for target, _ in targets:
            _write(found, target, facts)
        below = _deliver(found, facts, as_json, fail_below)
    if below:
        raise typer.Exit(1)


def _write(found: Explanation, target: Path, facts: dict[str, Any]) -> None:
    """The file of one picture; JSON holds the verdicts, all else the explanation."""
    if target.suffix.lower() == ".json":
        from ercr.render.checked import as_data

        emit_data(as_data(found, **facts), str(target))
        notes.print(f"wrote {target}", markup=False, soft_wrap=True)
    else:
        write(found, target, None)


def _deliver(explanation: Explanation, facts: dict[str, Any], as_json: str | None, fail_below: float | None) -> bool:
    """Print the words of one answer; whether one of them is seen less than `fail_below`."""
    from ercr.render.checked import as_data, content_words, words_table
    from ercr.render.terminal import words_line

    known = [(word.text, word.grounding.seen) for word in content_words(explanation) if word.grounding]
    below = [text for text, seen in known if fail_below is not None and seen < fail_below]
    if as_json == "-":
        emit_data(as_data(explanation, **facts), as_json)
    elif not explanation.words:
        notes.print("The answer is empty.")
    else:
        results.print(words_line(explanation), soft_wrap=True)
        if content_words(explanation):
            results.print(words_table(explanation))
        else:
            notes.print("No word of the answer names anything.")
    _say_calibration(explanation)
    if below:
        notes.print(f"Below {fail_below:g}: {', '.join(below)}.", markup=False, soft_wrap=True)
    return bool(below)


def _say_calibration(explanation: Explanation) -> None:
    """Say so where the numbers were not fitted on this model."""
    from ercr.words.calibration import GENERAL

    if (explanation.provenance.get("grounding") or {}).get("calibration") == GENERAL:
        notes.print(
            "These numbers use the general calibration, which was not fitted on this model: compare words by them, and "
            "do not read them as shares.",
            soft_wrap=True,
        )


def _many(
    source: str,
    out: list[Path],
    model: str | None,
    as_json: str | None,
    fail_below: float | None,
    options: dict[str, Any],
) -> bool:
    """Check all pictures of a list; whether a word of any is seen less than `fail_below`, or a picture failed."""
    from ercr.commands.album import explain_many

    if len(out) != 1:
        raise InputError("Many pictures are checked into one folder: give it as --out RUN.")
    explain_many(source, out, model, "local", 1, "auto", False, None, maps=False, quiet=as_json is not None, **options)
    summary: dict[str, Any] = {
        "run": str(out[0]),
        "pictures": 0,
        "failed": 0,
        "seen": 0,
        "unsure": 0,
        "guessed": 0,
        "below": [],
    }
    for row in _rows(out[0]):
        _add(summary, row, fail_below)
    if as_json is not None:
        emit_data(summary, as_json)
    else:
        told = ", ".join(f"{summary[name]} {name}" for name in ("seen", "unsure", "guessed"))
        results.print(f"{told} of the words of {summary['pictures']} pictures", markup=False)
        for one in summary["below"]:
            results.print(f"{one['image']}: {', '.join(one['words'])}", markup=False, soft_wrap=True)
    # a script must not take a picture that could not be checked for one that was
    return fail_below is not None and bool(summary["below"] or summary["failed"])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    from ercr.album import Album

    return Album(path).rows(["picture", "status", "words"])


def _add(summary: dict[str, Any], row: dict[str, Any], fail_below: float | None) -> None:
    """Count a picture's words by their verdict."""
    summary["pictures"] += 1
    summary["failed"] += row["status"] == "failed"
    words = [word for word in row["words"] or () if word["content"]]
    for word in words:
        summary[word["verdict"]] += 1
    if fail_below is not None and (low := [word["text"] for word in words if word["seen"] < fail_below]):
        summary["below"].append({"image": row["picture"], "words": low})
