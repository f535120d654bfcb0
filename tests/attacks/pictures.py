"""Hostile pictures through the library and through HTTP: `python -m tests.attacks.pictures [--count 5000] [--seed 0]`.

Every file must come out as an upright RGB picture within bounds or be refused by one error in one sentence; another
program (Ghostscript) must never be started, and neither process may ever have held 1 GB. Each file then goes to a
server on loopback: one that the library reads must be read there, and a refusal is one sentence, never a 500.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ercr.errors import ImageError
from ercr.image.images import MAX_PIXELS, load_image
from tests.attacks.mutants import ESCAPES, pictures

MEMORY = 1000  # MB
PATIENCE = 60  # seconds for one picture
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


class Trap:
    """A folder in front of the PATH with programs that must not be called, and leave a mark where they are."""

    def __init__(self, place: Path) -> None:
        self.mark = place / "called"
        self.folder = place / "bin"
        self.folder.mkdir()
        for name in ("gs", "gswin64c", "xpdf", "convert"):
            (self.folder / name).write_text(f"#!/bin/sh\necho {name} >> {self.mark}\n")
            (self.folder / name).chmod(0o755)
        os.environ["PATH"] = f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def calls(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []


def sentence_trouble(said: str) -> str | None:
    """What is wrong with a refusal, if anything."""
    if _CONTROL.search(said):
        return f"control characters: {said!r}"
    if not said.endswith(".") or "Traceback" in said or not 15 < len(said) < 700:
        return f"not a sentence: {said!r}"
    return None


def by_library(encoded: bytes, place: Path | None = None) -> tuple[str, str | None]:
    """How one file ends in the library (`read` or `refused`), and what is wrong with that."""
    if place is not None:
        place.write_bytes(encoded)
    signal.alarm(PATIENCE)
    try:
        loaded = load_image(encoded if place is None else place)
    except ImageError as error:
        return "refused", sentence_trouble(str(error))
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    fine = loaded.rgb.mode == "RGB" and 0 < loaded.rgb.width * loaded.rgb.height <= MAX_PIXELS
    return "read", None if fine else f"{loaded.rgb.mode} {loaded.rgb.size}"


def attack_library(count: int, seed: int) -> tuple[Counter[str], list[str], list[str]]:
    """All files in this process: how they end, what is wrong, and the end of each."""
    ends, wrong, each = Counter[str](), list[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        trap = Trap(Path(folder))
        for number, encoded in enumerate(pictures(count, seed)):
            # every third comes as a file whose name would colour the terminal
            end, trouble = by_library(encoded, Path(folder, ESCAPES) if number % 3 == 0 else None)
            ends[end] += 1
            each.append(end)
            if trouble or end == "failed":
                wrong.append(f"picture {number}: {trouble}")
        wrong += [f"{name} was started" for name in trap.calls()]
    return ends, wrong, each


def _measured(count: int, seed: int, answer: Any) -> None:
    found = attack_library(count, seed)
    answer.send((*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def attack_server(count: int, seed: int, expected: list[str], place: Path) -> tuple[Counter[str], list[str], float]:
    """The same files as uploads: ends, what is wrong, and the most memory the server ever held."""
    import httpx

    from tests.web.conftest import Server

    trap = Trap(place)
    server = Server(place, "--model", "scenes-qwen2vl")
    ends, wrong = Counter[str](), list[str]()
    try:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
            visitor = Visitor(http)
            for number, encoded in enumerate(pictures(count, seed)):
                end, trouble = visitor.look(encoded)
                # the server allows fewer pixels than the library, so it may refuse what that reads; never the reverse
                if end == "read" and expected[number] != "read":
                    trouble = "read by the server, refused by the library"
                if end == "read" and number % 50 == 0:
                    end, trouble = visitor.explain()
                ends[end] += 1
                if trouble:
                    wrong.append(f"upload {number}: {trouble}")
            alive = http.get("/").status_code == 200
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    finally:
        try:
            server.stop()
        except subprocess.TimeoutExpired:
            server.process.kill()
            wrong.append("the server did not stop when it was asked to")
    wrong += [] if alive else ["the server is gone"]
    wrong += [f"{name} was started" for name in trap.calls()]
    return ends, wrong, peak


class Visitor:
    """One client: uploads a file and asks what the page's own check, or the model, says of it."""

    def __init__(self, http: Any) -> None:
        self._http = http
        functions = http.get("/config").json()["dependencies"]
        self._looked = next(f["id"] for f in functions if any(event == "upload" for _, event in f["targets"]))
        self._path = ""

    def look(self, encoded: bytes) -> tuple[str, str | None]:
        sent = self._http.post("/gradio_api/upload", files={"files": ("picture.png", encoded)})
        if sent.status_code != 200:
            return "refused before decoding", None if 400 <= sent.status_code < 500 else f"status {sent.status_code}"
        self._path = sent.json()[0]
        body = {"fn_index": self._looked, "session_hash": "attack", "data": [{"path": self._path}]}
        answer = self._http.post("/gradio_api/run/predict", json=body)
        if answer.status_code != 200:
            return "failed", f"status {answer.status_code}: {answer.text[:200]}"
        said = re.sub("<[^>]*>", "", answer.json()["data"][1] or "").strip()
        if not said:
            return "read", None
        unclear = "The server failed" in said
        return "refused", said if unclear else sentence_trouble(said)

    def explain(self) -> tuple[str, str | None]:
        values = [{"path": self._path}, "What is this?", "scenes-qwen2vl", "cam", 2]
        joined = self._http.post("/gradio_api/call/explain", json={"data": values})
        if joined.status_code != 200:
            return "failed", f"status {joined.status_code}"
        text = self._http.get(f"/gradio_api/call/explain/{joined.json()['event_id']}").text
        if "event: complete" in text:
            return "explained", None
        return "not explained", text if "The server failed" in text or "error" not in text else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # a process of its own, so that its memory is that of the library alone
    here, there = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_measured, args=(options.count, options.seed, there))
    child.start()
    there.close()
    ends, wrong, each, peak = here.recv()
    child.join()
    with tempfile.TemporaryDirectory() as place:
        served, more, server_peak = attack_server(options.count, options.seed, each, Path(place))
    wrong += more + [
        f"{name} held {mb:.0f} MB" for name, mb in (("library", peak), ("server", server_peak)) if mb > MEMORY
    ]
    print(*wrong[:20], sep="\n")
    print(
        f"{options.count} pictures: library {dict(sorted(ends.items()))}, at most {peak:.0f} MB; "
        f"HTTP {dict(sorted(served.items()))}, at most {server_peak:.0f} MB; {len(wrong)} wrong"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
