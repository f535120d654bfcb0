"""Images of every kind load as upright RGB pictures, and every bad one is refused in one sentence."""

from __future__ import annotations

import http.server
import io
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ercr.errors import ImageError
from ercr.image import addresses, images
from ercr.image.images import load_image


def saved(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def mean_colour(source):
    return np.asarray(load_image(source).rgb).reshape(-1, 3).mean(0).round().tolist()


def test_modes_become_what_a_viewer_would_show():
    assert mean_colour(saved(Image.new("L", (8, 8), 100))) == [100, 100, 100]
    assert mean_colour(saved(Image.new("1", (8, 8), 1))) == [255, 255, 255]
    assert mean_colour(saved(Image.new("RGB", (8, 8), (9, 8, 7)).quantize(4))) == [9, 8, 7]
    assert mean_colour(saved(Image.new("RGBA", (8, 8), (255, 0, 0, 0)))) == [255, 255, 255]
    assert mean_colour(saved(Image.new("LA", (8, 8), (0, 51)))) == [204, 204, 204]
    deep = Image.fromarray(np.full((8, 8), 257 * 80, np.uint16))
    assert mean_colour(saved(deep)) == [80, 80, 80]
    assert mean_colour(saved(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "TIFF")) == [255, 255, 255]
    frames = [Image.new("RGB", (8, 8), c) for c in ("red", "blue")]
    assert mean_colour(saved(frames[0], "GIF", save_all=True, append_images=frames[1:])) == [255, 0, 0]


def test_orientation_is_applied_once():
    image = Image.new("RGB", (40, 20), "black")
    image.paste("white", (0, 0, 10, 20))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees
    loaded = load_image(saved(image, "JPEG", exif=exif))
    assert loaded.size == (40, 20)
    assert np.asarray(loaded.rgb)[:5].mean() > 200
    assert load_image(loaded.to_bytes()).size == (40, 20)
    assert load_image(loaded) is loaded


def test_arrays_and_paths_and_hashes_agree(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(array).save(path)
    assert load_image(array).sha256() == load_image(path).sha256() == load_image(str(path)).sha256()
    assert load_image(array / 255.0).sha256() == load_image(array).sha256()
    assert load_image(array[:, :, 0]).rgb.mode == "RGB"


def test_tensors_and_arrays_of_every_layout_are_the_same_picture():
    array = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    expected, tensor = load_image(array).sha256(), torch.from_numpy(array)
    first = tensor.permute(2, 0, 1)
    for source in (
        *(tensor, first, first[None], first / 255, tensor / 255, first.double() / 255),
        *(first.numpy(), first.numpy() / 255, array[None], (first / 255).requires_grad_()),
    ):
        assert load_image(source).sha256() == expected
    assert load_image(first[:1]).sha256() == load_image(array[..., 0]).sha256()
    assert load_image((first / 255).bfloat16()).size == (6, 9)
    assert load_image(torch.zeros(3, 5, 4)).size == (5, 4)  # both ends could be channels: torch puts them first
    assert load_image(np.zeros((3, 5, 4), np.uint8)).size == (3, 5)


@pytest.fixture
def address():
    """A server on this machine; what it answers is said by the path."""
    body = saved(Image.new("RGB", (8, 6), "red"))

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            code, _, to = self.path[1:].partition("/")
            self.send_response(200 if code in ("short", "long") else int(code))
            self.send_header("Location", f"/{to}" if "~" not in to else to.replace("~", ":///"))
            self.send_header("Content-Length", str(len(body) + 9 * (code == "short")))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_pictures_come_from_addresses_within_bounds(address, monkeypatch):
    assert load_image(f"{address}/200").size == (6, 8)
    assert load_image(f"{address}/302/200").size == (6, 8)
    for path, says in {
        "404": "answered 404",
        "short": "ended after",
        "302/file~etc/hostname": "another protocol",
        "/".join(["302"] * 9): "redirects too often",
    }.items():
        with pytest.raises(ImageError, match=says):
            load_image(f"{address}/{path}")
    monkeypatch.setattr(addresses, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="holds more than"):
        load_image(f"{address}/200")


def test_bad_images_are_refused_in_one_sentence(tmp_path, monkeypatch):
    text = tmp_path / "notes.jpg"
    text.write_text("not an image")
    whole = saved(Image.effect_noise((64, 64), 80).convert("RGB"), "JPEG")
    for source, says in (
        (tmp_path / "gone.png", "There is no file"),
        (tmp_path, "is a folder"),
        (text, "not an image"),
        (b"", "not an image"),
        (whole[: len(whole) // 2], "cut short"),
        ("http://127.0.0.1:9/a.png", "download"),
        (Path("https://example.org/a.png"), "download"),
        ("ftp://127.0.0.1/a.png", "http and https"),
        ("file:///etc/hostname", "http and https"),
        ("http://[/a.png", "download"),
        (np.zeros((2, 3, 4, 4), np.uint8), "holds 2 images"),
        (torch.zeros(3, 4, 4) - 1, "between 0 and 1"),
        (torch.zeros(2, 4, 4, device="meta"), "cannot be read"),
        (3, "path, bytes"),
        (np.zeros((4, 4, 7), np.uint8), r"\[H, W\]"),
        (np.zeros((4, 4, 3), np.int64), "uint8"),
        (np.full((4, 4), np.nan), "finite"),
        (np.zeros((0, 4), np.uint8), r"\[H, W\]"),
    ):
        with pytest.raises(ImageError, match=says) as error:
            load_image(source)
        assert str(error.value).count("\n") == 0
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    with pytest.raises(ImageError, match="64 x 64 pixels"):
        load_image(whole)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match="scale it down"):
        load_image(whole)
