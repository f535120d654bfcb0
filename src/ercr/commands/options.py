"""Options that several commands share, and loading a model from them."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ercr.commands.output import notes, working
from ercr.errors import InputError

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer
    from ercr.zoo.defaults import DefaultModel

ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", help="Packaged model, checkpoint folder or hub id.", show_default=False)
]
MethodOption = Annotated[
    str, typer.Option("--method", help="Name, or name:setting=value,… ; `ercr methods` lists them.")
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json", help="Print one JSON document on standard output, or write it to a .json file.", show_default=False
    ),
]


CalibrationOption = Annotated[
    str | None,
    typer.Option(
        help="Turns signals into `seen`: a name or a JSON file; by default the packaged model's own, else general.",
        show_default=False,
    ),
]


def check_calibration(calibration: str | None) -> None:
    """Refuse an unknown calibration before a model is loaded."""
    if calibration is not None:
        from ercr.words.calibration import find_calibration

        find_calibration(calibration)


def _at_least_one(parameter: typer.CallbackParam, value: int) -> int:
    """Refuse lengths below 1 before a model is loaded."""
    if value < 1:
        raise InputError(f"{parameter.opts[0]} must be at least 1, not {value}.")
    return value


AnswerLengthOption = Annotated[int, typer.Option(callback=_at_least_one, help="Longest answer, in tokens.")]


def choose_model(given: str | None, default: DefaultModel) -> str:
    """The given model, or else the default one, which is announced."""
    if given is not None:
        return given
    from ercr.zoo import locate

    locate(default.name)  # first: an error if it is missing, before it is announced
    notes.print(default.sentence, markup=False, soft_wrap=True)
    return default.name


def load_model(name: str, device: str, dtype: str, compile: bool = False) -> Explainer:
    """Load a model with a spinner on standard error."""
    with working("Loading the model"):
        from transformers.utils import logging as hub_logging

        from ercr.explaining.explainer import Explainer

        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat what our error says
        if not sys.stderr.isatty():
            hub_logging.disable_progress_bar()
        check_device(device)
        options: dict[str, Any] = {} if device == "auto" and not _has_gpu() else {"device_map": device}
        options["compile"] = compile
        return Explainer.from_pretrained(name, dtype=None if dtype == "auto" else dtype, **options)


def check_options(answer: str | None, dtype: str) -> None:
    """Check options before a model is loaded."""
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise InputError(f"dtype must be auto, float32, bfloat16 or float16, not {dtype!r}.")
    if answer is not None and not answer.strip():
        raise InputError("The answer to explain is empty: give at least one word.")


def check_device(device: str) -> None:
    """Refuse a device that does not exist or is not available."""
    import torch

    from ercr.models.updates import DEVICE_MAP_WORDS

    if device not in DEVICE_MAP_WORDS:
        try:
            torch.device(device)
        except RuntimeError:
            raise InputError(f"There is no device {device!r}: use auto, cpu, cuda or cuda:0.") from None
    if device.startswith("cuda") and not _has_gpu():
        raise InputError("There is no CUDA device on this machine: omit --device, or use --device cpu.")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
