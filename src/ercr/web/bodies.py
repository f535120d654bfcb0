"""JSON bodies of API calls, checked before the web framework sees them; no network here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ercr.web.asgi import Refused
from ercr.web.folder import Folder

_HASH = 128  # characters of a session's or an event's name
_NAMES = {
    "queue/join": ("session_hash",),
    "run/predict": ("session_hash",),
    "cancel": ("session_hash", "event_id"),
    "reset": ("event_id",),
}
_FILE = (
    "Upload the picture to /gradio_api/upload first, and name it by the path that this returns: "
    "other paths and addresses are not opened."
)


@dataclass(frozen=True)
class Endpoint:
    """A function of the page: how many values it takes, and the names of those that an API call gives."""

    inputs: int
    pictures: frozenset[int]  # which of them are pictures
    names: tuple[str, ...]
    required: frozenset[str]
    queued: bool = True  # others are answered at once


@dataclass(frozen=True)
class Endpoints:
    """All functions of the page, by number and by name."""

    by_index: dict[int, Endpoint]
    by_name: dict[str, Endpoint]


def checked_body(route: str, raw: bytes, endpoints: Endpoints, folder: Folder) -> bytes:
    """The body as it may go on: written anew, so that nobody reads it differently than it was checked."""
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
    """Every file named anywhere in the body is one of ours; what else is said about it is dropped."""
    pending = [body]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                if not folder.holds(value.get("path")):
                    raise _not_ours()
                path = value["path"]
                value.clear()
                value |= {"path": path, "meta": {"_type": "gradio.FileData"}}
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_names(body: dict[str, Any], wanted: tuple[str, ...]) -> None:
    for name in wanted:
        if not isinstance(body.get(name), str) or not 0 < len(body[name]) <= _HASH:
            raise Refused(400, f"The body needs a {name} of at most {_HASH} characters.")


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
        # a session of the caller's choosing would make one answer wait for another's listener
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
        raise Refused(400, "The body needs its values in a list named data.")
    if len(data) != endpoint.inputs:
        raise Refused(400, f"This function takes {endpoint.inputs} values, not {len(data)}.")
    _check_pictures(data, endpoint)


def _check_pictures(data: list[Any], endpoint: Endpoint) -> None:
    for index in endpoint.pictures:
        if not (data[index] is None or (isinstance(data[index], dict) and "path" in data[index])):
            raise _not_ours()


def _not_ours() -> Refused:
    return Refused(422, _FILE, "image")
