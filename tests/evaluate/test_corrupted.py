"""A thousand corrupted inputs: pictures, masks and annotations with bytes changed, lost and added.

Each is either scored or reported by a row; a damaged annotation file is refused as a whole, in one sentence.
"""

from __future__ import annotations

import contextlib
import io
import json
import random

import numpy as np
import pytest
from PIL import Image

from ercr.datasets.registry import open_dataset
from ercr.errors import InputError
from ercr.evaluate import evaluate

PICTURES, ENTRIES, FILES = 500, 300, 200
JUNK = (None, True, -1, 10**400, 1.5, float("inf"), "", "x\0y", "\ud800", "../x", "a" * 300, [], [[]], {}, {"a": "b"})


def encode(array, kind):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format=kind)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def sound():
    """A picture and its mask, as files."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 255, (24, 32, 3), np.uint8)
    labels = np.zeros((24, 32), np.uint8)
    labels[4:12, 6:20] = 3
    return encode(picture, "JPEG"), encode(labels, "PNG")


def corrupt(data, rng):
    """The bytes with one kind of damage."""
    data = bytearray(data)
    kind = rng.randrange(6)
    at = rng.randrange(len(data))
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        del data[at : at + rng.randrange(1, 40)]
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.randrange(1, 40))
    else:
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(min(len(data), 60 if kind == 3 else len(data)))] = rng.randrange(256)
    return bytes(data)


def corrupt_text(data, rng):
    """JSON with a character changed, which may leave it JSON; or with any other damage."""
    if rng.random() < 0.3:
        return corrupt(data, rng)
    data = bytearray(data)
    data[rng.randrange(len(data))] = rng.choice(b"0123456789abcdef")
    return bytes(data)


def corrupt_entry(entry, rng):
    """A list entry with one of its values, or its shape, changed."""
    entry = json.loads(json.dumps(entry))
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(JUNK)
    if kind == 1:
        del entry[rng.randrange(4)]
    elif kind == 2:
        entry[rng.randrange(4)] = rng.choice(JUNK)
    elif kind == 3:
        entry[1] = corrupt(entry[1].encode(), rng).decode("latin-1")
    else:
        entry[3] = {rng.choice(("dog", "\ud800", "")): rng.choice(JUNK)}
    return entry


def test_corrupted_pictures_and_masks_are_scored_or_reported(explainer, sound, tmp_path):
    rng = random.Random(1)
    entries = []
    for number in range(PICTURES):
        names = f"{number}.jpg", f"{number}.png"
        damaged = number % 2
        for which, name in enumerate(names):
            data = corrupt(sound[which], rng) if which == damaged else sound[which]
            (tmp_path / name).write_bytes(data)
        entries.append([names[0], "A dog on a sofa.", names[1], {"dog": 3}])
    (tmp_path / "anno.json").write_text(json.dumps(entries))
    check(explainer, tmp_path, PICTURES, least=30)


def test_corrupted_entries_are_scored_or_reported(explainer, sound, tmp_path):
    rng = random.Random(2)
    for name, data in zip(("a.jpg", "a.png"), sound, strict=True):
        (tmp_path / name).write_bytes(data)
    entry = ["a.jpg", "A dog on a sofa.", "a.png", {"dog": 3}]
    (tmp_path / "anno.json").write_text(json.dumps([corrupt_entry(entry, rng) for _ in range(ENTRIES)]))
    check(explainer, tmp_path, ENTRIES, least=20)


def check(explainer, folder, count, least):
    run = evaluate(explainer, f"grandf:{folder}", "cam", folder / "run", answers="references", part_size=100)
    rows = run.table().to_pylist()
    status = {row["index"]: row["status"] for row in rows}
    assert sorted(status) == list(range(count))
    assert all(row["reason"] for row in rows if row["status"] == "failed")
    assert all("Traceback" not in (row["reason"] or "") for row in rows)
    counts = [list(status.values()).count(kind) for kind in ("ok", "failed")]
    assert min(counts) >= least


def test_corrupted_annotation_files_open_or_are_refused_in_one_sentence(sound, tmp_path):
    rng = random.Random(3)
    for name in ("annotations", "image", "seg_label"):
        (tmp_path / name).mkdir()
    (tmp_path / "image/000000000007.jpg").write_bytes(sound[0])
    instances = {"images": [{"id": 7}, {"id": 8}], "categories": [{"id": 3, "name": "dog"}]}
    captions = {"annotations": [{"image_id": 7, "caption": "a dog"}, {"image_id": 8, "caption": "a cat"}]}
    files = {
        tmp_path / "annotations/instances_minival2014.json": json.dumps(instances).encode(),
        tmp_path / "annotations/captions_val2014.json": json.dumps(captions).encode(),
        tmp_path / "anno.json": json.dumps([["a.jpg", "A dog.", "a.png", {"dog": 3}]]).encode(),
    }
    opened, sentences = 0, []
    for number in range(FILES):
        for path, data in files.items():
            path.write_bytes(data)
        path = list(files)[number % 3]
        path.write_bytes(corrupt_text(files[path], rng) if number % 20 else b"[" * 100_000)
        try:
            samples = open_dataset(f"{'grandf' if path.name == 'anno.json' else 'coco'}:{tmp_path}")
        except InputError as error:
            sentences.append(str(error))
            continue
        opened += 1
        for index in range(len(samples)):
            assert samples.name(index)
            with contextlib.suppress(InputError):
                samples[index]
    assert opened > 10
    assert len(sentences) > 10
    assert all(sentence.strip() and "\n" not in sentence for sentence in sentences)
