"""Datasets in the folders people have: read as they are, or refused with a picture of how they should look."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ercr.datasets.registry import datasets, open_dataset
from ercr.errors import ErcrError, ImageError, InputError

PHOTOGRAPHS = Path(__file__).parents[3] / "shared/data/coco2014"


@pytest.fixture
def coco(tmp_path):
    """Two pictures in COCO's layout; the second has no mask file."""
    for name in ("annotations", "image", "seg_label"):
        (tmp_path / name).mkdir()
    categories = [{"id": 18, "name": "dog"}, {"id": 37, "name": "sports ball"}, {"id": 46, "name": "wine glass"}]
    instances = {"images": [{"id": 7}, {"id": 8}], "annotations": [], "categories": categories}
    captions = {"annotations": [{"image_id": 7, "caption": "a dog "}, {"image_id": 7, "caption": "a pet"}]}
    (tmp_path / "annotations/instances_minival2014.json").write_text(json.dumps(instances))
    (tmp_path / "annotations/captions_val2014.json").write_text(json.dumps(captions))
    for id_ in (7, 8):
        Image.new("L", (40, 30), 90).save(tmp_path / f"image/{id_:012d}.jpg")
    labels = np.zeros((30, 40), np.uint8)
    labels[5:10, 5:10] = 18
    Image.fromarray(labels).save(tmp_path / "seg_label/000000000007.png")
    return tmp_path


def test_coco_reads_pictures_masks_names_and_captions(coco):
    samples = open_dataset(f"coco:{coco}")
    first, second = samples[:2]
    assert (len(samples), first.id, first.references) == (2, "000000000007", ("a dog", "a pet"))
    assert first.image.mode == "RGB"
    assert (first.labels == 18).sum() == 25
    assert first.categories == {18: "dog", 37: "ball", 46: "glass"}
    assert second.labels is None
    assert second.references == ()


@pytest.mark.parametrize(("name", "sentences"), [("grandf", "two"), ("openpsg", "three")])
def test_listed_datasets_bring_their_own_categories(tmp_path, name, sentences):
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.png")
    Image.fromarray(np.full((10, 20), 3, np.uint8)).save(tmp_path / "m.png")
    (tmp_path / "anno.json").write_text(json.dumps([["a.png", "A red thing.", "m.png", {"thing": 3}], ["gone.png"]]))
    samples = open_dataset(f"{name}:{tmp_path}")
    assert samples[0].categories == {3: "thing"}
    assert (samples[0].labels == 3).all()
    assert f"{sentences} sentences" in samples[0].prompt
    with pytest.raises(InputError, match="Entry 1"):
        samples[1]


def test_names_that_share_an_id_are_all_kept_in_their_order(tmp_path):
    Image.new("RGB", (20, 10), "red").save(tmp_path / "a.png")
    named = {"hot dog": 1, "dog": 2, "dog house": 1, "sky": 0}
    (tmp_path / "anno.json").write_text(json.dumps([["a.png", "A dog.", "m.png", named]]))
    assert open_dataset(f"grandf:{tmp_path}")[0].categories == [
        (1, "hot dog"),
        (2, "dog"),
        (1, "dog house"),
        (0, "sky"),
    ]


@pytest.mark.parametrize("mode", ["P", "1", "L", "RGB", "I;16"])
def test_masks_read_in_grey_are_what_opencv_reads(coco, mode):
    cv2 = pytest.importorskip("cv2")
    labels = np.random.default_rng(0).integers(0, 90, (30, 40)).astype(np.uint8)
    picture = Image.fromarray(labels)
    if mode == "P":
        picture = Image.frombytes("P", (40, 30), labels.tobytes())
        picture.putpalette(np.random.default_rng(1).integers(0, 256, 768).tolist())
    picture = {"1": Image.fromarray(labels > 40), "RGB": picture.convert("RGB")}.get(mode, picture)
    if mode == "I;16":
        picture = Image.fromarray(labels.astype(np.uint16) * 3)
    path = coco / "seg_label/000000000007.png"
    picture.save(path)
    samples = open_dataset(f"coco:{coco}")
    grey = samples.reading("grey")[0].labels
    np.testing.assert_array_equal(grey, cv2.imread(str(path), cv2.IMREAD_GRAYSCALE))
    assert samples.masks == "ids"
    if mode == "P":
        np.testing.assert_array_equal(samples[0].labels, labels)
        assert (grey != labels).any()
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ImageError, match="damaged"):
        samples.reading("grey")[0]


