"""Makes untrusted text safe to print: control characters in file names or answers are escaped."""

from __future__ import annotations

import re

# control characters except line feed and tab, marks of text direction, and lone surrogates
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters and lone surrogates replaced by escapes."""
    return _UNSAFE.sub(lambda found: _escaped(found[0]), text)


def json_text(document: str) -> str:
    """A JSON document with the same characters as JSON escapes, so that parsing it gives the same data."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def one_line(text: str) -> str:
    """The same as `printable`, on one line."""
    return printable(re.sub(r"[\r\n\t]+", " ", text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
