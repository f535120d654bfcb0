"""The server as a program meets it: named endpoints that agree with the library, and clear refusals."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import ercr

httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.slow
PROMPT = "Describe this image."
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def upload(client):
    return pytest.importorskip("gradio_client").handle_file


@pytest.fixture(scope="module")
def explainer():
    return ercr.Explainer.from_pretrained("scenes-qwen2vl")


@pytest.fixture(scope="module")
def refusal():
    """What the client raises for an error of the application."""
    return pytest.importorskip("gradio_client.exceptions").AppError


def call(server, values, name="explain"):
    """One call over plain HTTP: the status, and the text of what came back."""
    body = json.dumps({"data": values})
    joined = httpx.post(f"{server.url}/gradio_api/call/{name}", content=body, headers=JSON)
    if joined.status_code != 200:
        return joined.status_code, joined.text
    return 200, httpx.get(f"{server.url}/gradio_api/call/{name}/{joined.json()['event_id']}", timeout=60).text


def test_explain_returns_what_the_library_says(client, upload, scene_file, explainer):
    text, words, report = client.predict(upload(scene_file), PROMPT, api_name="/explain")
    expected = explainer.explain(scene_file, PROMPT, max_new_tokens=64)
    assert text == expected.text
    assert [w["text"] for w in words] == [w.text for w in expected.words]
    assert [w["evidence"] for w in words] == pytest.approx([w.evidence for w in expected.words], abs=1e-3)
    assert [w["probability"] for w in words] == pytest.approx([w.probability for w in expected.words], abs=1e-3)
    np.testing.assert_allclose([w["map"] for w in words], [w.map for w in expected.words], atol=1e-3)
    assert {tuple(w["box"]) for w in words} == {expected.geometry.box}
    page = Path(report).read_text()
    assert page.startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_given_sentence_is_judged_word_by_word(client, upload, scene_file):
    text, words, _ = client.predict(upload(scene_file), "A cat and an elephant.", api_name="/explain_sentence")
    assert text == "A cat and an elephant."
    found = {word["text"]: word for word in words}
    assert found["cat"]["evidence"] > 0.5 > found["elephant"]["evidence"]
    assert found["cat"]["probability"] > 0.1 > found["elephant"]["probability"]


def test_several_pictures_are_shown_together(client, upload, scene_file, explainer, tmp_path, refusal):
    from PIL import Image

    other = tmp_path / "other.png"
    Image.open(scene_file).rotate(90, expand=True).crop((0, 0, 150, 120)).save(other)
    files = [upload(scene_file), upload(other)]
    text, words, report = client.predict(files, PROMPT, max_new_tokens=16, api_name="/explain_several")
    expected = explainer.explain([scene_file, other], PROMPT, max_new_tokens=16)
    assert text == expected.text
    for word, said in zip(words, expected.words, strict=True):
        for map_, own in zip(word["maps"], said.maps, strict=True):
            np.testing.assert_allclose(map_, own, atol=1e-3)
        assert [place["picture"] for place in word["where"]] == [place.picture for place in said.where()]
        assert [tuple(box) for box in word["boxes"]] == [piece.geometry.box for piece in expected.pieces]
    assert "<main" in Path(report).read_text()
    for given, says in (([], "1 to 8 pictures|no picture yet"), ([upload(other)] * 9, "1 to 8 pictures, not 9")):
        with pytest.raises(refusal, match=says):
            client.predict(given, PROMPT, api_name="/explain_several")


def test_compare_explains_one_answer_twice(client, upload, scene_file, explainer):
    text, words, report = client.predict(
        upload(scene_file), PROMPT, method="ercr", other_method="attention", api_name="/compare"
    )
    by_library = explainer.explain_all(scene_file, PROMPT, methods=["ercr", "attention"], max_new_tokens=64)
    assert text == by_library[0].text
    for name, expected in zip(("ercr", "attention"), by_library, strict=True):
        assert [w["evidence"][name] for w in words] == pytest.approx([w.evidence for w in expected.words], abs=1e-3)
        np.testing.assert_allclose([w["map"][name] for w in words], [w.map for w in expected.words], atol=1e-3)
    assert '"label": "attention"' in Path(report).read_text()


def test_endpoints_describe_their_parameters(client):
    described = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(described) == {"/explain", "/explain_several", "/explain_sentence", "/compare"}
    names = [p["parameter_name"] for p in described["/explain"]["parameters"]]
    assert names == ["image", "prompt", "model", "method", "max_new_tokens"]
    assert "ercr" in described["/explain"]["parameters"][3]["python_type"]["type"]
    assert [r["label"] for r in described["/explain"]["returns"]] == ["Answer", "Words", "Report"]


def test_what_is_wrong_with_a_request_is_said_in_one_sentence(client, upload, scene_file, bad_files, refusal):
    cases = [({"prompt": " "}, "prompt is empty"), ({"prompt": "x" * 2001}, "2,001 characters, and 2,000")]
    cases += [({"model": "/etc"}, "no model"), ({"method": "<b>"}, "no method"), ({"max_new_tokens": 999}, "between 1")]
    for options, says in cases:
        with pytest.raises(refusal, match=says) as raised:
            client.predict(upload(scene_file), api_name="/explain", **options)
        assert "<b>" not in str(raised.value)  # pages show messages as HTML
    for says, path in bad_files.items():
        with pytest.raises(refusal, match=says):
            client.predict(upload(path), api_name="/explain")


def test_paths_and_addresses_of_clients_are_not_opened(server, scene_file):
    asked = []

    class Bait(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_HEAD = do_GET

    with http.server.HTTPServer(("127.0.0.1", 0), Bait) as bait:
        threading.Thread(target=bait.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{bait.server_port}/x.png"
        meta = {"_type": "gradio.FileData"}
        paths = ["/etc/passwd", str(scene_file), str(server.log), address, "file:///etc/passwd"]
        for path in paths:
            for picture in ({"path": path, "meta": meta}, {"path": path}, {"path": path, "url": address}, path):
                status, text = call(server, [picture, PROMPT, "scenes-qwen2vl", "ercr", 8])
                assert (status, "Upload the picture" in text) == (422, True), (picture, status, text)
                status, text = call(server, [[picture], PROMPT, "scenes-qwen2vl", "ercr", 8], "explain_several")
                assert (status, "Upload the picture" in text) == (422, True), (picture, status, text)
            hidden = call(server, [None, {"path": path, "meta": meta}, "scenes-qwen2vl", "ercr", 8])
            assert hidden[0] == 422
            assert httpx.get(f"{server.url}/gradio_api/file={path}").status_code in (403, 404)
            assert httpx.get(f"{server.url}/gradio_api/proxy={path}").status_code == 404
        bait.shutdown()
    assert asked == []


def test_an_upload_above_the_limit_is_refused(server):
    files = {"files": ("big.png", bytes(11 * 1024 * 1024))}
    answer = httpx.post(f"{server.url}/gradio_api/upload", files=files)
    assert answer.status_code == 413
    assert "10 MB" in answer.json()["error"]


def test_results_are_served_in_an_origin_of_their_own(server, client, upload, scene_file):
    key = Path(client.predict(upload(scene_file), PROMPT, api_name="/explain")[2])
    assert key.name == "report.html"
    page = httpx.get(server.url)
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    for wrong in ("results/x/report.html", "results/../examples/scene-3.png", "results/"):
        assert httpx.get(f"{server.url}/{wrong}").status_code == 404


def test_values_of_any_kind_end_in_an_answer_or_a_sentence(server, scene_file):
    files = {"files": ("scene.png", scene_file.read_bytes())}
    path = httpx.post(f"{server.url}/gradio_api/upload", files=files).json()[0]
    image = {"path": path}
    odd = [None, True, -1, 1e308, "\ud800\x00", "<|image_pad|>", [], {}, [[[]]], {"a": 1}, "x" * 5000]
    for value in odd:
        for place in range(1, 5):
            values = [image, PROMPT, "scenes-qwen2vl", "ercr", 4]
            values[place] = value
            status, text = call(server, values)
            assert status == 200
            assert "event: complete" in text or "event: error" in text
            if "event: error" in text:
                error = json.loads(text.rsplit("data: ", 1)[1])["error"]
                assert "\n" not in error
                assert "The server failed" not in error, (place, value)
