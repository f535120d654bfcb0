"""Files are written completely or not at all, through links, and never over pipes or devices."""

from __future__ import annotations

import os
import socket

import pytest

from ercr.errors import OutputError
from ercr.files.folders import make_results_folder
from ercr.files.writing import replacing, unfinished_name, write_atomic, write_new


def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path):
    target, link, further = tmp_path / "far" / "result", tmp_path / "link", tmp_path / "further"
    target.parent.mkdir()
    link.symlink_to(target)
    further.symlink_to("link")
    write_atomic(further, b"made")  # nothing was there yet
    target_before = target.stat().st_ino
    write_atomic(further, b"again")
    assert further.is_symlink()
    assert link.is_symlink()
    assert target.read_bytes() == b"again"
    assert target.stat().st_ino != target_before  # replaced, not overwritten in place
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "further", "link", "result"]


@pytest.mark.parametrize("way", ["itself", "a link"])
def test_pipes_devices_and_sockets_are_refused_and_stay(tmp_path, way):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for place in (tmp_path / "pipe", tmp_path / "socket", tmp_path / "null"):
            if place.name == "null":
                place.symlink_to("/dev/null")
            if way == "a link":
                (tmp_path / f"to-{place.name}").symlink_to(place)
                place = tmp_path / f"to-{place.name}"
            before = os.lstat(place)
            for write in (write_atomic, write_new):
                with pytest.raises(OutputError, match="not a regular file"):
                    write(place, b"x")
            assert os.lstat(place).st_ino == before.st_ino
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop", tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="cannot be written"):
            write_atomic(path, b"x")


def test_an_error_while_writing_leaves_what_was_there(tmp_path):
    path = tmp_path / ("long" * 60)  # a name that leaves little room for another beside it
    write_atomic(path, b"before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", "no bytes"])
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [path.name]
    assert not write_new(path, b"after")
    assert path.read_bytes() == b"before"


def test_unfinished_files_are_known_by_their_exact_names(tmp_path):
    with replacing(tmp_path / "rows.parquet"):
        (name,) = os.listdir(tmp_path)
        assert unfinished_name(name) == "rows.parquet"
    for other in (".env.local", ".rows.parquet.bak", ".rows.parquet.0123456789abcdef", "rows.parquet", ".a.ercr"):
        assert unfinished_name(other) is None


def test_results_go_to_a_folder_that_is_empty_or_holds_the_same_results(tmp_path):
    names, folder = ("report.json", "report.md"), tmp_path / "out"
    make_results_folder(folder, names, "report.json")
    (folder / "report.md").write_text("my own report")
    with pytest.raises(OutputError, match=r"holds other files \(report.md\)"):
        make_results_folder(folder, names, "report.json")
    (folder / "report.json").write_text('{\n "mine": 1}')
    with pytest.raises(OutputError, match=r"holds other files \(report.json\)"):
        make_results_folder(folder, names, "report.json")
    (folder / "report.json").write_text('{\n "ercr": "0.1.0"}')
    (folder / ".DS_Store").write_text("")
    make_results_folder(folder, names, "report.json")
    (folder / ".env").write_text("")
    with pytest.raises(OutputError, match=r"holds other files \(.env\)"):
        make_results_folder(folder, names, "report.json")
