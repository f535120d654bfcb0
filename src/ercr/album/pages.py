"""Pages of an album: one per picture, and an index with thumbnails; never runs a model."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ercr.explanation import Explanation
from ercr.files.writing import write_atomic
from ercr.image.images import LoadedImage
from ercr.render.overlay import abreast

FOLDER, INDEX = "pages", "index.html"
_EDGE = 320  # pixels of a thumbnail's longer side
_PER_PAGE = 500  # pictures on a page of the index
_POLICY = "default-src 'none'; img-src 'self' file:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } nav { margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .6rem; }
ul { list-style: none; padding: 0; display: grid; gap: 1rem; }
ul { grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); }
li { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: .5rem; overflow: hidden; }
img { display: block; width: 100%; height: 11rem; object-fit: cover; }
li > div { padding: .5rem .7rem; overflow-wrap: anywhere; } small { opacity: .75; }
a { color: inherit; } a:focus-visible { outline: 3px solid #0072b2; }
"""


def write_page(folder: Path, index: int, explanation: Explanation) -> None:
    """The page of a picture and its thumbnail."""
    pages = folder / FOLDER
    pages.mkdir(exist_ok=True)
    explanation.to_html(pages / f"{_name(index)}.html")
    small = abreast([item.rgb if isinstance(item, LoadedImage) else item.frames[0] for item in explanation.media])
    small.thumbnail((_EDGE, _EDGE))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=85)
    write_atomic(pages / f"{_name(index)}.jpg", buffer.getvalue())


def write_index(folder: Path, rows: Iterable[Mapping[str, Any]], title: str, total: int) -> list[Path]:
    """Pages of thumbnails that lead to the pictures' pages; a picture that failed is shown with its reason."""
    count = max(1, -(-total // _PER_PAGE))
    written, items = list[Path](), list[str]()
    for row in rows:
        items.append(_item(row))
        if len(items) == _PER_PAGE:
            written.append(_write(folder, len(written), count, title, items, total))
            items = []
    if items or not written:
        written.append(_write(folder, len(written), count, title, items, total))
    return written


def index_name(number: int) -> str:
    return INDEX if number == 0 else f"index-{number + 1}.html"


def _name(index: int) -> str:
    return f"{index:07d}"


def _item(row: Mapping[str, Any]) -> str:
    name = html.escape(row["picture"] or "")
    if row["status"] != "ok":
        return f"<li><div><small>{name}</small><br>failed: {html.escape(row['reason'] or '')}</div></li>"
    page = f"{FOLDER}/{_name(row['index'])}"
    answer = html.escape(row["answer"] or "(no answer)")
    return (
        f'<li><a href="{page}.html"><img loading="lazy" src="{page}.jpg" alt=""></a>'
        f'<div><a href="{page}.html">{answer}</a><br><small>{name}</small></div></li>'
    )


def _write(folder: Path, number: int, count: int, title: str, items: list[str], total: int) -> Path:
    links = "".join(
        f"<span>{n + 1}</span>" if n == number else f'<a href="{index_name(n)}">{n + 1}</a>' for n in range(count)
    )
    where = f'<nav aria-label="Pages">{links}</nav>' if count > 1 else ""
    heading = html.escape(title)
    document = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{heading}</title><style>{_STYLE}</style></head><body><main><h1>{heading}</h1>"
        f"<p>{total:,} pictures</p>{where}<ul>{''.join(items)}</ul>{where}</main></body></html>\n"
    )
    path = folder / index_name(number)
    write_atomic(path, document.encode("utf-8", "replace"))
    return path
