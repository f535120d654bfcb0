"""The folder of uploads and results stays bounded, and only what is in it is ever opened."""

from __future__ import annotations

import os
import time

import pytest

from ercr.web.folder import Folder, NoSpace
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


def test_old_files_are_removed_with_their_folders_and_from_the_path_sets(folder):
    old = put(folder.path / "aa" / "old.png", age_minutes=11)
    fresh = put(folder.path / "bb" / "fresh.png", age_minutes=9)
    example = put(folder.examples / "scene.png", age_minutes=99)
    kept = {str(old), str(fresh)}
    folder.path_sets = [kept]
    folder.sweep()
    assert not old.exists()
    assert fresh.exists()
    assert example.exists()
    assert kept == {str(fresh)}
    assert not old.parent.exists()
    empty = folder.new_result()
    folder.sweep()
    assert empty.exists()
    os.utime(empty, (0, 0))
    folder.sweep()
    assert not empty.exists()


def test_above_the_size_limit_the_oldest_files_are_removed(folder):
    files = [put(folder.path / f"{i}" / "x", age_minutes=5 - i, size=400_000) for i in range(4)]
    folder.sweep()
    assert [file.exists() for file in files] == [False, False, True, True]


def test_sizes_are_counted_in_disk_blocks(folder):
    for i in range(200):  # 2 kB in all, and 800 kB of blocks beside as many of their folders
        put(folder.path / f"{i}" / "x", age_minutes=2)
    folder.sweep()
    left = [path for path in folder.path.rglob("x") if path.is_file()]
    assert 100 < len(left) < 130


def test_space_is_reserved_before_it_is_used(folder):
    with folder.reserve(600_000) as reservation:
        with pytest.raises(NoSpace, match="try again in a minute"):
            folder.reserve(600_000)
        put(folder.path / "aa" / "x", size=500_000)
        reservation.kept = 500_000
    with pytest.raises(NoSpace):  # the file is too young to be removed
        folder.reserve(600_000)


def test_files_older_than_a_minute_are_removed_to_make_room(folder):
    old = put(folder.path / "aa" / "x", age_minutes=2, size=900_000)
    folder.sweep()
    with folder.reserve(600_000):
        assert not old.exists()
    with folder.reserve(900_000):  # nothing was kept
        pass


def test_only_files_inside_the_folder_are_accepted(folder, tmp_path):
    inside = put(folder.path / "aa" / "x.png")
    secret = put(tmp_path / "secret")
    link = folder.path / "aa" / "link.png"
    link.symlink_to(secret)
    assert folder.contains(str(inside))
    hostile = [
        "\ud800",
        f"{folder.path}/\udfff.png",
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
    assert not any(folder.contains(path) for path in hostile)


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
