"""One self-contained page for one or several explanations, and the same in a frame for notebooks.

No network, no fonts, no libraries: a content security policy allows the page's own script and nothing else. What a
user or a model wrote travels as JSON in an inert script element and is only ever set as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from ercr.errors import InputError
from ercr.render.pack import pack

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

MODULES = (
    "dom unpack paint tint selection grounding sentence view clock player figure turns controls candidates "
    "details about group report"
).split()
_FRAME_HEIGHT = 680  # pixels; a frame cannot grow with its content, so the page inside scrolls


def page(explanations: WordMaps | Sequence[WordMaps], word: Word | None = None, framed: bool = False) -> str:
    """A complete HTML document, opened at a word of the first explanation; without a heading if it is framed."""
    shown = list(explanations) if isinstance(explanations, Sequence) else [explanations]
    if not shown:
        raise InputError("A page needs at least one explanation.")
    style, script = _style(), _script()
    policy = (
        "default-src 'none'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        f"style-src {_hash(style)}; script-src {_hash(script)}"
    )
    title = _clean(html.escape(shown[0].text[:80] or "ercr"))
    # "<" could end the script element early, whatever the prompt says
    data = json.dumps(pack(shown, word)).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head>"
        f'<body class="{"framed" if framed else "whole"}"><main class="ercr"></main>{_without_script(shown[0])}'
        f'<script type="application/json" id="ercr-data">{data}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def frame(explanations: WordMaps | Sequence[WordMaps], word: Word | None = None) -> str:
    """The page in a sandboxed frame, so that pages in one notebook cannot affect each other or the notebook."""
    document = html.escape(page(explanations, word, framed=True))
    return (
        '<iframe title="Image evidence for each word" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0; resize: vertical" srcdoc="{document}"></iframe>'
    )


def _without_script(explanation: WordMaps) -> str:
    return (
        "<noscript><p>This page draws its maps with JavaScript, which is disabled in this browser.</p>"
        f"<p>{_clean(html.escape(explanation.text))}</p></noscript>"
    )


@cache
def _style() -> str:
    return _asset("report.css")


@cache
def _script() -> str:
    """The modules as one script, in the order of their imports; each name is defined in one module only."""
    text = "\n".join(_asset(f"{name}.js") for name in MODULES)
    return re.sub(r"^export ", "", re.sub(r"^import .*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)


def _asset(name: str) -> str:
    return (files("ercr.render") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _clean(text: str) -> str:
    """Text that can be encoded as UTF-8: lone surrogates are replaced."""
    return text.encode("utf-8", "replace").decode()
