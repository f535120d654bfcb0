"""JSON bodies of API calls, checked before the web framework sees them; no network here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ercr.web.asgi import Refused
from ercr.web.folder import Folder

_MAX_NAME = 128  # characters of a session_hash or an event_id
_NAMES = {
    "queue/join": ("session_hash",),
    "run/predict": ("session_hash",),
    "cancel": ("session_hash", "event_id"),
    "reset": ("event_id",),
}
_UPLOAD_FIRST = (
    "Upload the picture to /gradio_api/upload first, and name it by the path that this returns: "
    "other paths and addresses are not opened."
)


@dataclass(frozen=True)
class Endpoint:
    """A function of the page: how many values it takes, and the names of its parameters in the API."""

    inputs: int
    pictures: frozenset[int]  # indices of the values that are pictures, or lists of them
    names: tuple[str, ...]
    required: frozenset[str]
    queued: bool = True  # False: it runs at once


@dataclass(frozen=True)
class Endpoints:
    """All functions of the page, by number and by name."""

    by_index: dict[int, Endpoint]
    by_name: dict[str, Endpoint]


def checked_body(route: str, raw: bytes, endpoints: Endpoints, folder: Folder) -> bytes:
    """The checked body, encoded again, so that the framework parses exactly what was checked."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(400, "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.")
    _check_files(body, folder)
    if route in _NAMES:
        _check_names(body, _NAMES[route])
    if route in ("queue/join", "run/predict"):
        _check_function(body, endpoints, queued=route == "queue/join")
    elif route.startswith("call/"):
        _check_call(body, route.removeprefix("call/"), endpoints)
    try:
        return json.dumps(body).encode()
    except RecursionError:
        raise Refused(400, "The body is nested too deeply.") from None


def _check_files(body: Any, folder: Folder) -> None:
    """Refuse files that are not in our folder, wherever the body names them; drop all other facts about a file."""
    pending = [body]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                if not folder.contains(value.get("path")):
                    raise _foreign_file()
                path = value["path"]
                value.clear()
                value |= {"path": path, "meta": {"_type": "gradio.FileData"}}
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_names(body: dict[str, Any], wanted: tuple[str, ...]) -> None:
    for name in wanted:
        if not isinstance(body.get(name), str) or not 0 < len(body[name]) <= _MAX_NAME:
            raise Refused(400, f"The body needs a {name} of at most {_MAX_NAME} characters.")


def _check_function(body: dict[str, Any], endpoints: Endpoints, queued: bool) -> None:
    index = body.get("fn_index")
    if isinstance(index, bool) or not isinstance(index, int):
        raise Refused(400, "The body needs the number of a function, fn_index.")
    if index not in endpoints.by_index or endpoints.by_index[index].queued != queued:
        raise Refused(404, f"There is no function {index} here.")
    _check_data(body, endpoints.by_index[index])


def _check_call(body: dict[str, Any], name: str, endpoints: Endpoints) -> None:
    plain, known = name.removeprefix("v2/"), endpoints.by_name
    if plain not in known:
        raise Refused(
            404, f"There is no such endpoint; there are {', '.join(f'/{known_name}' for known_name in known)}."
        )
    endpoint = known[plain]
    if plain == name:
        # with a session that the caller chose, a response could wait for another client's listener
        body.pop("session_hash", None)
        _check_data(body, endpoint)
        return
    _check_pictures([body.get(name) for name in endpoint.names], endpoint)
    for missing in sorted(endpoint.required - set(body)):
        raise Refused(400, f"The body lacks {missing!r}; it can hold {', '.join(endpoint.names)}.")
    for extra in sorted(set(body) - set(endpoint.names)):
        raise Refused(400, f"There is no parameter {extra[:80]!r}; there are {', '.join(endpoint.names)}.")


def _check_data(body: dict[str, Any], endpoint: Endpoint) -> None:
    data = body.get("data")
    if not isinstance(data, list):
        raise Refused(400, "The body needs a list of values named data.")
    if len(data) != endpoint.inputs:
        raise Refused(400, f"This function takes {endpoint.inputs} values, not {len(data)}.")
    _check_pictures(data, endpoint)


def _check_pictures(data: list[Any], endpoint: Endpoint) -> None:
    for index in endpoint.pictures:
        given = data[index] if isinstance(data[index], list) else [data[index]]
        if not all(picture is None or (isinstance(picture, dict) and "path" in picture) for picture in given):
            raise _foreign_file()


def _foreign_file() -> Refused:
    return Refused(422, _UPLOAD_FIRST, "image")
