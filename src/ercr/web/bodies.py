"""JSON bodies of API calls, checked before the web framework sees them; no network here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ercr.web.folder import Folder

_HASH = 128  # characters of a session's or an event's name
_FILE = (
    "Upload the picture to /gradio_api/upload first, and name it by the path that this returns: "
    "other paths and addresses are not opened."
)


class Refused(Exception):
    """A request that may not pass: a status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Endpoint:
    """A function of the page: how many values it takes, and the names of those that an API call gives."""

    inputs: int
    names: tuple[str, ...]
    required: frozenset[str]


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
        raise Refused(422, "The body must be a JSON object.")
    _check_files(body, folder)
    if route in ("queue/join", "cancel", "reset"):
        _check_names(body, route)
    if route == "queue/join":
        _check_join(body, endpoints)
    elif route.startswith("call/"):
        _check_call(body, route.removeprefix("call/"), endpoints)
    try:
        return json.dumps(body).encode()
    except RecursionError:
        raise Refused(400, "The body is nested too deeply.") from None


def _check_files(body: Any, folder: Folder) -> None:
    """Every file named anywhere in the body is one of ours; addresses beside it are dropped."""
    pending = [body]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                if not folder.holds(value.get("path")):
                    raise Refused(400, _FILE)
                value.pop("url", None)
                value["meta"] = {"_type": "gradio.FileData"}
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_names(body: dict[str, Any], route: str) -> None:
    wanted = {"queue/join": ("session_hash",), "cancel": ("session_hash", "event_id"), "reset": ("event_id",)}[route]
    for name in wanted:
        if not isinstance(body.get(name), str) or not 0 < len(body[name]) <= _HASH:
            raise Refused(422, f"The body needs a {name} of at most {_HASH} characters.")


def _check_join(body: dict[str, Any], endpoints: Endpoints) -> None:
    index = body.get("fn_index")
    if isinstance(index, bool) or not isinstance(index, int):
        raise Refused(422, "The body needs the number of a function, fn_index.")
    if index not in endpoints.by_index:
        raise Refused(404, f"There is no function {index}.")
    _check_data(body, endpoints.by_index[index])


def _check_call(body: dict[str, Any], name: str, endpoints: Endpoints) -> None:
    plain, known = name.removeprefix("v2/"), endpoints.by_name
    if plain not in known:
        raise Refused(
            404, f"There is no such endpoint; there are {', '.join(f'/{known_name}' for known_name in known)}."
        )
    endpoint = known[plain]
    if plain == name:
        _check_data(body, endpoint)
        return
    for missing in sorted(endpoint.required - set(body)):
        raise Refused(422, f"The body lacks {missing!r}; it can hold {', '.join(endpoint.names)}.")
    for extra in sorted(set(body) - set(endpoint.names)):
        raise Refused(422, f"There is no parameter {extra[:80]!r}; there are {', '.join(endpoint.names)}.")


def _check_data(body: dict[str, Any], endpoint: Endpoint) -> None:
    data = body.get("data")
    if not isinstance(data, list):
        raise Refused(422, "The body needs its values in a list named data.")
    if len(data) != endpoint.inputs:
        raise Refused(422, f"This function takes {endpoint.inputs} values, not {len(data)}.")
