"""A server in a process of its own, as a user starts it, and a browser to visit it with."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Server:
    """`ercr serve` on a free port; what it writes goes to a file, because a full pipe would block it."""

    def __init__(self, place: Path, *options: str) -> None:
        self.log = place / "server.log"
        quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(place), "PYTHONUNBUFFERED": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ercr", "serve", "--port", "0", *options],
                stdout=log,
                stderr=log,
                env={**os.environ, **quiet},
                cwd=place,
            )
        self.url = self._address()

    def _address(self) -> str:
        for _ in range(1200):
            found = re.search(r"Serving at (http://\S+)", self.log.read_text())
            if found:
                return found[1]
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise RuntimeError(f"the server did not start: {self.log.read_text()}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("gradio", reason="the page is built with gradio")
    running = Server(tmp_path_factory.mktemp("server"), "--model", "scenes-qwen2vl")  # the pictures are drawn
    yield running
    running.stop()


@pytest.fixture(scope="session")
def scene_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture that the packaged model knows how to describe."""
    from ercr.datasets.scenes import scene

    path = tmp_path_factory.mktemp("scene") / "scene.png"
    scene(5895).image.save(path)
    return path


@pytest.fixture(scope="session")
def client(server: Server) -> Any:
    return pytest.importorskip("gradio_client").Client(server.url, verbose=False)


Visit = Callable[..., Any]


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[tuple[ThreadPoolExecutor, Any]]:
    """A browser and the one thread that may speak to it; another thread's browser does not disturb it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip(f"the page is tested in Chromium, and none of {', '.join(_BROWSERS)} is installed")
    with ThreadPoolExecutor(1) as thread:
        tool = thread.submit(lambda: playwright.sync_playwright().start()).result()
        flags = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        launch = thread.submit(lambda: tool.chromium.launch(executable_path=found, args=flags))
        yield thread, launch.result()
        thread.submit(lambda: launch.result().close()).result()
        thread.submit(tool.stop).result()


@pytest.fixture
def visit(server: Server, browser_thread: tuple[ThreadPoolExecutor, Any]) -> Visit:
    """`visit(act, users=2)` calls `act` with that many open pages; none may use another host or raise a dialog."""
    thread, browser = browser_thread

    def run(act: Callable[..., Any], users: int, options: dict[str, Any]) -> Any:
        contexts = [browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options) for _ in range(users)]
        pages, complaints = [context.new_page() for context in contexts], []
        for page in pages:
            page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
            page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
            page.on(
                "request", lambda request: None if _ours(request.url, server.url) else complaints.append(request.url)
            )
            page.goto(server.url)
            page.wait_for_selector("#explain")
        try:
            return act(*pages)
        finally:
            for context in contexts:
                context.close()
            assert not complaints

    def start(act: Callable[..., Any], users: int = 1, **options: Any) -> Any:
        return thread.submit(run, act, users, options).result()

    return start


def _ours(url: str, home: str) -> bool:
    return url.startswith((home, "data:", "blob:", "about:"))


@pytest.fixture
def bad_files(tmp_path: Path, picture: Image.Image) -> dict[str, Path]:
    """Files that are not what their names say, and what the message about each must contain."""
    text, cut, bomb = tmp_path / "text.png", tmp_path / "cut.jpg", tmp_path / "bomb.png"
    text.write_text("This is not a picture.")
    picture.save(cut, quality=95)
    cut.write_bytes(cut.read_bytes()[:1500])
    Image.new("L", (8000, 6250)).save(bomb)
    return {"not a picture": text, "damaged or cut short": cut, "16 megapixels": bomb}
