"""Text from strangers does not steer the terminal: answers, file names, labels of runs, wrong arguments."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ercr.commands.output import SafeConsole
from ercr.printable import json_text
from ercr.render.terminal import render

HOSTILE = "dog\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\x7f"
FORBIDDEN = ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e", "\x7f")


def tame(shown: str) -> bool:
    return not any(code in shown for code in FORBIDDEN)


def test_whatever_is_printed_has_no_codes_but_the_consoles_own():
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    buffer = io.StringIO()
    console = SafeConsole(file=buffer, force_terminal=True, color_system="truecolor", width=200)
    for thing in (HOSTILE, Text(HOSTILE, "bold"), table):
        console.print(thing, markup=False)
    console.rule(HOSTILE)
    with Progress(console=console) as bar:
        bar.add_task(HOSTILE, total=1)
    with console.status(HOSTILE):
        console.print("done", style="bold")
    assert tame(buffer.getvalue())
    assert "dog\\x1b[2J" in buffer.getvalue()
    assert "\x1b[1m" in buffer.getvalue()  # its own stay


def test_an_answer_with_codes_is_shown_without_them(load, picture):
    explanation = load("llava").explain(picture, "x", answer="a dog")
    tokens = [replace(token, text=f" {HOSTILE}") for token in explanation.text_tokens]
    hostile = replace(explanation, text_tokens=tuple(tokens))
    assert tame(render(hostile, hostile.words[0], 80))


def test_wrong_arguments_are_quoted_without_codes(command, photo):
    for arguments in (("explain", photo, HOSTILE), (HOSTILE,), ("explain", HOSTILE), ("show", HOSTILE)):
        code, out, err = command(*arguments)
        assert code == 2
        assert tame(out + err)


def test_a_json_document_reads_back_the_same():
    data = {"text": HOSTILE + "\udcff é 猫\n\ud800"}
    document = json_text(json.dumps(data, ensure_ascii=False))
    assert tame(document)
    document.encode()
    assert json.loads(document) == data
