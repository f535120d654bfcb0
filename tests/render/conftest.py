"""A real browser for pages, and a watch on what pages must never do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts.push(entry.value);
    }).observe({ type: "layout-shift", buffered: true });
"""


@dataclass
class Opened:
    """A page in the browser, and what it complained about or asked the network for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def word(self, text: str, nth: int = 0) -> Any:
        return self.page.get_by_role("option", name=text, exact=True).nth(nth)

    def settle(self) -> None:
        """Wait until what was asked for is painted."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def layer(self, figure: int = 0) -> bytes:
        """The pixels of a map's canvas."""
        data = self.page.locator("figure canvas").nth(figure).evaluate("canvas => canvas.toDataURL()")
        return str(data).encode()

    def shifts(self) -> list[float]:
        return list(self.page.evaluate("() => window.shifts"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"pages are tested in Chromium, and none of {', '.join(_NAMES)} is installed")
    with playwright.sync_playwright() as tool:
        chromium = tool.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a document from a file; when the test is over, no page may have complained, or used the network."""
    contexts, pages = [], []

    def open_(document: str, width: int = 1280, height: int = 800, scheme: str = "light", **options: Any) -> Opened:
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True, **options)
        context.add_init_script(_SHIFTS)
        contexts.append(context)
        context.set_default_timeout(10_000)
        opened = Opened(context.new_page())
        pages.append(opened)
        opened.page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        file = tmp_path / f"page{len(pages)}.html"
        file.write_text(document, encoding="utf-8")
        opened.page.goto(file.as_uri())
        opened.page.wait_for_selector("main[data-ready], iframe")
        return opened

    yield open_
    for opened in pages:
        assert opened.complaints == []
        outside = [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
        assert outside == []
    for context in contexts:
        context.close()
