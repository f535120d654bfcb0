"""Make the picture of the report page for the README, with the packaged model. No network; some seconds on a CPU.

    python docs/tools/screenshot.py

It needs Chromium, and Playwright from the `test` extra. The picture keeps the hash of the model's weights as a text, so
that a test can tell when it is out of date.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

TARGET = Path(__file__).resolve().parents[1] / "images" / "page.png"
WORD = "tree"
_SEED = 5895  # the scene of `ercr demo`
_SIZE = {"width": 1000, "height": 755}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def weights() -> str:
    """The hash of the weights of the model for scenes."""
    from ercr.zoo import DEFAULT, packaged

    files = sorted(packaged()[DEFAULT].glob("*.safetensors"))
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


def main() -> None:
    import ercr
    from ercr.datasets.scenes import scene
    from ercr.zoo import DEFAULT

    explanation = ercr.Explainer.from_pretrained(DEFAULT).explain(scene(_SEED).image, "Describe this image.")
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "report.html"
        explanation.to_html(document, WORD)
        shot = photograph(document)
    made = PngInfo()
    made.add_text("weights", weights())
    # 256 colours instead of millions: less than half the size, and the paper stays white
    palette = shot.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3)
    shot.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(TARGET, optimize=True, pnginfo=made)
    print(f"{TARGET.name}: {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
