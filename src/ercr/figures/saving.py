"""Writes a figure to a file in the format of its suffix; the same figure gives the same bytes."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ercr.errors import InputError
from ercr.figures.sheet import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# without the date the same figure gives the same file
KINDS: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def check_files(paths: Sequence[Path], dpi: int) -> None:
    """Raise for a suffix, a path or a resolution that cannot be written."""
    from ercr.files.writing import check_writable

    for path in paths:
        if path.suffix.lower() not in KINDS:
            raise InputError(f"{path} has no known ending: use one of {', '.join(KINDS)}.")
        check_writable(path)
    if not 20 <= dpi <= 2400:
        raise InputError(f"dpi must be 20 to 2400, not {dpi}.")


def save(figure: Figure, path: str | os.PathLike[str], dpi: int = 300) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix of the path; PDFs embed complete fonts."""
    from ercr.files.writing import write_atomic

    target = Path(path)
    check_files([target], dpi)
    kind, buffer = target.suffix.lower(), io.BytesIO()
    with drawing():
        import matplotlib

        with matplotlib.rc_context({"svg.hashsalt": "ercr"}), _one_warning():
            figure.savefig(buffer, format=kind[1:], dpi=dpi, facecolor="white", metadata=KINDS[kind])
    write_atomic(target, buffer.getvalue())


@contextmanager
def _one_warning() -> Iterator[None]:
    """Collect the warnings about characters that no font has into one."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield
    texts = [str(warning.message) for warning in heard]
    codes = {int(found[1]) for text in texts if (found := re.match(r"Glyph (\d+)", text))}
    for text in texts:
        if not text.startswith("Glyph "):
            warnings.warn(text, stacklevel=4)
    if codes:
        missing = "".join(chr(code) for code in sorted(codes))
        warnings.warn(f"No font here has {missing}, drawn as boxes: install one, such as Noto Sans CJK.", stacklevel=4)
