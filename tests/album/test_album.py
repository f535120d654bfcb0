"""Many pictures into a folder: every kind of source, rows like single explanations, resumed after kills, in shards."""

from __future__ import annotations

import io
import json
import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ercr.album import Album, explain_files
from ercr.album.sources import is_source, open_source
from ercr.errors import FileFormatError, InputError, OutputError, WordNotFound
from ercr.evaluate.run import Run
from tests.evaluate.test_cluster import workers_of

OPTIONS = {"max_new_tokens": 5, "method": "cam", "prompt": "What is in the picture?"}


def encoded(number, kind="PNG"):
    rng = np.random.default_rng(number)
    height, width = ((60, 90), (90, 60), (40, 120))[number % 3]
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Seven pictures, one in a folder of its own, one broken; beside them files that are not pictures."""
    pictures = tmp_path / "pictures"
    (pictures / "more").mkdir(parents=True)
    for number in range(6):
        (pictures / f"{number}.png").write_bytes(encoded(number))
    (pictures / "more" / "6.jpg").write_bytes(encoded(6, "JPEG"))
    (pictures / "5.png").write_bytes(b"\x89PNG broken")
    (pictures / "._0.png").write_bytes(b"of a file manager")
    (pictures / "readme.txt").write_text("no picture")
    return pictures


def rows_of(album):
    return (album.path / "rows.parquet").read_bytes()


def test_rows_say_what_single_explanations_say(load, folder, tmp_path):
    explainer = load("qwen2_vl")
    album = explain_files(explainer, str(folder), tmp_path / "run", part_size=3, pages=True, **OPTIONS)
    rows = list(album)
    assert [row["picture"] for row in rows] == ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png", "more/6.jpg"]
    assert [row["status"] for row in rows] == ["ok"] * 5 + ["failed", "ok"]
    assert rows[5]["reason"].startswith("input: ")
    for row in rows[:5]:
        single = explainer.explain(folder / row["picture"], OPTIONS["prompt"], method="cam", max_new_tokens=5)
        assert row["answer"] == single.text
        assert [one["text"] for one in row["words"]] == [word.text for word in single.words]
        maps = album.maps(row)
        np.testing.assert_allclose(maps, single.maps[[t.row for t in single.tokens]], atol=0.5 / 255 + 1e-5)
        for one, word in zip(row["words"], single.words, strict=True):
            own = maps[one["first"] : one["last"] + 1].max(0)
            np.testing.assert_allclose(own, word.map, atol=0.5 / 255 + 1e-5)
            np.testing.assert_allclose([one["evidence"], one["share"]], [word.evidence, word.share], atol=1e-4)
    with pytest.raises(WordNotFound, match="no word"):
        album.maps(rows[0], "xylophone")
    assert album.summary()["failed"] == 1
    index = (album.path / "index.html").read_text()
    assert index.count("<li>") == 7
    assert "failed: input" in index
    assert sorted(path.suffix for path in (album.path / "pages").iterdir()) == [".html"] * 6 + [".jpg"] * 6


def test_a_run_that_is_stopped_again_and_again_has_the_same_rows(load, folder, tmp_path, monkeypatch):
    explainer = load("qwen2_vl")
    options = {"part_size": 2, **OPTIONS}
    whole = explain_files(explainer, str(folder), tmp_path / "whole", **options)
    write = Run.write_part

    def stop_after_one(self, *given):
        write(self, *given)
        raise KeyboardInterrupt

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Run, "write_part", stop_after_one)
            with pytest.raises(KeyboardInterrupt):
                explain_files(explainer, str(folder), tmp_path / "again", **options)
    again = explain_files(explainer, str(folder), tmp_path / "again", **options)
    assert rows_of(again) == rows_of(whole)
    with pytest.raises(InputError, match="max_new_tokens was 5, is now 6"):
        explain_files(explainer, str(folder), tmp_path / "again", **{**options, "max_new_tokens": 6})


def test_shards_are_the_whole_in_parts(load, folder, tmp_path):
    explainer = load("qwen2_vl")
    whole = [row["answer"] for row in explain_files(explainer, str(folder), tmp_path / "whole", **OPTIONS)]
    parts = []
    for number in (1, 2, 3):
        shard = explain_files(explainer, str(folder), tmp_path / str(number), shard=f"{number}/3", **OPTIONS)
        parts += [(row["index"], row["answer"]) for row in shard]
    assert parts == list(enumerate(whole))
    for wrong in ("0/3", "4/3", "half"):
        with pytest.raises(InputError, match="2/8"):
            explain_files(explainer, str(folder), tmp_path / "none", shard=wrong, **OPTIONS)


def test_lists_and_tables_bring_prompts_and_answers(load, folder, tmp_path):
    given = [
        {"image": "pictures/0.png", "prompt": "What?", "answer": "a dog", "id": "first"},
        {"image": "pictures/1.png", "prompt": None, "answer": " "},
        {"image": "pictures/none.png"},
    ]
    lines = tmp_path / "list.jsonl"
    lines.write_text(
        "\n".join([*map(json.dumps, given), "not json", '{"image": 5}', '{"image": ["a", "b"]}', '{"image": "a.mp4"}'])
    )
    rows = list(explain_files(load("qwen2_vl"), str(lines), tmp_path / "lines", **OPTIONS))
    assert [row["status"] for row in rows] == ["ok", "ok", *["failed"] * 5]
    assert [row["given"] for row in rows[:2]] == [True, False]
    assert (rows[0]["picture"], rows[0]["prompt"], rows[0]["answer"]) == ("first", "What?", "a dog")
    assert rows[1]["prompt"] == OPTIONS["prompt"]
    assert "Line 4" in rows[3]["reason"]
    table = tmp_path / "table.parquet"
    columns = {"image": [{"bytes": encoded(0), "path": None}], "question": ["What?"], "response": ["a dog"]}
    pq.write_table(pa.table(columns), table)
    (row,) = explain_files(load("qwen2_vl"), str(table), tmp_path / "table", **OPTIONS)
    assert {**row, "picture": "first", "maps": 0} == {**rows[0], "maps": 0}


def test_several_pictures_and_clips_are_one_row(load, folder, tmp_path):
    pytest.importorskip("av", reason="videos are read with PyAV")
    from ercr.render.animation import animation

    explainer = load("qwen2_vl")
    still = Image.open(folder / "0.png").resize((64, 48))
    (folder / "clip.mp4").write_bytes(animation([(still, 1.0), (still.rotate(180), 1.0)], ".mp4"))
    given = [
        {"image": ["pictures/0.png", "pictures/1.png"], "prompt": "What changed?"},
        {"video": "pictures/clip.mp4"},
        {"image": "pictures/2.png", "video": "pictures/clip.mp4", "id": "both"},
        {"image": ["pictures/0.png", 5]},
        {"image": []},
    ]
    lines = tmp_path / "list.jsonl"
    lines.write_text("\n".join(map(json.dumps, given)))
    album = explain_files(explainer, str(lines), tmp_path / "run", pages=True, **OPTIONS)
    rows = list(album)
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["failed"] * 2
    assert [row["picture"] for row in rows[:3]] == ["pictures/0.png, pictures/1.png", "pictures/clip.mp4", "both"]
    single = explainer.explain(
        [folder / "2.png", folder / "clip.mp4"], OPTIONS["prompt"], method="cam", max_new_tokens=5
    )
    assert rows[2]["answer"] == single.text
    for own, word in zip(rows[2]["words"], single.words, strict=True):
        assert own["piece"] == (None if word.spot is None else word.spot.picture)
        for picture in range(2):
            found = Album.maps(rows[2], own["text"], picture=picture)
            assert found.shape == word.maps[picture].shape
        first = single.word(own["text"].strip(" .,!?")) if own["text"].strip(" .,!?") else None
        if first is not None:
            np.testing.assert_allclose(Album.maps(rows[2], own["text"], picture=1), first.maps[1], atol=0.51 / 255)
    with pytest.raises(InputError, match="2 pictures"):
        Album.maps(rows[2], rows[2]["words"][0]["text"])
    assert rows[0]["pieces"] is not None
    for number in range(3):
        assert "data-ready" in (tmp_path / "run" / "pages" / f"{number:07d}.html").read_text()
        assert Image.open(tmp_path / "run" / "pages" / f"{number:07d}.jpg").width <= 320
    assert [entry.name[-8:] for entry in open_source(str(folder / "*.mp4"))] == ["clip.mp4"]
    assert not any(entry.name.endswith(".mp4") for entry in open_source(str(folder)))


def test_sources_are_what_people_have(folder, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("# mine\npictures/1.png\n\npictures/0.png\nhttp://example.org/a.jpg\n")
    assert [entry.name for entry in open_source(str(names))] == [
        "pictures/1.png",
        "pictures/0.png",
        "http://example.org/a.jpg",
    ]
    assert len(open_source(str(folder / "*.png"))) == 6
    assert len(open_source(str(folder / "**" / "*.jpg"))) == 1
    assert [is_source(str(one)) for one in (folder, names, folder / "*.png", folder / "0.png")] == [True] * 3 + [False]
    assert not is_source("https://example.org/a.jpg?x=[1]")
    before = open_source(str(folder)).fingerprint
    (folder / "7.png").write_bytes(encoded(7))
    assert open_source(str(folder)).fingerprint != before
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_dict({"image": [{"bytes": encoded(1), "path": None}], "question": ["What?"]})
    saved.cast_column("image", datasets.Image()).save_to_disk(tmp_path / "saved")
    (entry,) = open_source(str(tmp_path / "saved"))
    assert (entry.prompt, entry.picture) == ("What?", encoded(1))


def test_what_cannot_be_done_is_said_in_one_sentence(load, folder, tmp_path):
    explainer = load("qwen2_vl")
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.txt").write_text("# nothing yet")
    (tmp_path / "no.jsonl").write_text('{"words": 1}\n')
    cases = [
        (InputError, "no pictures", str(tmp_path / "empty"), {}),
        (InputError, "There is no file or folder", str(tmp_path / "none"), {}),
        (InputError, "No picture matches", str(tmp_path / "*.png"), {}),
        (InputError, "no pictures", str(tmp_path / "none.txt"), {}),
        (InputError, "name it 'image'", str(tmp_path / "no.jsonl"), {}),
        (InputError, "no option 'colour'", str(folder), {"colour": 1}),
        (InputError, "Ray", str(folder), {"workers": 2}),
    ]
    for kind, words, source, more in cases:
        with pytest.raises(kind, match=words):
            explain_files(explainer, source, tmp_path / "run", **OPTIONS, **more)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(OutputError, match="other files"):
        explain_files(explainer, str(folder), tmp_path / "full", **OPTIONS)
    with pytest.raises(FileFormatError, match="not a folder that"):
        Album(tmp_path / "full")


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_writes_the_same_rows(checkpoint, folder, tmp_path):
    pytest.importorskip("ray")
    options = {"part_size": 1, **OPTIONS}
    model = str(checkpoint("qwen2_vl"))
    alone, killed = explain_files(model, str(folder), tmp_path / "alone", **options), []

    def kill(part):
        if not killed:
            killed.extend(workers_of(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

    spread = explain_files(model, str(folder), tmp_path / "spread", engine="ray", workers=2, progress=kill, **options)
    assert len(killed) == 1
    assert rows_of(spread) == rows_of(alone)
