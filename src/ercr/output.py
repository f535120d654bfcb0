"""What commands print and write: results to standard output or files, all else to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ercr.errors import InputError, OutputError

if TYPE_CHECKING:
    from ercr.explanation import Explanation

notes = Console(stderr=True, highlight=False)
results = Console(highlight=False)
SUFFIXES = {".html": "page", ".png": "overlay", ".ercr": "saved explanation", ".json": "data"}


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror or error}.") from None


def check_outputs(out: list[Path], as_json: str | None) -> list[Path]:
    """Refuse what cannot be written before any work is done."""
    from ercr.storage import check_writable

    targets = [*out, *([Path(as_json)] if as_json not in (None, "-") else [])]
    for target in targets:
        if target.suffix.lower() not in SUFFIXES:
            raise InputError(f"{target} has no known ending: use one of {', '.join(SUFFIXES)}.")
        check_writable(target)
    return targets


def write(explanation: Explanation, target: Path, word: Any) -> None:
    """One result file, its kind by its ending."""
    from ercr.storage import write_atomic

    suffix = target.suffix.lower()
    if suffix == ".html":
        explanation.to_html(target, word)
    elif suffix == ".ercr":
        explanation.save(target)
    elif suffix == ".json":
        write_atomic(target, (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode())
    else:
        import io

        buffer = io.BytesIO()
        explanation.overlay(word).save(buffer, format="PNG")
        write_atomic(target, buffer.getvalue())
    notes.print(f"wrote {target}")


def emit_data(data: Any, as_json: str) -> None:
    """A JSON document to standard output or to a file."""
    from ercr.storage import write_atomic

    document = json.dumps(data, ensure_ascii=False)
    if as_json == "-":
        print(document)
    else:
        write_atomic(Path(as_json), (document + "\n").encode())


def show(explanation: Explanation, word: Any) -> None:
    """The answer in colour, then what to know about it."""
    from ercr.render.terminal import map_lines, words_line

    if not explanation.words:
        notes.print("The model said nothing.")
        return
    results.print(words_line(explanation), soft_wrap=True)
    if word is not None:
        notes.print(f"{word.text}: evidence {word.evidence:.2f}, probability {word.probability:.2f}", markup=False)
    if word is not None and results.is_terminal:
        results.print(map_lines(word.map))
    if explanation.seen < 0.9995:
        notes.print(f"The model was shown {explanation.seen:.0%} of the image; the rest was cropped away.")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes time; silent where nobody watches."""
    if notes.is_terminal:
        with notes.status(f"{what} …"):
            yield
    else:
        yield
