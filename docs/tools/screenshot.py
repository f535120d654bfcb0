"""Make the pictures of the page, of one picture for the README and of a clip, and the clip as a moving picture.

    python docs/tools/screenshot.py

With the packaged models; no network; a minute on a CPU. It needs Chromium, and Playwright from the `test` extra. The
pictures of pages keep the hash of the model's weights as a text, so that a test can tell when they are out of date.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from PIL.PngImagePlugin import PngInfo

if TYPE_CHECKING:
    from ercr.explanation import Explanation

IMAGES = Path(__file__).resolve().parents[1] / "images"
TARGET, CLIP, MOVING = IMAGES / "page.png", IMAGES / "clip-page.png", IMAGES / "clip.webp"
WORD, CLIP_WORD = "tree", "sheep"
_SEED, _CLIP_SEED = 5895, 30  # the scene of `ercr demo`, the clip of the gallery
_SIZE = {"width": 1000, "height": 755}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def weights(name: str = "scenes-qwen2vl") -> str:
    """The hash of the weights of a packaged model."""
    from ercr.zoo import packaged

    files = sorted(packaged()[name].glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def photograph(document: Path) -> Image.Image:
    """The page as a browser shows it."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport=_SIZE, color_scheme="light")
        page.goto(document.as_uri())
        page.wait_for_selector("main[data-ready]")
        shot = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(shot)).convert("RGB")


def write(explanation: Explanation, word: str, target: Path) -> None:
    """The page as a picture of few colours, with the hash of the model's weights."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "report.html"
        explanation.to_html(document, word)
        shot = photograph(document)
    made = PngInfo()
    made.add_text("weights", weights(explanation.provenance["model"]))
    # 256 colours instead of millions: less than half the size, and the paper stays white
    palette = shot.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3)
    shot.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(target, optimize=True, pnginfo=made)
    print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


def main() -> None:
    import ercr
    from ercr.datasets.moving import PROMPT, moving
    from ercr.datasets.scenes import scene
    from ercr.render.film import film
    from ercr.zoo import CLIPS, DEFAULT

    explained = ercr.Explainer.from_pretrained(DEFAULT).explain(scene(_SEED).image, "Describe this image.")
    write(explained, WORD, TARGET)
    clip = ercr.Explainer.from_pretrained(CLIPS).explain(moving(_CLIP_SEED).clip, PROMPT)
    write(clip, CLIP_WORD, CLIP)
    frames, seconds = zip(*film(clip, CLIP_WORD), strict=True)
    durations = [round(1000 * each) for each in seconds]
    frames[0].save(MOVING, save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=70, method=6)
    print(f"{MOVING.name}: {MOVING.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
