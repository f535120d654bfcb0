"""Text from strangers as a terminal may show it: no control sequence in a file name or an answer reaches it."""

from __future__ import annotations

import re

# control characters but line feed and tab, marks that turn the direction of writing, and lone surrogates
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with what a terminal would obey, or cannot show, written out as escapes."""
    return _HIDDEN.sub(lambda found: _written_out(found[0]), text)


def json_text(document: str) -> str:
    """A JSON document with the same characters written as JSON writes them: what is read back is the same."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def one_line(text: str) -> str:
    """The same on one line."""
    return printable(re.sub(r"[\r\n\t]+", " ", text))


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()
