"""Uploads are stored completely or not at all, within the space limit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("python_multipart")
from ercr.web.asgi import Refused
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.multipart import receive_upload


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Folder(Limits(stored_mb=3))


def form(*files, end=b"--x--\r\n", name=b"files"):
    part = b'--x\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\nContent-Type: image/png\r\n\r\n%s\r\n'
    return b"".join(part % (name, label, data) for label, data in files) + end


def send(folder, body, declared=None, parts=None, broken=False):
    """The paths, or the status of the refusal and whether anything lies in the folder."""
    labels = {"content-length": str(declared or len(body)), "content-type": 'multipart/form-data; boundary="x"'}
    scope = {"headers": [(name.encode(), value.encode()) for name, value in labels.items()]}
    step = parts or len(body) or 1
    pieces = [body[i : i + step] for i in range(0, len(body), step)] or [b""]
    seen = []

    async def receive():
        if not pieces:
            seen.extend(left(folder))
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces) or broken}

    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(asyncio.run, receive_upload(scope, receive, folder, Limits(upload_mb=1))).result()
            return [Path(path) for path in answer]
        except Refused as refusal:
            return refusal.status, bool(seen)


def left(folder):
    return [path for path in folder.path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_files_are_complete_however_the_body_is_split(folder, step):
    data = bytes(range(256)) * 9 + b"\r\n--x not an end\r\n"
    paths = send(folder, form((b"a.PNG", data), (b"../../b.html", b"")), parts=step)
    assert [path.read_bytes() for path in paths] == [data, b""]
    assert [path.name for path in paths] == ["picture.png", "picture.html"]  # a visitor's name is not used
    assert all(folder.contains(str(path)) for path in paths)
    assert len({path.parent for path in paths}) == 2


def test_no_file_stays_of_a_refused_or_incomplete_form(folder):
    whole = form((b"a.png", b"y" * 50_000))
    assert send(folder, whole[:30_000], declared=len(whole), parts=1000, broken=True) == (400, True)
    for body, status in (
        (form((b"a.png", b"y"), end=b""), 400),
        (form((b"a.png", b"y"), name=b"upload_id"), 400),
        (form(*[(b"a.png", b"y")] * 9), 413),
        (form((b"a.png", bytes(1_048_577))), 413),
        (form((b"a.png", bytes(2_000_000))), 413),
        (b"junk", 400),
        (b"", 400),
    ):
        assert send(folder, body)[0] == status
        assert left(folder) == []
    assert send(folder, whole, declared=len(whole) - 1)[0] == 413
    assert sorted(path.name for path in folder.path.iterdir()) == ["examples", "results"]
    assert folder._reserved == 0


def test_more_than_the_limit_is_refused_before_it_is_read(folder):
    held = [send(folder, form((b"a.png", bytes(900_000)))) for _ in range(5)]
    assert [isinstance(each, list) for each in held] == [True, True, True, False, False]
    assert held[-1] == (507, False)  # before a byte was read
    assert sum(path.stat().st_blocks * 512 for path in left(folder)) < 3_000_000
    tiny = [send(folder, form(*[(b"", b"")] * 8)) for _ in range(40)]
    assert tiny[-1] == (507, False)  # empty files take blocks, too


def test_a_large_content_length_alone_reserves_no_space(folder):
    body = form((b"a.png", b"y" * 100))
    waiting = []

    async def hold():
        async def silent():
            await asyncio.Event().wait()

        labels = {"content-length": "1000000", "content-type": "multipart/form-data; boundary=x"}
        scope = {"headers": [(name.encode(), value.encode()) for name, value in labels.items()]}
        uploads = [receive_upload(scope, silent, folder, Limits(upload_mb=1)) for _ in range(20)]
        waiting.extend(map(asyncio.ensure_future, uploads))
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert isinstance(await asyncio.to_thread(send, folder, body), list)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert folder._reserved == 0

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, hold()).result()
