"""What the request filter relies on inside the web framework; fails first when a new version changes it."""

from __future__ import annotations

import re
import threading
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ercr.errors import Cancelled
from ercr.trace import cancel
from ercr.web import request_filter as filter_module
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.model_cache import ModelCache
from ercr.web.server import _current_event, application

gradio = pytest.importorskip("gradio", reason="the page is built with gradio")
httpx = pytest.importorskip("httpx")
ROOT = Path(__file__).parents[2]
API = "/gradio_api"


class Endless:
    """Stands for an explainer: explains until somebody stops it."""

    def __init__(self):
        self.visitors, self.began, self.ended = [], threading.Semaphore(0), threading.Semaphore(0)

    def explain_all(self, *_, **__):
        self.visitors.append(_current_event())
        self.began.release()
        try:
            while True:
                cancel.check()
                threading.Event().wait(0.01)
        except Cancelled:
            self.ended.release()
            raise


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The whole application in this process, over a model that never ends: its address, and that model."""
    import uvicorn

    endless = Endless()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("framework")))
        patch.setattr("ercr.web.server.draw_examples", lambda place: [])
        for name in (
            "TEMP_DIR",
            "ANALYTICS_ENABLED",
            "RUN_HISTORY",
            "ANALYTICS_MAX_EVENTS",
            "ANALYTICS_CACHE_FREQUENCY",
        ):
            patch.setenv(f"GRADIO_{name}", "")  # so that they are as before when this ends
        patch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        folder = Folder(Limits())
        made = application(ModelCache(["scenes-qwen2vl"], lambda name: endless), folder, Limits())
        server = uvicorn.Server(uvicorn.Config(made, port=0, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            threading.Event().wait(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", endless, made
        server.should_exit = True
        thread.join()


def test_the_installed_version_is_within_the_declared_bounds():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    bounds = next(r.specifier for r in map(Requirement, wanted) if r.name == "gradio")
    assert bounds.contains(gradio.__version__)
    assert any(bound.operator == "<" for bound in bounds)
    assert not bounds.contains("7.0")


def paths(router):
    """The addresses of a router and of those that it includes."""
    for route in router.routes:
        if hasattr(route, "path"):
            yield route.path
        else:
            yield from paths(route.original_router)


def test_passed_routes_exist_and_new_ones_are_noticed(served):
    """A route that is new in the framework is refused until somebody has read what it does."""
    mounted = next(
        route.app for route in served[2]._app.routes if hasattr(route, "app") and hasattr(route.app, "routes")
    )
    found = {re.sub(r"\{.*", "", path).rstrip("/") for path in paths(mounted)}
    ours = filter_module._GET_ROUTES | filter_module._JSON_ROUTES - {"run/predict"}
    assert {f"{API}/{route}" for route in ours} <= found
    assert {f"{API}/call", f"{API}/heartbeat", f"{API}/run", f"{API}/file="} <= found
    known = (ROOT / "tests/web/framework_routes.txt").read_text().split()
    assert sorted(found - {""}) == known


def test_the_page_has_what_the_server_sets_and_reads(served):
    page = gradio.Blocks()
    for name in ("has_launched", "temp_file_sets", "fns", "get_api_info", "state_session_capacity"):
        assert hasattr(page, name), name
    endpoints = served[2]._endpoints
    assert set(endpoints.by_name) == {"explain", "explain_several", "explain_sentence", "compare"}
    assert endpoints.by_name["explain"].pictures == {0}
    assert endpoints.by_name["explain"].queued
    assert any(not endpoint.queued for endpoint in endpoints.by_index.values())


def upload(http, scene_file):
    return http.post(f"{API}/upload", files={"files": ("x.png", scene_file.read_bytes())}).json()[0]


def joined(http, served, route, file, method):
    """A request under way, of the page or of the API: the address to listen at, its session and its event."""
    values = [{"path": file}, "Hi", "scenes-qwen2vl", method, 8]
    if route == "api":
        event = http.post(f"{API}/call/explain", json={"data": values, "session_hash": "mine"}).json()["event_id"]
        return f"{API}/call/explain/{event}", event, event
    by_index = served[2]._endpoints.by_index
    index = next(index for index, known in by_index.items() if known.inputs == 8)
    data = [{"path": file}, "Hi", "", "scenes-qwen2vl", method, "", 8, None]
    body = {"fn_index": index, "session_hash": "page", "data": data}
    return f"{API}/queue/data?session_hash=page", "page", http.post(f"{API}/queue/join", json=body).json()["event_id"]


@pytest.mark.parametrize("route", ["api", "page"])
def test_a_client_that_disconnects_ends_its_work(served, scene_file, route):
    url, endless, made = served
    with httpx.Client(base_url=url, timeout=20) as http:
        address, session, event = joined(http, served, route, upload(http, scene_file), "attention")
        with http.stream("GET", address) as answer:
            assert answer.status_code == 200
            assert endless.began.acquire(timeout=20)
            assert endless.visitors[-1] == (session, event)
            assert not endless.ended.acquire(timeout=0.3)  # somebody listens
        assert endless.ended.acquire(timeout=20)
    assert not made._listeners._sessions.get(session, None) or made._listeners._sessions[session].listeners == 0


def test_cancelling_ends_the_work_while_the_client_stays(served, scene_file):
    url, endless, _ = served
    with httpx.Client(base_url=url, timeout=20) as http:
        address, session, event = joined(http, served, "page", upload(http, scene_file), "attention")
        with http.stream("GET", address):
            assert endless.began.acquire(timeout=20)
            body = {"session_hash": session, "event_id": event, "fn_index": 0}
            assert httpx.post(f"{url}{API}/cancel", json=body, timeout=20).status_code == 200
            assert endless.ended.acquire(timeout=20)
