"""`ercr serve` on the command line: it says what it needs, and leaves nothing behind."""

from __future__ import annotations

import base64
import re
import socket
import sys

import pytest

from ercr.commands import cli
from ercr.commands.serve import _password
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
    assert run() == (2, "error: The page needs Gradio: run pip install '.[serve]' in ercr's source folder.")


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


def test_names_and_passwords_are_checked_before_anything_is_built(run, tmp_path):
    short, two = tmp_path / "short", tmp_path / "two"
    short.write_text("secret\n")
    two.write_text("one password\nand another\n")
    for file in (short, two, tmp_path / "none", tmp_path):
        code, said = run("--password-file", file)
        assert (code, said.startswith("error: --password-file:")) == (2, True)
    assert "not both" in run("--password-file", short, "--no-password")[1]
    assert "--allow-host takes a name" in run("--allow-host", "http://x")[1]


@pytest.mark.parametrize(
    ("host", "options", "asks"),
    [
        ("127.0.0.1", {}, False),
        ("localhost", {}, False),
        ("::1", {}, False),
        ("0.0.0.0", {}, True),
        ("::", {}, True),
        ("", {}, True),
        ("192.0.2.1", {}, True),
        ("0.0.0.0", {"none": True}, False),
        ("127.0.0.1", {"file": "a long password\n"}, True),
    ],
)
def test_who_can_be_reached_from_elsewhere_asks_for_a_password(tmp_path, host, options, asks):
    if "file" in options:
        (tmp_path / "password").write_text(options["file"])
        options = {"file": tmp_path / "password"}
    found = [_password(host, options.get("file"), options.get("none", False)) for _ in range(2)]
    assert all((password is not None) == asks for password in found)
    if asks and not options:
        assert len(found[0]) >= 20
        assert found[0] != found[1]
    if "file" in options:
        assert found == ["a long password"] * 2


@pytest.mark.slow
def test_a_server_for_other_machines_shows_its_password_once_and_asks_for_it(tmp_path):
    pytest.importorskip("gradio")
    client, httpx = pytest.importorskip("gradio_client"), pytest.importorskip("httpx")
    server = Server(tmp_path, "--host", "0.0.0.0", "--model", "scenes-qwen2vl")
    try:
        password = re.search(r"shown this once: (\S+) ", server.log.read_text())[1]
        assert httpx.get(server.url).status_code == 401
        assert httpx.get(server.url, auth=("me", password + "x")).status_code == 401
        assert httpx.get(server.url, auth=("me", password)).status_code == 200
        text = base64.b64encode(f"me:{password}".encode()).decode()
        called = client.Client(server.url, headers={"Authorization": f"Basic {text}"}, verbose=False)
        assert "/explain" in called.view_api(return_format="dict", print_info=False)["named_endpoints"]
    finally:
        server.stop()
    assert server.log.read_text().count(password) == 1


@pytest.mark.slow
def test_when_the_server_is_told_to_stop_its_folder_is_gone(tmp_path):
    pytest.importorskip("gradio")
    server = Server(tmp_path)
    while_running = list(tmp_path.glob("ercr-serve-*"))
    assert server.stop() == 0
    assert len(while_running) == 1
    assert not while_running[0].exists()
    assert "Traceback" not in server.log.read_text()
