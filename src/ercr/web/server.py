"""The server: builds the page, puts the request filter in front of it and runs until it is stopped."""

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
from ercr.web.access_rules import AccessRules
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.model_cache import ModelCache

_SEEDS = (5895, 3, 11, 848, 2946, 17)  # scenes shown as examples
_MAX_SESSIONS = 200  # visitors whose last values are kept
_BACKLOG = 512  # connections that may wait to be accepted
_M_ARENA_MAX = -8  # from glibc's malloc.h
_SHUTDOWN_TIMEOUT = 3  # seconds in which open connections may finish when the server stops


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
    access: AccessRules | None = None,
) -> None:
    """Serve until interrupted; `ready` is called with the address once connections are accepted."""
    check_installed()
    # uvicorn raises the signal again when it has stopped; an exception lets the folder be removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _share_memory_pools()
    model_cache = ModelCache(models, load)
    listening = _listen(host, port)
    with listening, Folder(limits) as folder:
        import uvicorn

        from ercr.web.connections import Connections, connection_limit, protocol

        # addresses in forwarded headers are trusted from these proxies only, because a visitor can invent them
        proxies = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
        trusted = frozenset(address.strip() for address in proxies.split(","))
        settings = uvicorn.Config(
            application(model_cache, folder, limits, access),
            http=protocol(Connections(connection_limit(), trusted=trusted)),
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
            server_header=False,
            backlog=_BACKLOG,
            forwarded_allow_ips=proxies,
        )
        listening.listen(_BACKLOG)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        ready(f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}")
        uvicorn.Server(settings).run(sockets=[listening])


def reachable_by_others(host: str) -> bool:
    """Whether other machines can reach a server that listens on this host; an unknown name is refused later."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return not all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def application(model_cache: ModelCache, folder: Folder, limits: Limits, access: AccessRules | None = None) -> Any:
    """The ASGI application, which stores all files of visitors in `folder`."""
    _configure(folder)
    import fastapi
    import gradio as gr

    from ercr.web.listeners import Listeners
    from ercr.web.page import build
    from ercr.web.request_filter import RequestFilter
    from ercr.web.service import Service
    from ercr.web.style import CSS, theme

    def make_error(message: str) -> Exception:
        error: Exception = gr.Error(message, print_exception=False)
        return error

    listeners = Listeners()
    page = build(
        Service(folder, limits, model_cache, draw_examples(folder.examples), make_error, listeners, _current_event)
    )
    page.state_session_capacity = _MAX_SESSIONS
    # without this the framework treats a mounted page as one under construction and opens any path it receives
    page.has_launched = True
    folder.path_sets = page.temp_file_sets
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
    return RequestFilter(app, _endpoints(page), folder, limits, access, listeners)


def _current_event() -> tuple[str, str] | None:
    """Session and event that the framework is handling in this thread."""
    from gradio.context import LocalContext

    request, event = LocalContext.request.get(None), LocalContext.event_id.get(None)
    session = getattr(request, "session_hash", None)
    return (session, event) if isinstance(session, str) and isinstance(event, str) else None


def draw_examples(folder: Path) -> list[Path]:
    """Scenes as picture files; an empty list if the extra that draws them is not installed."""
    from ercr.datasets.scenes import scene

    paths = []
    for seed in _SEEDS:
        try:
            drawn = scene(seed).image
        except (ErcrError, ImportError):
            return []
        paths.append(folder / f"scene-{seed}.png")
        drawn.save(paths[-1])
    return paths


def _configure(folder: Folder) -> None:
    """Settings that the framework reads from the environment: no telemetry, few stored events, one folder."""
    os.environ.update(
        GRADIO_TEMP_DIR=str(folder.path),
        GRADIO_ANALYTICS_ENABLED="False",
        GRADIO_RUN_HISTORY="False",
        GRADIO_ANALYTICS_MAX_EVENTS="100",
        GRADIO_ANALYTICS_CACHE_FREQUENCY="1000000",  # it would summarise them after every request
        HF_HUB_DISABLE_TELEMETRY="1",
    )


def _share_memory_pools() -> None:
    """Limit glibc to two memory pools: with one per thread the memory of a busy server grows as if it leaked."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)  # systems without glibc have no such setting


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket, made here so that a port in use is reported before anything is built."""
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
    """What the request filter must know of the page's functions."""
    from ercr.web.bodies import Endpoint, Endpoints

    described = page.get_api_info()["named_endpoints"]
    by_index, by_name = {}, {}
    for index, function in page.fns.items():
        parameters = described.get(f"/{function.api_name}", {}).get("parameters", [])
        endpoint = Endpoint(
            inputs=len(function.inputs),
            pictures=frozenset(
                i for i, part in enumerate(function.inputs) if part.get_block_name() in ("image", "file")
            ),
            names=tuple(p["parameter_name"] for p in parameters),
            required=frozenset(p["parameter_name"] for p in parameters if not p["parameter_has_default"]),
            queued=bool(function.queue),
        )
        by_index[index] = endpoint
        if parameters:
            by_name[function.api_name] = endpoint
    return Endpoints(by_index, by_name)
