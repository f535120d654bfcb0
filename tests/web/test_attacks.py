"""Short versions of the attacks on the server, all against one that runs."""

from __future__ import annotations

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("gradio")
from tests.attacks import origins, requests, silent  # noqa: E402 - they need what may be missing
from tests.attacks.asking import upload  # noqa: E402

pytestmark = pytest.mark.slow


def test_malformed_requests_end_in_a_sentence_and_never_in_a_500(server, scene_file):
    with httpx.Client(base_url=server.url, timeout=60) as http:
        ends, wrong = requests.attack(server.url, 120, 1, upload(http, scene_file))
    assert wrong == []
    assert ends["error event"] > 3
    assert "Traceback" not in server.log.read_text()


def test_pages_of_other_origins_get_nothing(server):
    ends, wrong = origins.attack(server.url, 60, 1)
    assert wrong == []
    assert ends["own, served"] == 28


def test_silent_connections_keep_nobody_out(server, tmp_path):
    served, wrong, crowd = silent.attack(server.url, tmp_path, silent=1100, clients=3, times=1)
    assert wrong == []
    assert len(served) == 3
    assert crowd.opened >= 1100
