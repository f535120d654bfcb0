"""Prints and writes results (standard output, files) and everything else (standard error)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from ercr.errors import InputError
from ercr.printable import json_text, printable

if TYPE_CHECKING:
    from ercr.explanation import Explanation, Word


class SafeConsole(Console):
    """A console that escapes control characters in untrusted text (answers, file names, labels).

    Everything printed passes through `render` as segments, tables and progress bars included; the console's own control
    codes are marked as such and are kept.
    """

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for piece in super().render(renderable, options):
            safe = piece.text if piece.control else printable(piece.text)
            yield piece if safe == piece.text else Segment(safe, piece.style)


notes = SafeConsole(stderr=True, highlight=False)
results = SafeConsole(highlight=False)
MOVING = (".gif", ".webm", ".mp4")
PICTURES = (".png", *MOVING)  # which show one word
SUFFIXES = (".html", ".npz", ".ercr", ".json", *PICTURES)
Target = tuple[Path, str | None]  # a file, and the word whose map it shows


def say(text: str) -> None:
    """Print a sentence to standard error, without markup."""
    notes.print(text, markup=False, soft_wrap=True)


def check_outputs(out: list[Path], as_json: str | None) -> list[Path]:
    """Refuse files that cannot be written, before any work is done."""
    from ercr.files.writing import check_writable

    targets = [*out, *([Path(as_json)] if as_json not in (None, "-") else [])]
    for target in targets:
        if target.suffix.lower() not in SUFFIXES:
            raise InputError(f"{target} has no known ending: use one of {', '.join(SUFFIXES)}.")
        check_writable(target)
        if target.suffix.lower() in MOVING:
            from ercr.render.animation import check

            check(target)
    return targets


def outputs(out: list[Path], as_json: str | None, words: Sequence[str]) -> list[Target]:
    """The files to write, checked; each word has a picture: one file of a kind per word, or one name."""
    from ercr.files.writing import check_writable

    files = check_outputs(out, as_json)
    wanted = list(dict.fromkeys(words))
    kinds = [file.suffix.lower() for file in files]
    turns, found = {kind: iter(wanted) for kind in PICTURES}, list[Target]()
    for file, kind in zip(files, kinds, strict=True):
        if kind not in PICTURES or not wanted:
            found.append((file, None))
        elif len(wanted) in (1, kinds.count(kind)):
            found.append((file, wanted[0] if len(wanted) == 1 else next(turns[kind])))
        else:
            found += zip(_names(file, wanted), wanted, strict=True)
    for target, _ in found:
        check_writable(target)
    return found


def _names(file: Path, words: Sequence[str]) -> list[Path]:
    """A file name for each word, with the word in it; equal names are numbered."""
    plain = [re.sub(r"\W+", "-", word).strip("-")[:40] or "word" for word in words]
    same = [plain[:i].count(each) for i, each in enumerate(plain)]
    return [file.with_stem(f"{file.stem}-{p}{f'-{n + 1}' if n else ''}") for p, n in zip(plain, same, strict=True)]


def write(explanation: Explanation, target: Path, word: Any, instead: str | None = None) -> None:
    """Write one result file; its ending decides the format. With `instead`, pictures show a difference."""
    from ercr.explanation.export import to_npz
    from ercr.files.writing import write_atomic

    suffix = target.suffix.lower()
    if suffix == ".html":
        explanation.to_html(target, word)
    elif suffix == ".ercr":
        explanation.save(target)
    elif suffix == ".npz":
        write_atomic(target, to_npz(explanation))
    elif suffix == ".json":
        write_atomic(target, (json_text(json.dumps(explanation.to_dict(), ensure_ascii=False)) + "\n").encode())
    elif suffix in MOVING:
        explanation.animate(target, word)
    else:
        import io

        buffer = io.BytesIO()
        differs = word is not None and instead is not None
        picture = explanation.overlay_contrast(word.text, instead or "") if differs else explanation.overlay(word)
        picture.save(buffer, format="PNG")
        write_atomic(target, buffer.getvalue())
    notes.print(f"wrote {target}", markup=False, soft_wrap=True)


def emit_data(data: Any, as_json: str) -> None:
    """A JSON document to standard output or to a file."""
    from ercr.files.writing import write_atomic

    document = json_text(json.dumps(data, ensure_ascii=False))
    if as_json == "-":
        print(document)
    else:
        write_atomic(Path(as_json), (document + "\n").encode())


def show(explanation: Explanation, words: Sequence[Word] = ()) -> None:
    """Print the answer in colour, then the numbers of the given words."""
    from ercr.render.terminal import facts, is_guess, unit, word_lines, words_line

    if not explanation.words:
        notes.print("The answer is empty.")
        return
    results.print(words_line(explanation), soft_wrap=True)
    for word in words:
        notes.print(f"{word.text}: {facts(word, unit(explanation))}", markup=False, soft_wrap=True)
        if results.is_terminal:
            results.print(word_lines(word))
    if guessed := [word.text for word in explanation.words if is_guess(word)]:
        notes.print(f"Probably guessed: {', '.join(guessed)} (underlined).", markup=False, soft_wrap=True)
    if not explanation.geometry.whole:
        notes.print(f"The model was shown {explanation.seen:.0%} of the image; the rest was cropped away.")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner while something takes time; shown only if standard error is a terminal."""
    if notes.is_terminal:
        with notes.status(f"{what} …"):
            yield
    else:
        yield
