"""The paper's numbers: written down rightly, and found for the models, datasets and methods they belong to."""

from __future__ import annotations

import pytest

from ercr.methods.specs import ABLATION, NAMES, read
from ercr.report import paper


def rows_with_f1(node):
    if isinstance(node, dict) and "f1_iou" in node:
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from rows_with_f1(child)


def test_every_f1_is_the_harmonic_mean_of_its_row():
    rows = list(rows_with_f1(paper.tables()))
    assert len(rows) == 42 + 81 + 16 + 8
    for row in rows:
        harmonic = 2 * row["obj_iou"] * row["func_iou"] / (row["obj_iou"] + row["func_iou"])
        assert row["f1_iou"] == pytest.approx(harmonic, abs=0.02), row


def test_all_seven_tables_are_there():
    tables = paper.tables()
    assert len(tables) == 7
    assert len(tables["faithfulness_coco"]) == 4
    assert tables["pcr_behavior_coco"]["Object tokens"]["n"] == 479
    assert tables["efficiency_qwen2vl_2b_a100"]["ERCR"]["overhead"] == 1.2


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen/Qwen2-VL-2B-Instruct", "Qwen2-VL-2B"),
        ("/models/Qwen2-VL-7B-Instruct/", "Qwen2-VL-7B"),
        ("llava-hf/llava-1.5-13b-hf", "LLaVA1.5-13B"),
        ("OpenGVLab/InternVL2_5-8B", "InternVL2.5-8B"),
        ("OpenGVLab/InternVL3-2B-hf", "InternVL3-2B"),
        ("OpenGVLab/InternVL3_5-2B-HF", "InternVL3.5-2B"),
        ("/hub/models--Qwen--Qwen2-VL-2B-Instruct/snapshots/895c3a49bc3fa70a340399125c650a463535e71c", "Qwen2-VL-2B"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", None),
        ("Qwen/Qwen2-VL-2B-Instruct-AWQ", None),
        ("Qwen2-VL-2B-Instruct/checkpoint-100", None),
        ("scenes-qwen2vl", None),
    ],
)
def test_models_are_known_by_hub_id_and_folder(name, model):
    assert paper.find_model(name) == model


@pytest.mark.parametrize(
    ("spec", "f1"),
    [
        ("ercr", 44.45),
        ("ercr:scales=0.5/0.75/1", 44.45),
        ("tam:compat=on", 39.1),
        ("attn_lrp", 16.69),
        ("ercr:context=tam,views=1", 39.1),
        ("ercr:views=1", 41.78),
        ("ercr:context=none", 36.65),
        ("ercr:scales=1.0,context=none", 31.57),
        ("ercr:aggregate=max", 42.63),
        ("ercr:context=mean", None),
        ("ercr:normalize=minmax", None),
        ("ercr:views=2", None),
        ("layer_cam:layer=1", None),
        ("unheard-of:x=1", None),
    ],
)
def test_methods_find_their_row(spec, f1):
    row = paper.plausibility("Qwen/Qwen2-VL-2B-Instruct", "coco:/data", read(spec))
    assert (row and row["f1_iou"]) == f1


def test_other_tables_are_found_and_only_for_their_models():
    qwen, ercr = "Qwen/Qwen2-VL-2B-Instruct", read("ercr")
    assert paper.plausibility(qwen, "coco:x", ercr, "mean")["f1_iou"] == 43.76
    assert paper.plausibility(qwen, "coco:x", ercr, "first")["f1_iou"] == 44.16
    assert paper.plausibility("llava-hf/llava-1.5-7b-hf", "openpsg:x", read("cam"))["f1_iou"] == 33.77
    assert paper.plausibility("llava-hf/llava-1.5-7b-hf", "coco:x", read("attention")) is None
    assert paper.faithfulness("OpenGVLab/InternVL3-2B-hf", "coco:x", ercr)["insertion_30"] == 5.659
    assert paper.suppression(qwen, "coco:x", "function")["area_reduction"] == 99.55
    assert paper.efficiency(qwen, "PCR only")["seconds_per_sample"] == 1.54
    assert paper.plausibility(qwen, "scenes:100", ercr) is None
    assert paper.faithfulness(qwen, "grandf:x", ercr) is None


def test_every_name_of_the_paper_is_a_method_here():
    assert {name for name, _ in NAMES.values()} == set(paper.tables()["baselines_qwen2vl_2b"])
    assert all(read(name).published for name in NAMES)
    assert [(row["er"], row["context"]) for row in paper.tables()["ablation_coco"]] == list(ABLATION)
    assert all(read(spec).row == row for row, (_, spec) in ABLATION.items())


def test_views_and_ranges_are_read_from_the_switches():
    assert [read(f"ercr:views={n}").views for n in (1, 2, 3, 5)] == [1, 2, 3, 5]
    assert read("ercr:scales=0.25/0.625/1").span == "0.25–1"
    assert read("ercr:scales=0.5/1").span == "0.5/1"
    assert read("ercr:views=4,context=tam").views is None
