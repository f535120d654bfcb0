"""`ercr serve` on the command line: it says what it needs, and leaves nothing behind."""

from __future__ import annotations

import socket
import sys

import pytest

from ercr.commands import cli
from tests.web.conftest import Server


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ercr", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, " ".join(capsys.readouterr().err.split())

    return call


def test_without_the_extra_one_sentence_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert run() == (2, "error: The page needs Gradio: pip install 'ercr[serve]'.")


def test_wrong_options_are_refused_before_anything_is_built(run):
    pytest.importorskip("gradio")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = run("--port", taken.getsockname()[1])
    assert (code, "choose another --host or --port" in said) == (2, True)
    assert run("--max-upload", 0) == (2, "error: --max-upload must be more than 0, not 0.")
    assert "There is no device 'gpu'" in run("--device", "gpu")[1]
    assert "neither a packaged model" in run("--model", "scenes-qwen")[1]
    assert "Cannot listen on" in run("--host", "no.such.host.invalid")[1]
    assert run("--port", 99999)[0] == 2


@pytest.mark.slow
def test_when_the_server_is_told_to_stop_its_folder_is_gone(tmp_path):
    pytest.importorskip("gradio")
    server = Server(tmp_path)
    while_running = list(tmp_path.glob("ercr-serve-*"))
    assert server.stop() == 0
    assert len(while_running) == 1
    assert not while_running[0].exists()
    assert "Traceback" not in server.log.read_text()
