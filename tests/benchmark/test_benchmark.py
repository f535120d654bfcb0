"""The benchmark measures what it says; no time is asserted."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ercr.benchmark import public_tam
from ercr.benchmark.measure import operations, passes
from ercr.benchmark.rows import PUBLIC, Bench, allowing, picture
from ercr.benchmark.run import Wanted, growth
from ercr.benchmark.shapes import SHAPES
from ercr.benchmark.show import markdown, plot
from ercr.commands.cli import app


def test_operations_are_those_of_the_products():
    x, w = torch.randn(5, 7), torch.randn(7, 11)
    assert operations(lambda: x @ w) == 2 * 5 * 7 * 11
    q, k = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 9, 8)
    shared = operations(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True))
    assert shared >= 4 * 4 * 6 * 9 * 8


def test_ercr_reads_all_views_in_one_further_pass(load):
    bench = Bench(load("qwen2_vl"), picture((6, 8), 8), 4, repeats=1)
    assert passes(bench.adapter, bench.explain("cam")) == 1
    assert passes(bench.adapter, bench.explain("ercr")) == 2


def test_the_public_way_makes_maps_like_tam_for_every_text_token(load):
    explainer = load("qwen2_vl")
    bench = Bench(explainer, picture((6, 8), 8), 6, repeats=1)
    explanation = bench.explain("tam:compat=on")()[0][0]
    prepared = bench.sample("cam").prepared
    maps = public_tam.explain(bench.adapter, prepared, 6)
    assert len(maps) == len(explanation.text_tokens)
    # the map returned for the first answer token is another one's by a quirk; the record behind it is the same
    rows = [row for row in range(len(maps)) if row != len(prepared.prompt)]
    ours = np.round(explanation.maps[rows] * 255).astype(int)
    assert np.abs(ours - np.stack(maps)[rows].astype(int)).max() <= 1
    assert ours.max() > 50


def test_the_command_writes_a_document_that_reports_read(tmp_path, checkpoint):
    arguments = f"benchmark --model {checkpoint('qwen2_vl')} --grid 6x8 --tokens 3 --repeats 1 --batches 1,2 --images 2"
    arguments += " --one-by-one 1 --memory 3"
    result = CliRunner().invoke(app, [*arguments.split(), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "benchmark.json").read_text())
    rows = {row["name"]: row for row in document["rows"]}
    assert rows[PUBLIC]["overhead"] == 1
    assert rows["ERCR"]["tflops"] > rows["PCR only"]["tflops"]
    assert [row["batch"] for row in document["bulk"]] == [1, 2]
    page = (tmp_path / "benchmark.md").read_text()
    assert "| ERCR |" in page
    assert page.index("photographs") < page.index("| ERCR |")  # mixed sizes come first
    known = rows[PUBLIC]["seconds"]
    bulk, same, *alone = document["photographs"]
    assert [row["seconds"] * row["over_public"] for row in (bulk, same)] == pytest.approx([known] * 2)
    assert [row["name"].split(",")[0] for row in alone] == ["one by one", "one picture again and again"]
    assert [row["pictures"] for row in document["memory"]] == [1, 2, 3]
    assert (tmp_path / "memory.png").is_file()
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0


@pytest.mark.parametrize(("family", "reached"), [("qwen2_vl", [256, 900]), ("llava", [144])])
def test_growth_passes_the_limit_of_pixels_and_leaves_it_as_it_was(load, monkeypatch, family, reached):
    small = {"image": (256, 900), "views": (1, 2), "residual": (4,)}
    monkeypatch.setattr("ercr.benchmark.run._GROWTH", small)
    explainer = load(family)
    limits = dict(explainer.adapter.image_processor.size)
    found = {}
    bench = Bench(explainer, picture((4, 4), 8), 2, repeats=1)
    growth(found, bench, Wanted(cell=8, tokens=2), lambda text: None)
    assert [row["image"] for row in found["image"]] == reached
    assert [row["mode"] for row in found["views"]] == ["eager"] * 2
    assert dict(explainer.adapter.image_processor.size) == limits


def test_a_picture_of_4096_tokens_keeps_its_size_only_while_it_is_allowed(load):
    adapter, large = load("qwen2_vl").adapter, picture((64, 64), 8)
    with allowing(adapter, large):
        assert adapter.image_inputs(large)[1].grid == (64, 64)
    assert adapter.image_inputs(large)[1].grid == (20, 20)


def test_plots_and_tables_take_what_a_document_has(tmp_path):
    cost = {"seconds": 1.0, "overhead": 1.0, "over_generate": 1.0}
    document = {
        "model": "m", "device": "d", "dtype": "float32", "grid": [2, 3], "new_tokens": 4, "repeats": 1,
        "rows": [{"name": PUBLIC, **cost}],
        "bulk": [
            {"mode": "eager", "batch": n, "images_per_second": n, "memory_gb": None, "over_public": 1.0} for n in (1, 8)
        ],
        "growth": {"answer": [{"answer": 16, "mode": "captured", "grid": [2, 3], "ercr_seconds": 0.1}]},
    }  # fmt: skip
    assert "| 16 | captured | 0.1000 |" in markdown(document)
    assert [path.name for path in plot(document, tmp_path)] == ["bulk.png", "growth-answer.png"]
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())


def test_every_shape_can_be_configured():
    for make in SHAPES.values():
        config, tokenizer, _ = make()
        assert config.image_token_id < len(tokenizer) <= config.get_text_config().vocab_size
