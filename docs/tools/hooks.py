"""What the site needs differently from GitHub: equations as MathML, and no links out of the documentation.

GitHub shows ```math blocks and $`…`$ by itself. Browsers show MathML by themselves, so the site needs no script.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)\$`([^`]+)`\$(?!`)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)]*)?\)")
_OPEN, _CLOSE = "\ue000", "\ue001"  # around the number of an equation: characters that no text has
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Equations become marks, which Markdown leaves alone; links out of the documentation become paths."""
    made = page.meta.setdefault("equations", [])

    def mark(latex: str, display: str) -> str:
        made.append(convert(" ".join(latex.split()), display=display))
        return f"{_OPEN}{len(made) - 1}{_CLOSE}"

    markdown = _BLOCK.sub(lambda found: mark(found[1], "block"), markdown)
    return _outside_fences(
        markdown,
        lambda text: _local_links(_INLINE.sub(lambda found: mark(found[1], "inline"), text), page, config, files),
    )


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """The equations in place of their marks."""
    html = re.sub(f"<p>{_OPEN}(\\d+){_CLOSE}</p>", rf"{_OPEN}\1{_CLOSE}", html)
    return re.sub(f"{_OPEN}(\\d+){_CLOSE}", lambda found: page.meta["equations"][int(found[1])], html)


def _outside_fences(markdown: str, change: Any) -> str:
    """The text with a change made everywhere but in code blocks."""
    parts, at = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(markdown[at:])])


def _local_links(text: str, page: Any, config: Any, files: Any) -> str:
    """Links to files and folders of the repository that are no pages become their paths."""
    docs = Path(config.docs_dir).resolve()
    here = Path(page.file.abs_src_path).resolve().parent

    def changed(found: re.Match[str]) -> str:
        target = (here / found[2]).resolve()
        inside = target.is_relative_to(docs)
        if inside and files.get_file_from_path(target.relative_to(docs).as_posix()):
            return found[0]
        if not target.exists():
            return found[0]  # a broken link is for the strict build to report
        return f"{found[1]} (`{target.relative_to(docs.parent).as_posix()}`)"

    return _LINK.sub(changed, text)
