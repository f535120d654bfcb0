"""Datasets that Hugging Face's library saved, and Parquet files: columns guessed by type and name, or named."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image as Pictures

from ercr.datasets.registry import open_dataset
from ercr.errors import ErcrError, InputError

datasets = pytest.importorskip("datasets")
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value  # noqa: E402


def picture(colour=0):
    return Pictures.fromarray(np.full((8, 12, 3), colour, np.uint8))


def things(boxes, categories):
    return {"bbox": boxes, "category": categories}


@pytest.fixture(scope="module")
def made():
    """Two pictures with captions, and things in boxes, as datasets of detection on the hub have them."""
    listed = datasets.Sequence if not hasattr(datasets, "List") else datasets.List
    features = Features(
        {
            "image_id": Value("int64"),
            "image": Image(),
            "captions": listed(Value("string")),
            "objects": {"bbox": listed(listed(Value("float32"))), "category": listed(ClassLabel(names=["cat", "dog"]))},
        }
    )
    rows = {
        "image_id": [5, 6],
        "image": [picture(10), picture(200)],
        "captions": [["a dog and a cat", " pets"], []],
        "objects": [things([[4, 2, 1, 2], [2, 1, 6, 4]], ["cat", "dog"]), things([], [])],
    }
    return Dataset.from_dict(rows, features=features)


def expected():
    labels = np.zeros((8, 12), int)
    labels[1:5, 2:8] = 2
    labels[2:4, 4] = 1
    return labels


@pytest.mark.parametrize("kind", ["saved", "parquet"])
def test_types_and_names_tell_what_columns_hold(made, tmp_path, kind):
    if kind == "saved":
        made.save_to_disk(tmp_path)
    else:
        made.to_parquet(tmp_path / "train-00000-of-00001.parquet")
    samples = open_dataset(f"hf:{tmp_path}")
    first, second = samples[:2]
    assert (len(samples), first.id, second.id) == (2, "5", "6")
    np.testing.assert_array_equal(np.asarray(first.image), np.asarray(picture(10)))
    assert (first.references, second.references) == (("a dog and a cat", "pets"), ())
    assert first.categories == {1: "cat", 2: "dog"}
    np.testing.assert_array_equal(first.labels, expected())
    assert not second.labels.any()
    assert "caption" in first.prompt


def test_rows_come_from_the_shard_and_the_group_they_lie_in(made, tmp_path):
    many = datasets.concatenate_datasets([made] * 4)
    for number in range(2):
        name = f"data/train-{number:05}-of-00002.parquet"
        (tmp_path / "data").mkdir(exist_ok=True)
        many.shard(2, number, contiguous=True).to_parquet(tmp_path / name, batch_size=3)
    found = open_dataset(f"hf:{tmp_path}")
    assert [sample.id for sample in found] == ["5", "6"] * 4
    assert [np.asarray(sample.image)[0, 0, 0] for sample in found] == [10, 200] * 4


@pytest.mark.parametrize("kind", ["saved", "parquet"])
def test_of_several_splits_one_is_chosen(made, tmp_path, kind):
    if kind == "saved":
        DatasetDict(train=made, validation=made.select([1])).save_to_disk(tmp_path)
    else:
        made.to_parquet(tmp_path / "train-00000-of-00001.parquet")
        made.select([1]).to_parquet(tmp_path / "validation.parquet")
    with pytest.raises(InputError, match=r"several splits \(train, validation\).*,split=validation"):
        open_dataset(f"hf:{tmp_path}")
    chosen = open_dataset(f"hf:{tmp_path},split=validation")
    assert [sample.id for sample in chosen] == ["6"]
    assert chosen.fingerprint(1) != open_dataset(f"hf:{tmp_path},split=train").fingerprint(1)


def test_columns_can_be_named(tmp_path):
    rows = {"left": [picture(1)], "right": [picture(2)], "said": ["a cat"], "asked": ["What is it?"], "key": ["k"]}
    features = Features({n: Image() if n in ("left", "right") else Value("string") for n in rows})
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"left or right\?.*image=NAME.*left \(picture\), .*said \(string\)"):
        open_dataset(f"hf:{tmp_path}")
    sample = open_dataset(f"hf:{tmp_path},image=right,captions=said,prompt=asked,id=key")[0]
    assert (sample.id, sample.prompt, sample.references) == ("k", "What is it?", ("a cat",))
    assert np.asarray(sample.image)[0, 0, 0] == 2
    assert (sample.labels, sample.categories) == (None, {})
    for options, told in (
        ("image=rihgt", "no column 'rihgt' for image; the columns are .* Did you mean 'right'"),
        ("image=left,captions=right", "'right' holds no text"),
        ("image=left,objects=said", "'said' holds no boxes"),
        ("image=left,mask=right", "categories=NAME"),
        ("boxes=ltrb", "boxes"),
    ):
        with pytest.raises(InputError, match=told):
            open_dataset(f"hf:{tmp_path},{options}")


def test_masks_are_pictures_of_numbers_with_names_beside(tmp_path):
    labels = np.zeros((8, 12), np.uint8)
    labels[1:3] = 2
    rows = {
        "image": [picture(), picture()],
        "mask": [Pictures.fromarray(labels)] * 2,
        "categories": [["cat", "dog"]] * 2,
    }
    Dataset.from_dict(rows).cast_column("image", Image()).cast_column("mask", Image()).save_to_disk(tmp_path)
    sample = open_dataset(f"hf:{tmp_path}")[0]
    np.testing.assert_array_equal(sample.labels, labels)
    assert sample.categories == {1: "cat", 2: "dog"}


def test_tables_of_other_libraries_read_too(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    picture(9).save(data, format="PNG")
    boxes = [{"label": "dog", "box": [2.0, 1.0, 8.0, 5.0]}]
    rows = pa.table({"image": [data.getvalue()], "caption": ["a dog"], "annotations": pa.array([boxes])})
    pq.write_table(rows, tmp_path / "x.parquet")
    sample = open_dataset(f"hf:{tmp_path},boxes=xyxy")[0]
    assert (sample.id, sample.references, sample.categories) == ("row 0", ("a dog",), {1: "dog"})
    np.testing.assert_array_equal(sample.labels, (expected() > 0).astype(int))


def test_names_of_pictures_do_not_lead_out_of_the_folder(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    for place in ("secret.png", "in/own.png"):
        picture(7).save(tmp_path / place)
    names = ["own.png", "../secret.png", str(tmp_path / "secret.png"), "https://127.0.0.1:9/a.png", None]
    pq.write_table(pa.table({"image": [{"bytes": None, "path": name} for name in names]}), tmp_path / "in/x.parquet")
    samples = open_dataset(f"hf:{tmp_path / 'in'}")
    assert samples[0].image.size == (12, 8)
    for index in range(1, 5):
        with pytest.raises(ErcrError):
            samples[index]


def test_what_cannot_be_read_is_told_in_one_sentence(made, tmp_path):
    with pytest.raises(InputError, match="neither what save_to_disk"):
        open_dataset(f"hf:{tmp_path}")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_dataset(f"hf:{tmp_path}")
    saved = tmp_path / "saved"
    made.save_to_disk(saved)
    (saved / "state.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read as what save_to_disk wrote"):
        open_dataset(f"hf:{saved}")
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict/dataset_dict.json").write_text(json.dumps({"splits": ["train"]}))
    with pytest.raises(InputError, match="none of the splits"):
        open_dataset(f"hf:{tmp_path / 'dict'}")
    with pytest.raises(InputError, match="There is no folder"):
        open_dataset("hf:nowhere")
