"""`ercr figure`: a figure for a paper, from one picture and one answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ercr.commands.given import FpsOption, FramesOption, opened
from ercr.commands.options import AnswerLengthOption, JsonOption, ModelOption, check_options, choose_model, load_model
from ercr.commands.output import emit_data, notes, results, working
from ercr.errors import InputError
from ercr.zoo.defaults import PROMPT, default_model, model_for_dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.explaining.explainer import Explainer
    from ercr.explanation import Explanation

Kind = Literal["methods", "ablation", "tokens", "faithfulness", "film"]
_METHODS = {"methods": "attention,cam,tam,ercr", "tokens": "ercr", "faithfulness": "cam,tam,ercr", "film": "ercr"}
_ONE = ("tokens", "film")  # kinds that show one method


def figure(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="methods: a grid of methods and words; ablation: variants of ERCR; tokens: the whole answer; "
            "faithfulness: deletion and insertion for one word; film: frames of a video, or several pictures, in a row."
        ),
    ],
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IMAGE]...",
            help="The picture: a file or a URL; without it a scene is drawn. Of a film: videos and pictures; without "
            "them a clip is drawn.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="File to write: .png, .pdf or .svg; repeatable.", show_default="KIND.png"),
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What to ask.")] = PROMPT,
    model: ModelOption = None,
    words: Annotated[
        str | None,
        typer.Option(
            help="Words or phrases, separated by commas; by default those with most evidence.", show_default=False
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="For example cam,tam,ercr:context=tam , or all.", show_default="depends on the kind"),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="Explain this answer instead of a generated one.", show_default=False)
    ] = None,
    dpi: Annotated[int, typer.Option(help="Resolution of PNG files, in dots per inch.")] = 300,
    colormap: Annotated[
        str, typer.Option(help="inferno, viridis, cividis, grey or another of matplotlib's.")
    ] = "inferno",
    scale: Annotated[
        Literal["value", "peak"] | None,
        typer.Option(help="Colour by value, or relative to each map's peak.", show_default="depends on the kind"),
    ] = None,
    width: Annotated[float, typer.Option(help="Width in inches: 7.16 for two columns of a page, 3.5 for one.")] = 7.16,
    fps: FpsOption = None,
    num_frames: FramesOption = None,
    frames: Annotated[int, typer.Option(help="Of a film: how many parts of each video's time are shown.")] = 8,
    seed: Annotated[int, typer.Option(help="Which scene to draw if no picture is given.")] = 5895,
    max_new_tokens: AnswerLengthOption = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    as_json: JsonOption = None,
) -> None:
    """Draw a figure for a paper: methods, an ablation, an answer token by token, deletion and insertion, or a film."""
    from ercr.commands.output import check_outputs
    from ercr.figures.saving import check_files, save

    targets = out or [Path(f"{kind}.png")]
    check_outputs([], as_json)
    wanted = _methods(kind, methods)
    looks = _check_looks(kind, colormap, scale, width, frames)
    check_options(answer, dtype)
    check_files(targets, dpi)
    with working("Opening the picture"):
        picture, named = _pictures(kind, images or [], seed, fps, num_frames)
    default = model_for_dataset("moving" if kind == "film" else "scenes") if not images else default_model()
    if kind == "film" and not images and prompt == PROMPT:
        from ercr.datasets.moving import PROMPT as CLIP_PROMPT

        prompt = CLIP_PROMPT
    explainer = load_model(choose_model(model, default), device, dtype)
    with working("Explaining"):
        found = explainer.explain_all(picture, prompt, methods=wanted, answer=answer, max_new_tokens=max_new_tokens)
        said = [part.strip() for part in words.split(",") if part.strip()] if words is not None else named(found[0])
        made = _draw(kind, explainer, found, said, prompt, looks)
    for target in targets:
        with warnings.catch_warnings(record=True) as heard:
            save(made, target, dpi)
        for text in dict.fromkeys([*(str(warning.message) for warning in heard), f"wrote {target}"]):
            notes.print(text, markup=False, soft_wrap=True)
    if as_json is not None:
        emit_data({"kind": kind, "text": found[0].text, "methods": wanted, "files": [str(t) for t in targets]}, as_json)
    else:
        results.print(found[0].text, markup=False, soft_wrap=True)


def _check_looks(
    kind: Kind, colormap: str, scale: Literal["value", "peak"] | None, width: float, frames: int
) -> dict[str, Any]:
    """The options of the drawing functions, checked before a model is loaded."""
    from ercr.figures.panel import Shade
    from ercr.figures.sheet import check_width, drawing

    check_width(width)
    with drawing():  # says what to install if matplotlib is missing
        Shade(scale or "value", colormap)
    if kind == "faithfulness" and scale is not None:
        raise InputError("A faithfulness figure always shows maps relative to their peaks: omit --scale.")
    looks: dict[str, Any] = {"colormap": colormap, "width": width, **({"scale": scale} if scale else {})}
    if kind != "film":
        return looks
    from ercr.figures.frames import check_frames

    check_frames(frames)
    return {**looks, "frames": frames}


def _methods(kind: Kind, given: str | None) -> list[str]:
    from ercr.figures import ABLATION
    from ercr.methods import resolve
    from ercr.methods.lists import split_methods
    from ercr.methods.specs import NAMES

    if kind == "ablation":
        if given is not None:
            raise InputError("The ablation's variants are fixed: omit --methods.")
        return list(ABLATION)
    chosen = list(NAMES) if given == "all" else split_methods([given or _METHODS[kind]])
    for method in chosen:
        resolve(method)
    if kind in _ONE and len(chosen) != 1:
        what = "strip of tokens" if kind == "tokens" else "film"
        raise InputError(f"A {what} shows one method: name one with --methods.")
    return chosen


def _pictures(
    kind: Kind, images: list[str], seed: int, fps: float | None, num_frames: int | None
) -> tuple[Any, Callable[[Explanation], list[Any] | None]]:
    """What is shown, and a function for the default words: those that name an object of a drawn scene."""
    if images:
        from ercr.explaining.media import kind_of

        found = [opened(name, fps, num_frames) for name in images]
        if kind != "film" and (len(found) > 1 or kind_of(found[0]) == "video"):
            raise InputError(f"A figure of {kind} shows one picture: for several, or a video, use ercr figure film.")
        return found if len(found) > 1 else found[0], lambda explanation: None
    from ercr.commands import demo

    if kind == "film":
        from ercr.datasets.moving import moving

        demo.check_installed()
        drawn = moving(seed)
        return drawn.clip, lambda explanation: demo.naming(explanation, drawn.nouns)[:4] or None
    scene = demo.draw(seed)
    return scene.image, lambda explanation: demo.object_words(explanation, scene)[:4]


def _draw(
    kind: Kind,
    explainer: Explainer,
    found: list[Explanation],
    words: list[Any] | None,
    prompt: str,
    options: dict[str, Any],
) -> Figure:
    from ercr import figures

    if kind == "methods":
        return figures.methods_grid(found, words, **options)
    if kind == "ablation":
        # this figure must also show function words, so the scene's object words are not enough
        return figures.ablation_grid(found, words if words and isinstance(words[0], str) else None, **options)
    if kind == "film":
        return figures.film_strip(found[0], words, **options)
    if kind == "tokens":
        return figures.token_strip(found[0], **options)
    measured = figures.responses(explainer, found, words[0] if words else None, prompt=prompt)
    return figures.faithfulness_film(measured, **options)
