"""COCO in its own folders: years and names as they are found, masks drawn from the annotations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ercr.datasets.registry import open_dataset
from ercr.errors import InputError

PHOTOGRAPHS = Path(__file__).parents[3] / "shared/data/coco2014"
SQUARE = [[2, 1, 8, 1, 8, 5, 2, 5]]  # polygon: columns 2 to 7, rows 1 to 4


def annotated(root, split="val2017", captions=True, prefix="", folder=None, categories=(18, 37), **extra):
    """A picture with a large thing as a polygon, and a smaller one in it as run lengths."""
    (root / "annotations").mkdir(exist_ok=True)
    pictures = root / (folder or split)
    pictures.mkdir(parents=True, exist_ok=True)
    file = f"{prefix}000000000007.jpg"
    Image.new("RGB", (12, 8), "navy").save(pictures / file)
    counts = [4 * 8 + 2, 2, 96 - 36]
    things = [
        {
            "image_id": 7,
            "category_id": categories[1],
            "segmentation": {"size": [8, 12], "counts": counts},
            "iscrowd": 1,
        },
        {"image_id": 7, "category_id": categories[0], "segmentation": SQUARE, "iscrowd": 0},
    ]
    names = zip(categories, ("dog", "sports ball"), strict=True)
    instances = {
        "images": [{"id": 7, "file_name": file, "width": 12, "height": 8}, {"id": 9, "file_name": "gone.jpg"}],
        "annotations": things,
        "categories": [{"id": id_, "name": name} for id_, name in names],
        **extra,
    }
    (root / f"annotations/instances_{split}.json").write_text(json.dumps(instances))
    if captions:
        told = {"annotations": [{"image_id": 7, "caption": "a dog "}]}
        (root / f"annotations/captions_{split}.json").write_text(json.dumps(told))
    for other in ("panoptic", "person_keypoints", "stuff"):
        (root / f"annotations/{other}_{split}.json").write_text("{}")
    return root


def expected(dog=18, ball=37):
    labels = np.zeros((8, 12), int)
    labels[1:5, 2:8] = dog
    labels[2:4, 4] = ball
    return labels


@pytest.mark.parametrize(
    ("split", "prefix", "folder"),
    [
        ("val2017", "", None),
        ("val2014", "COCO_val2014_", None),
        ("train2017", "", "images/train2017"),
        ("mine", "", "images"),
    ],
)
def test_pictures_masks_and_captions_are_found_by_the_names_they_have(tmp_path, split, prefix, folder):
    samples = open_dataset(f"coco:{annotated(tmp_path, split, prefix=prefix, folder=folder)}")
    assert (len(samples), samples[0].id, samples[0].references) == (2, "000000000007", ("a dog",))
    np.testing.assert_array_equal(samples[0].labels, expected())
    assert samples[0].categories == {18: "dog", 37: "ball"}
    with pytest.raises(InputError, match="no file"):
        samples[1]


def test_of_several_splits_one_is_chosen(tmp_path):
    annotated(tmp_path, "val2017", captions=False)
    annotated(tmp_path, "train2017")
    with pytest.raises(InputError, match=rf"several splits \(train2017, val2017\).*coco:{tmp_path},split=val2017"):
        open_dataset(f"coco:{tmp_path}")
    assert open_dataset(f"coco:{tmp_path},split=val2017")[0].references == ()
    assert open_dataset(f"coco:{tmp_path},split=train2017")[0].references == ("a dog",)
    with pytest.raises(InputError, match=r"no split 'val2071'.*Did you mean 'val2017'"):
        open_dataset(f"coco:{tmp_path},split=val2071")
    with pytest.raises(InputError, match=r"no dataset option 'spilt'.*Did you mean 'split'"):
        open_dataset(f"coco:{tmp_path},spilt=val2017")
    shutil.rmtree(tmp_path / "train2017")  # annotations come for both, pictures often for one
    assert open_dataset(f"coco:{tmp_path}")[0].references == ()
    shutil.rmtree(tmp_path / "val2017")
    with pytest.raises(InputError, match=r"no folder (val|train)2017 with the pictures|several splits"):
        open_dataset(f"coco:{tmp_path}")


def test_a_folder_may_be_named_like_an_option(tmp_path):
    odd = tmp_path / "a,split=b"
    odd.mkdir()
    assert len(open_dataset(f"coco:{annotated(odd)}")) == 2


def test_category_zero_is_not_the_background(tmp_path):
    sample = open_dataset(f"coco:{annotated(tmp_path, categories=(0, 900))}")[0]
    assert sample.categories == {1: "dog", 2: "sports ball"}
    np.testing.assert_array_equal(sample.labels, expected(1, 2))


@pytest.mark.parametrize(
    "shape",
    [
        [[1, 1, 10**9, 1, 3, 3]],
        [["x", 1, 2, 2, 3, 3]],
        {"size": [8, 12], "counts": [10**9]},
        {"size": [99999, 99999], "counts": "a"},
        {"counts": [96]},
        {"size": [8, 12], "counts": "\udcff"},
        5,
    ],
)
def test_a_damaged_mask_spoils_its_own_sample_only(tmp_path, shape):
    thing = {"image_id": 7, "category_id": 18, "segmentation": shape}
    samples = open_dataset(f"coco:{annotated(tmp_path, annotations=[thing])}")
    with pytest.raises(InputError, match=r"An annotation of image 7 in .*instances_val2017.json is not COCO's"):
        samples[0]


@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason="the sample of photographs is not here")
def test_masks_drawn_from_annotations_are_those_of_the_label_pictures(tmp_path):
    (tmp_path / "annotations").mkdir()
    for here, there in (("instances_val2017", "instances_minival2014"), ("captions_val2017", "captions_val2014")):
        shutil.copy(PHOTOGRAPHS / f"annotations/{there}.json", tmp_path / f"annotations/{here}.json")
    (tmp_path / "val2017").symlink_to(PHOTOGRAPHS / "image")
    drawn, stored = open_dataset(f"coco:{tmp_path}"), open_dataset(f"coco:{PHOTOGRAPHS}")
    assert [drawn.name(i) for i in range(210)] == [stored.name(i) for i in range(210)]
    for index in range(0, 210, 15):
        np.testing.assert_array_equal(drawn[index].labels, stored[index].labels)
        assert drawn[index].references == stored[index].references
