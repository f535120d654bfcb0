"""`ercr explain` and `ercr show`: explain a picture, or show a saved explanation, in the terminal and in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from ercr.commands.output import Target, emit_data, notes, outputs, show, working, write
from ercr.errors import ErcrError, InputError, WordNotFound
from ercr.zoo.defaults import PROMPT, default_model

if TYPE_CHECKING:
    from ercr.explanation import Explanation, Word

_KEEP_CANDIDATES = (".html", ".ercr")
_ONE = {"pages": False, "maps": True, "limit": None, "shard": "1/1", "part_size": 256}  # options for many, unused
_FILES = (
    "File to write: .html, .png (map of --word, or of the whole answer), .gif, .webm or .mp4 (a clip with the evidence "
    "for --word, or the words of the answer one by one), .npz (all maps), .ercr or .json; repeatable. "
    "For several words give as many pictures of a kind, in order, or one: its name then gets each word."
)
WordOption = Annotated[
    list[str] | None, typer.Option("--word", "-w", help="Show this word's map; repeatable.", show_default=False)
]
OutOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        "-o",
        help=_FILES,
    ),
]
RunOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        "-o",
        help=f"{_FILES} For many pictures: the folder of the run; an unfinished one is continued.",
    ),
]


def explain(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IMAGE]...",
            help="The picture or video to explain: a file or a URL (http or https); several are shown together. Or "
            "many, each by itself: a folder, a quoted glob, a list of files (.txt), pictures with prompts and answers "
            "(.jsonl, .parquet), a dataset saved by `datasets`.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What to ask.")] = PROMPT,
    model: ModelOption = None,
    method: MethodOption = "ercr",
    answer: Annotated[
        str | None, typer.Option(help="Explain this answer instead of a generated one.", show_default=False)
    ] = None,
    messages: MessagesOption = None,
    turn: TurnOption = None,
    fps: FpsOption = None,
    num_frames: FramesOption = None,
    word: WordOption = None,
    out: RunOption = None,
    as_json: JsonOption = None,
    max_new_tokens: AnswerLengthOption = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    compile_: Annotated[
        bool, typer.Option("--compile", help="Fuse and capture passes on a GPU: faster after the first picture.")
    ] = False,
    grounding: Annotated[bool, typer.Option(help="Tell seen words from guessed ones.")] = True,
    calibration: CalibrationOption = None,
    candidates: Annotated[
        bool, typer.Option(help="Keep maps of what could have been said, in .html and .ercr files.")
    ] = True,
    instead: Annotated[
        list[str] | None,
        typer.Option(
            help="Also a map of this word in the place of every other; repeatable. With one --word, a .png shows where "
            "the evidence differs.",
            show_default=False,
        ),
    ] = None,
    pages: Annotated[bool, typer.Option("--pages", help="Many: also a page per picture, and index.html.")] = False,
    maps: Annotated[bool, typer.Option(help="Many: store the maps in the rows.")] = True,
    limit: Annotated[int | None, typer.Option(help="Many: only the first pictures.", show_default=False)] = None,
    shard: Annotated[str, typer.Option(help="Many: only this part of so many equal ones, such as 2/8.")] = "1/1",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="Many: one process, or workers of a Ray cluster.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="Many: Ray workers; each takes a GPU if there are any.")] = 1,
    batch_size: Annotated[str, typer.Option(help="Many: pictures at once, or auto.")] = "auto",
    part_size: Annotated[int, typer.Option(help="Many: pictures that are written together.")] = 256,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Many: explain failed pictures again.")] = False,
) -> None:
    """Explain what a model says about a picture, several, or a video; or about many pictures, into a folder of rows."""
    from ercr.methods import resolve

    names = images or []
    asks: dict[str, Any] = {"messages": messages, "turn": turn, "fps": fps, "num_frames": num_frames}
    image = one_of_many(names, asks)
    many = {"pages": pages, "maps": maps, "limit": limit, "shard": shard, "part_size": part_size}
    if image is not None:
        if word or instead or answer is not None:
            raise InputError("--word, --instead and --answer are for one picture; many take answers from their list.")
        from ercr.commands.album import explain_many

        options: dict[str, Any] = {"prompt": prompt, "method": method, "max_new_tokens": max_new_tokens, **many}
        options |= {"device": device, "dtype": dtype, "compile": compile_}
        options |= {"grounding": grounding, "calibration": calibration}
        explain_many(image, out or [], model, engine, workers, batch_size, retry_failed, as_json, **options)
        return
    if many != _ONE or engine != "local" or workers != 1 or retry_failed:
        one = f"{names[0]} is one picture" if len(names) == 1 else "These are explained together"
        raise InputError(f"{one}: the options for many need a folder, a glob or a list.")
    targets = outputs(out or [], as_json, word or [])
    resolve(method)
    check_options(answer, dtype)
    with working("Opening the picture"):
        asked = given(names, prompt, **asks)
    check_calibration(calibration)
    explainer = load_model(choose_model(model, default_model()), device, dtype, compile_)
    kept = any(target.suffix.lower() in _KEEP_CANDIDATES for target, _ in targets)
    with working("Explaining"):
        explanation = explainer.explain(
            **asked.arguments,
            answer=answer,
            method=method,
            max_new_tokens=max_new_tokens,
            candidates=instead or (candidates and kept),
            grounding=(calibration or True) if grounding else False,
        )
    _deliver(explanation, targets, word or [], as_json, instead or [])


def show_saved(
    files: Annotated[list[Path], typer.Argument(help="Saved explanations (.ercr); several are shown side by side.")],
    word: WordOption = None,
    out: OutOption = None,
    as_json: JsonOption = None,
) -> None:
    """Show saved explanations without a model: as text, as a page, as pictures or as data."""
    from ercr.explanation.storage import load

    targets = outputs(out or [], as_json, word or [])
    if len(files) > 1 and (as_json is not None or any(target.suffix.lower() != ".html" for target, _ in targets)):
        raise InputError("Several explanations are written as one page: use --out with a name that ends in .html.")
    found = [load(file) for file in files]
    if len(found) == 1:
        _deliver(found[0], targets, word or [], as_json)
        return
    from ercr.render.compare import compare

    shown, missing = _find(found[0], word or [])
    for target, _ in targets:
        compare(found, next(iter(shown.values()), None)).to_html(target)
        notes.print(f"wrote {target}", markup=False, soft_wrap=True)
    for explanation in found:
        show(explanation)
    if missing:
        raise missing[0]


def _deliver(
    explanation: Explanation,
    targets: Sequence[Target],
    words: Sequence[str],
    as_json: str | None,
    instead: Sequence[str] = (),
) -> None:
    """Write every requested output; one that fails does not prevent the others."""
    shown, errors = _find(explanation, words)
    differ = instead[0] if len(instead) == 1 and len(words) == 1 else None
    for file, word in targets:
        if word is not None and word not in shown:
            continue
        try:
            write(explanation, file, shown[word] if word is not None else next(iter(shown.values()), None), differ)
        except ErcrError as error:
            errors.append(error)
    if as_json == "-":
        emit_data(explanation.to_dict(), as_json)
    elif shown or not words:
        show(explanation, list(shown.values()))
    if errors:
        raise errors[0]


def _find(explanation: Explanation, words: Sequence[str]) -> tuple[dict[str, Word], list[ErcrError]]:
    """The requested words that are in the answer, and one error for all others."""
    shown: dict[str, Word] = {}
    absent: dict[str, ErcrError] = {}
    for word in words:
        try:
            shown[word] = explanation.word(word)
        except WordNotFound as error:
            absent[word] = error
    if len(absent) < 2:
        return shown, list(absent.values())
    from ercr.words.maps import bare_texts

    said = ", ".join(dict.fromkeys(filter(None, bare_texts(explanation.words)))) or "nothing"
    return shown, [WordNotFound(f"The model did not say {' or '.join(map(repr, absent))}; it said: {said}.")]
