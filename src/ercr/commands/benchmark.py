"""`ercr benchmark`: what explaining costs on this machine, with all rows from one run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ercr.commands.options import JsonOption, ModelOption, choose_model, load_model
from ercr.commands.output import check_outputs, emit_data, notes, results
from ercr.errors import InputError, missing
from ercr.printable import printable
from ercr.zoo.defaults import default_model

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer


def benchmark(
    model: ModelOption = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Random weights in the shape of qwen2-vl-2b, qwen2-vl-7b, llava-1.5-7b or internvl3-2b."),
    ] = None,
    methods: Annotated[str, typer.Option(help="Further methods to measure: names, or all.")] = "cam,tam",
    tokens: Annotated[int, typer.Option(min=1, help="Length of the answer, in tokens.")] = 16,
    grid: Annotated[
        str, typer.Option(help="Rows x columns of visual tokens, for models whose grid follows the picture's size.")
    ] = "17x23",
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,8",
    images: Annotated[
        int, typer.Option(min=1, help="Largest number of pictures in a bulk run; larger batches start from tensors.")
    ] = 32,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Folder of photographs; without it, pictures are drawn in sizes as frequent as in COCO."),
    ] = None,
    one_by_one: Annotated[int, typer.Option(min=1, help="Photographs that are explained alone.")] = 4,
    memory: Annotated[
        int, typer.Option(min=0, help="Pictures over which the level of memory is measured; 0 for none.")
    ] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; results are medians.")] = 5,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Also measure with captured CUDA graphs; needs a GPU.")
    ] = False,
    growth: Annotated[bool, typer.Option("--growth", help="Also measure how time and memory grow.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for benchmark.json, benchmark.md and plots.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    as_json: JsonOption = None,
) -> None:
    """Measure time, memory and operations of methods beside what the public TAM code does."""
    from ercr.benchmark.run import Wanted
    from ercr.benchmark.run import benchmark as run

    check_outputs([], as_json)
    names = _methods(methods)
    if out is not None:
        from ercr.benchmark.show import FILES
        from ercr.files.folders import make_results_folder

        make_results_folder(out, FILES, FILES[0])
    explainer = _explainer(model, shape, device, dtype)
    if compile_ and explainer.adapter.device.type != "cuda":
        raise InputError("Captured graphs need a GPU: omit --compile.")
    sizes = _numbers("batches", batches)
    shown = (pictures, images, one_by_one, memory)
    wanted = Wanted(names, tokens, _grid(grid), _cell(explainer), repeats, sizes, images, compile_, growth, *shown)
    keep = _writer(out)
    document = run(explainer, wanted, lambda text: notes.print(f"measuring {text} …"), keep)
    if out is not None:
        _write(document, out)
    if as_json is not None:
        emit_data(document, as_json)
        return
    from rich.markdown import Markdown

    from ercr.benchmark.show import markdown

    if results.is_terminal:
        results.print(Markdown(markdown(document)))
    else:
        print(printable(markdown(document)), end="")


def _methods(text: str) -> list[str]:
    from ercr.methods import methods, resolve

    names = [name for name in methods() if name != "ercr"] if text == "all" else [t for t in text.split(",") if t]
    for name in names:
        resolve(name)
    return names


def _explainer(model: str | None, shape: str | None, device: str, dtype: str) -> Explainer:
    if shape is None:
        # the pictures are synthetic; a model whose grid follows the picture's size allows more sizes
        return load_model(choose_model(model, default_model(drawn=True)), device, dtype)
    if model is not None:
        raise InputError("Give --model or --shape, not both.")
    import torch

    from ercr.benchmark.shapes import random_adapter
    from ercr.explaining.explainer import Explainer

    cuda = torch.cuda.is_available()
    chosen = ("cuda" if cuda else "cpu") if device == "auto" else device
    precision = getattr(torch, ("bfloat16" if cuda else "float32") if dtype == "auto" else dtype, None)
    if not isinstance(precision, torch.dtype):
        raise InputError(f"dtype must be auto, float32, bfloat16 or float16, not {dtype!r}.")
    return Explainer.around(random_adapter(shape, chosen, precision), f"random weights, {shape}")


def _cell(explainer: Explainer) -> int:
    """Pixels of a picture per visual token, where the family's grid follows the picture."""
    processor: Any = explainer.adapter.image_processor
    return int(getattr(processor, "patch_size", 0) or 14) * int(getattr(processor, "merge_size", 0) or 2)


def _grid(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"0*([1-9]\d*)[x,]0*([1-9]\d*)", text)
    if found is None:
        raise InputError(f"Give --grid as rows x columns, such as 17x23, not {text!r}.")
    return int(found[1]), int(found[2])


def _numbers(name: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} must be whole numbers, not {text!r}.") from None
    if min(numbers) < 1:
        raise InputError(f"{name} must be at least 1, not {text!r}.")
    return numbers


def _writer(folder: Path | None) -> Callable[[dict[str, Any]], None]:
    """Writes what is measured so far: a long run that is stopped keeps its results."""
    from ercr.files.writing import write_atomic

    def keep(document: dict[str, Any]) -> None:
        if folder is not None:
            write_atomic(folder / "benchmark.json", (json.dumps(document, indent=1) + "\n").encode())

    return keep


def _write(document: dict[str, Any], folder: Path) -> None:
    from ercr.benchmark.show import markdown, plot
    from ercr.files.writing import write_atomic

    _writer(folder)(document)
    write_atomic(folder / "benchmark.md", markdown(document).encode())
    try:
        plot(document, folder)
    except ImportError:
        notes.print(str(missing("Plots need matplotlib", "evaluate")), markup=False, soft_wrap=True)
    notes.print(f"wrote {folder / 'benchmark.json'} and {folder / 'benchmark.md'}")