def test_missing_and_damaged_files_are_named(coco, tmp_path):
    assert {"coco", "grandf", "openpsg", "scenes"} <= set(datasets())
    with pytest.raises(InputError, match="Did you mean 'coco'"):
        open_dataset("cocoo:x")
    with pytest.raises(InputError, match=r"no folder 'nowhere'.*seg_label"):
        open_dataset("coco:nowhere")
    (coco / "seg_label/000000000007.png").write_bytes(b"x")
    with pytest.raises(ImageError, match=r"mask .*000000000007.png is damaged"):
        open_dataset(f"coco:{coco}")[0]
    (coco / "image/000000000008.jpg").unlink()
    with pytest.raises(ErcrError, match="There is no file"):
        open_dataset(f"coco:{coco}")[1]
    (coco / "annotations/captions_val2014.json").write_text("{}")
    with pytest.raises(InputError, match="not COCO's"):
        open_dataset(f"coco:{coco}")
    (coco / "annotations/captions_val2014.json").unlink()
    with pytest.raises(InputError, match=r"has no annotations/captions_val2014.json"):
        open_dataset(f"coco:{coco}")


@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="the sample of photographs is not here")
def test_a_real_sample_of_coco_reads():
    samples = open_dataset(f"coco:{PHOTOGRAPHS}")
    assert len(samples) == 210
    for sample in samples[::30]:
        assert sample.labels.shape == (sample.image.height, sample.image.width)
        assert len(sample.references) == 5
        assert set(np.unique(sample.labels)) - {0} <= set(sample.categories)


def test_a_damaged_entry_spoils_its_own_sample_only(coco):
    instances = json.loads((coco / "annotations/instances_minival2014.json").read_text())
    captions = {"annotations": [{"image_id": 8, "caption": 5}, {"image_id": 7, "caption": "a dog"}]}
    (coco / "annotations/instances_minival2014.json").write_text(
        json.dumps({**instances, "images": [{"id": 7}, {"id": 8}, {"file": "x"}]})
    )
    (coco / "annotations/captions_val2014.json").write_text(json.dumps(captions))
    samples = open_dataset(f"coco:{coco}")
    assert samples[0].references == ("a dog",)
    with pytest.raises(InputError, match="caption of image 8"):
        samples[1]
    with pytest.raises(InputError, match="Image 2 of"):
        samples[2]
    assert [samples.name(index) for index in range(3)] == ["000000000007", "000000000008", "entry 2"]


def test_masks_must_hold_ids_that_labels_can_hold(coco):
    mask = coco / "seg_label/000000000007.png"
    Image.fromarray(np.full((30, 40), 300, np.uint16)).save(mask)
    with pytest.raises(ImageError, match="outside 0 to 255"):
        open_dataset(f"coco:{coco}")[0]
    Image.new("1", (40, 30), 1).save(mask)
    assert (open_dataset(f"coco:{coco}")[0].labels == 1).all()
    Image.new("RGB", (40, 30)).save(mask)
    with pytest.raises(ImageError, match="one channel"):
        open_dataset(f"coco:{coco}")[0]


def test_a_fingerprint_follows_what_rows_depend_on(coco):
    def fingerprint(spec, count=2):
        return open_dataset(spec).fingerprint(count)

    before = fingerprint(f"coco:{coco}")
    assert fingerprint(f"coco:{coco}") == before
    captions = {"annotations": [{"image_id": 7, "caption": "another dog"}]}
    (coco / "annotations/captions_val2014.json").write_text(json.dumps(captions))
    assert fingerprint(f"coco:{coco}") != before
    assert fingerprint("scenes:2") == fingerprint("scenes:5") != fingerprint("scenes:2@1")
    for wrong in ("scenes:x", "scenes:-1", "scenes:2@-5", "scenes:2,size=3", "scenes:2,style="):
        with pytest.raises(InputError, match="scenes:COUNT"):
            open_dataset(wrong)
