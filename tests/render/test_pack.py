"""What a page carries: maps that come back, spaces, labels, steps, sizes."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.errors import InputError, WordNotFound
from ercr.image.geometry import Geometry, Panel
from ercr.render import pack as packing
from ercr.render.html import page
from ercr.render.labels import labels
from ercr.render.pack import pack
from ercr.render.picture import picture
from ercr.render.stages import stages
from tests.render.made import ANSWER, explanation, photo

LENGTH = 1024


def unpacked(panel) -> np.ndarray:
    """Maps [steps, words, h, w] as the page reads them."""
    levels = np.frombuffer(zlib.decompress(base64.b64decode(panel["maps"])), np.uint8)
    peaks = np.array(panel["peaks"], np.float32)
    return levels.reshape(*peaks.shape, *panel["grid"]) / 255 * peaks[..., None, None]


def test_maps_come_back_within_half_a_level_of_their_peak():
    made = explanation()
    panel = pack([made])["groups"][0]["panels"][0]
    words = [*made.prompt_words, *made.words]
    assert [stage["key"] for stage in panel["stages"]] == ["evidence", "context", "result"]
    for word, found, share in zip(words, unpacked(panel)[-1], panel["shares"][-1], strict=True):
        assert np.abs(found - word.lit).max() <= 0.51 * word.share / 255 + 1e-4 * word.share
        assert share == pytest.approx(word.share, rel=1e-3)
    assert max(word.share for word in made.words) == 1


def test_the_steps_add_up_where_nothing_was_clipped():
    made = explanation()
    words = (*made.prompt_words, *made.words)
    steps = {stage.key: stage.maps for stage in stages(made, words)}
    single = [i for i, word in enumerate(words) if len(word.tokens) == 1]
    rest = np.clip(steps["evidence"] - steps["context"], 0, None)[single]
    np.testing.assert_allclose(rest, steps["result"][single], atol=1e-5)


def test_a_step_that_only_scales_the_result_is_left_out():
    made = explanation(method="cam")
    made.stages["raw"] = made.maps * 40 + 3
    assert [stage.key for stage in stages(made, made.words)] == ["result"]


def test_steps_are_on_the_scale_of_the_strongest_word():
    """Stretched maps times what they were stretched from, and scores as they are, both over the highest strength."""
    made = explanation(method="tam")
    rng = np.random.default_rng(1)
    made.scale = rng.uniform(3, 9, len(made.maps)).astype(np.float32)
    made.strength = made.maps.max((1, 2)) * made.scale
    rows = [word.tokens[0].row for word in made.words if len(word.tokens) == 1]
    top = max(made.strength[t.row] for t in made.tokens)
    steps = {stage.key: stage.maps for stage in stages(made, made.words)}
    at = [i for i, word in enumerate(made.words) if len(word.tokens) == 1]
    expected = made.stages["evidence"][rows] * made.scale[rows, None, None] / top
    np.testing.assert_allclose(steps["evidence"][at], expected, rtol=1e-5)
    made.stages["evidence"] = made.stages["evidence"] * 30
    scores = stages(made, made.words)[0].maps
    np.testing.assert_allclose(scores[at], made.stages["evidence"][rows] / top, rtol=1e-5)


def test_white_space_is_kept_as_the_model_wrote_it():
    answer = ["A", " list", ":", "\n\n", "1", ".", " dog", "\n", " cat", " \n\n\n\n", "house", "狗", "狗"]
    group = pack([explanation(answer)])["groups"][0]
    said = group["words"][group["prompts"] :]
    spaces = ["", " ", "", "\n\n", "", " ", "\n", "\n\n", "", ""]
    texts = "A list : 1 . dog cat house 狗 狗".split()
    assert said == [list(pair) for pair in zip(spaces, texts, strict=True)]


def test_explanations_of_the_same_words_share_a_text_and_an_image():
    made = [explanation(method=name, seed=i) for i, name in enumerate(("ercr", "cam"))]
    other = explanation(["Two", " dogs"], seed=2)
    data = pack([*made, other])
    assert len(data["images"]) == 1
    assert [len(group["panels"]) for group in data["groups"]] == [2, 1]


def test_labels_tell_what_differs():
    plain, tuned, other = (explanation() for _ in range(3))
    tuned.provenance["settings"] = {"layer": -2, "scales": (0.5, 1.0)}
    plain.provenance["settings"] = {"layer": -1, "scales": [0.5, 1.0]}
    other.provenance.update(method="cam", settings={})
    assert labels([plain, tuned, other]) == ["ercr layer=-1", "ercr layer=-2", "cam"]
    assert labels([plain, plain]) == ["ercr (1)", "ercr (2)"]
    other.provenance["model"] = "hub/other"
    assert labels([plain, other]) == ["ercr made-by-hand", "cam other"]


def test_large_grids_are_coarsened_to_fit_and_lie_where_they_were(monkeypatch):
    made = explanation(grid=(31, 40), image=photo((300, 400)), box=(10.0, 0.0, 390.0, 300.0))
    monkeypatch.setattr(packing, "_MAP_BYTES", len(ANSWER) * 3 * 31 * 40 // 6)
    panel = pack([made])["groups"][0]["panels"][0]
    assert panel["grid"] == [11, 14]
    assert panel["tokens"] == [31, 40]
    left, top, right, bottom = panel["box"]
    stored = Geometry((300, 400), (Panel((11, 14), (left * 400, top * 300, right * 400, bottom * 300)),))
    for index, word in enumerate(made.words):
        coarse = stored.to_pixels(unpacked(panel)[-1][len(made.prompt_words) + index])
        fine = made.geometry.to_pixels(word.lit)
        y, x = (np.array(np.unravel_index(m.argmax(), m.shape)) for m in (coarse, fine))
        assert np.abs(y - x).max() < 40
        assert np.abs(coarse - fine).mean() < 0.03


def test_pictures_stay_small_and_drawings_stay_exact():
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (3000, 4000, 3), np.uint8))
    heavy = picture(noise)
    assert max(heavy.size) == 1280
    assert len(heavy.url) < 1_250_000
    assert not heavy.lossless
    drawing = Image.new("RGB", (240, 208), (20, 200, 90))
    exact = picture(drawing)
    assert exact.lossless
    assert exact.size == drawing.size


def test_a_report_of_a_photo_stays_under_a_megabyte_and_a_half():
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 255, (150, 200, 3), np.uint8)).resize((4000, 3000))
    grain = np.clip(np.asarray(smooth, np.int16) + rng.normal(0, 12, (3000, 4000, 1)), 0, 255).astype(np.uint8)
    made = explanation(ANSWER * 8, image=Image.fromarray(grain), grid=(27, 36))
    assert len(made.to_html().encode()) < 1_500_000


def test_a_report_of_a_thousand_tokens_stays_under_eight_megabytes():
    words = [f" word{i}" for i in range(LENGTH)]
    assert len(explanation(words, grid=(36, 36), image=photo((1008, 1008))).to_html().encode()) < 8_000_000
    assert len(explanation(words, grid=(64, 64), image=photo((1008, 1008))).to_html().encode()) < 8_000_000


def test_pages_are_closed_to_the_network_and_to_foreign_scripts():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\u2029<!--"
    document = explanation([evil, " dog"], [evil], model=evil, method=evil).to_html()
    assert "<script>alert" not in document
    assert "<img src=x" not in document
    assert document.count("</script>") == 2
    assert not re.findall(r"(?:src|href)=[\"']?https?:", document)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', document).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert json.loads(re.search(r'id="ercr-data">(.*?)</script>', document, re.DOTALL).group(1))["groups"]


def test_half_a_surrogate_pair_does_not_stop_a_report(tmp_path):
    explanation(["a\ud800", " dog"]).to_html(tmp_path / "x.html")
    assert "dog" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_comparing_needs_explanations_and_finds_words():
    with pytest.raises(InputError, match="list of explanations"):
        ercr.compare([])
    with pytest.raises(InputError, match="list of explanations"):
        ercr.compare(["x"])
    with pytest.raises(InputError, match="at least one"):
        page([])
    made = explanation()
    with pytest.raises(WordNotFound):
        ercr.compare([made], "cat")
    assert repr(ercr.compare([made])).startswith("Page(ercr: 'A red kangaroo")
    assert ercr.compare(made).to_html() == made.to_html()
