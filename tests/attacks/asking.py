"""A program that asks a server over plain HTTP, as the documentation describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

API = "/gradio_api"
MODEL = "scenes-qwen2vl"
PROMPT = "Describe this image."


class Trouble(Exception):
    """An answer that was not an explanation: what came instead."""


def upload(http: httpx.Client, path: Path) -> str:
    """The path under which the server keeps a file."""
    answer = http.post(f"{API}/upload", files={"files": (path.name, path.read_bytes())})
    if answer.status_code != 200:
        raise Trouble(f"{answer.status_code} {answer.text[:200]}")
    return str(answer.json()[0])


def begin(http: httpx.Client, name: str, values: list[Any]) -> str:
    """The event of a call that was queued."""
    answer = http.post(f"{API}/call/{name}", json={"data": values})
    if answer.status_code != 200:
        raise Trouble(f"{answer.status_code} {answer.text[:200]}")
    return str(answer.json()["event_id"])


def explain(
    http: httpx.Client, file: str, method: str = "ercr", length: int = 12, model: str = MODEL
) -> tuple[str, list[dict[str, Any]]]:
    """Text and words, with their maps, of a picture that was uploaded."""
    event = begin(http, "explain", [{"path": file}, PROMPT, model, method, length])
    text = http.get(f"{API}/call/explain/{event}").text
    kind, _, data = text.strip().rpartition("\n\n")[2].partition("\ndata: ")
    if kind != "event: complete":
        raise Trouble(text[-300:])
    said, words, _ = json.loads(data)
    return said, words
