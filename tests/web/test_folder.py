"""The folder of uploads and results stays bounded, and only what is in it is ever opened."""

from __future__ import annotations

import os
import time

import pytest

from ercr.web.folder import Folder
from ercr.web.limits import Limits


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Folder(Limits(keep_minutes=10, stored_mb=1))


def put(path, age_minutes=0.0, size=10):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    then = time.time() - 60 * age_minutes
    os.utime(path, (then, then))
    os.utime(path.parent, (then, then))
    return path


def test_old_files_go_with_their_folders_and_leave_the_lists(folder):
    old = put(folder.path / "aa" / "old.png", age_minutes=11)
    fresh = put(folder.path / "bb" / "fresh.png", age_minutes=9)
    example = put(folder.examples / "scene.png", age_minutes=99)
    kept = {str(old), str(fresh)}
    folder.listed = [kept]
    folder.sweep()
    assert not old.exists()
    assert fresh.exists()
    assert example.exists()
    assert kept == {str(fresh)}
    os.utime(old.parent, (0, 0))
    folder.sweep()
    assert not old.parent.exists()


def test_beyond_the_size_allowed_the_oldest_go(folder):
    files = [put(folder.path / f"{i}" / "x", age_minutes=5 - i, size=400_000) for i in range(4)]
    folder.sweep()
    assert [file.exists() for file in files] == [False, False, True, True]


def test_only_files_inside_are_held(folder, tmp_path):
    inside = put(folder.path / "aa" / "x.png")
    secret = put(tmp_path / "secret")
    link = folder.path / "aa" / "link.png"
    link.symlink_to(secret)
    assert folder.holds(str(inside))
    hostile = [
        str(secret),
        str(link),
        f"{folder.path}/../secret",
        str(folder.path),
        "/etc/passwd",
        "",
        "\0",
        None,
        5,
        [],
    ]
    assert not any(folder.holds(path) for path in hostile)


def test_results_are_found_by_key_and_plain_name_only(folder):
    place = folder.new_result()
    put(place / "report.html")
    assert folder.result(place.name, "report.html") == place / "report.html"
    for key, name in [
        ("..", "report.html"),
        (place.name, "../x"),
        (place.name, ".hidden"),
        ("", ""),
        ("x", "report.html"),
    ]:
        assert folder.result(key, name) is None


def test_nothing_is_left_when_the_server_ends(folder):
    with folder:
        folder.new_result()
    assert not folder.path.exists()
