"""The server: builds the page, puts the gate in front of it and runs until it is told to stop."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ercr.errors import ErcrError, InputError, missing
from ercr.explaining.explainer import Explainer
from ercr.web.door import Door
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.shelf import Shelf

_SEEDS = (5895, 3, 11, 848, 2946, 17)  # scenes shown as examples
_SESSIONS = 200  # visitors whose last values are remembered
_BACKLOG = 512  # connections that may wait to be taken
_M_ARENA_MAX = -8  # from glibc's malloc.h
_GOODBYE = 3  # seconds that open connections get when the server stops


def check_installed() -> None:
    """Refuse to start without the web framework."""
    try:
        import gradio  # noqa: F401
    except ImportError:
        raise missing("The page needs Gradio", "serve") from None


def run(
    host: str,
    port: int,
    limits: Limits,
    models: Sequence[str],
    load: Callable[[str], Explainer],
    ready: Callable[[str], None],
    door: Door | None = None,
) -> None:
    """Serve until interrupted; `ready` hears the address once connections are taken."""
    check_installed()
    # the server ends itself by the signal it got; as an exception that still lets the folder be removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _share_memory_pools()
    shelf = Shelf(models, load)
    listening = _listen(host, port)
    with listening, Folder(limits) as folder:
        import uvicorn

        from ercr.web.connections import Connections, protocol, room_for_connections

        # an address in a forwarded header is a visitor's claim; a proxy's operator can set this variable
        proxies = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
        trusted = frozenset(address.strip() for address in proxies.split(","))
        settings = uvicorn.Config(
            application(shelf, folder, limits, door),
            http=protocol(Connections(room_for_connections(), trusted=trusted)),
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GOODBYE,
            server_header=False,
            backlog=_BACKLOG,
            forwarded_allow_ips=proxies,
        )
        listening.listen(_BACKLOG)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        ready(f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}")
        uvicorn.Server(settings).run(sockets=[listening])


def reaches_beyond(host: str) -> bool:
    """Whether other machines can reach a server that listens there; a name that is not known is refused later."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return not all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def application(shelf: Shelf, folder: Folder, limits: Limits, door: Door | None = None) -> Any:
    """The ASGI application, with all files of all visitors in `folder`."""
    _configure(folder)
    import fastapi
    import gradio as gr

    from ercr.web.gate import Gate
    from ercr.web.page import build
    from ercr.web.presence import Presence
    from ercr.web.service import Service
    from ercr.web.style import CSS, theme

    def refuse(message: str) -> Exception:
        error: Exception = gr.Error(message, print_exception=False)
        return error

    presence = Presence()
    page = build(Service(folder, limits, shelf, draw_examples(folder.examples), refuse, presence, _visitor))
    page.state_session_capacity = _SESSIONS
    # without this the framework takes a mounted page for one that is being built, and opens any path it is sent
    page.has_launched = True
    folder.listed = page.temp_file_sets
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        css=CSS,
        footer_links=["api"],
        allowed_paths=[],
        blocked_paths=[
            place for place in (os.getcwd(), os.path.expanduser("~")) if not folder.path.is_relative_to(place)
        ],
        max_file_size=limits.upload_bytes,
        show_error=True,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
    )
    return Gate(app, _endpoints(page), folder, limits, door, presence)


def _visitor() -> tuple[str, str] | None:
    """Session and event that the framework is serving in this thread."""
    from gradio.context import LocalContext

    request, event = LocalContext.request.get(None), LocalContext.event_id.get(None)
    session = getattr(request, "session_hash", None)
    return (session, event) if isinstance(session, str) and isinstance(event, str) else None


def draw_examples(place: Path) -> list[Path]:
    """Scenes as picture files; none where the extra that draws them is not installed."""
    from ercr.datasets.scenes import scene

    paths = []
    for seed in _SEEDS:
        try:
            drawn = scene(seed).image
        except (ErcrError, ImportError):
            return []
        paths.append(place / f"scene-{seed}.png")
        drawn.save(paths[-1])
    return paths


def _configure(folder: Folder) -> None:
    """Settings that the framework reads from the environment: no telemetry, bounded records, one folder."""
    os.environ.update(
        GRADIO_TEMP_DIR=str(folder.path),
        GRADIO_ANALYTICS_ENABLED="False",
        GRADIO_RUN_HISTORY="False",
        GRADIO_ANALYTICS_MAX_EVENTS="100",
        GRADIO_ANALYTICS_CACHE_FREQUENCY="1000000",  # it would sum them up after every request
        HF_HUB_DISABLE_TELEMETRY="1",
    )


def _share_memory_pools() -> None:
    """Two pools of free memory for all threads: with glibc's one per thread a busy server would seem to leak."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)  # other systems have no such setting


def _listen(host: str, port: int) -> socket.socket:
    """A socket of our own, so that a port that is taken is known before anything is built."""
    try:
        family, *_, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot listen on {host}:{port} ({reason}): choose another --host or --port.") from None
    return listening


def _endpoints(page: Any) -> Any:
    """What the gate must know of the page's functions."""
    from ercr.web.bodies import Endpoint, Endpoints

    described = page.get_api_info()["named_endpoints"]
    by_index, by_name = {}, {}
    for index, function in page.fns.items():
        parameters = described.get(f"/{function.api_name}", {}).get("parameters", [])
        endpoint = Endpoint(
            inputs=len(function.inputs),
            pictures=frozenset(i for i, part in enumerate(function.inputs) if part.get_block_name() == "image"),
            names=tuple(p["parameter_name"] for p in parameters),
            required=frozenset(p["parameter_name"] for p in parameters if not p["parameter_has_default"]),
            queued=bool(function.queue),
        )
        by_index[index] = endpoint
        if parameters:
            by_name[function.api_name] = endpoint
    return Endpoints(by_index, by_name)
