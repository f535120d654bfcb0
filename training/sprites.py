"""Packs the pictograms of several styles into one file that a training machine can read; it trains nothing.

    python -m training.sprites --out carry/sprites.npz openmoji google=DIR twitter=DIR fluent=DIR

A style is `openmoji`, a folder of PNG files named by code point, or the folder of an Iconify icon set.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from ercr.datasets.scenes.pictograms import PICTOGRAMS, SIZE, Bank, fit, load_bank


def iconify_bank(folder: Path) -> Bank:
    """The pictograms of an Iconify icon set, drawn from the SVG bodies in its `icons.json`."""
    import resvg_py

    icons = json.loads((folder / "icons.json").read_text())
    names = json.loads((folder / "chars.json").read_text())
    width, height = icons.get("width", 32), icons.get("height", 32)
    pictures = []
    for _, code in PICTOGRAMS:
        name = names.get(code) or names[code.replace("-fe0f", "")]
        name = icons.get("aliases", {}).get(name, {}).get("parent", name)
        body = icons["icons"][name]["body"]
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{body}</svg>'
        png = resvg_py.svg_to_bytes(svg_string=svg, width=2 * SIZE, height=2 * SIZE, skip_system_fonts=True)
        pictures.append(fit(Image.open(io.BytesIO(bytes(png)))))
    return np.stack(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("styles", nargs="+", help="NAME or NAME=FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    banks = {}
    for entry in args.styles:
        name, _, folder = entry.partition("=")
        is_icon_set = bool(folder) and (Path(folder) / "icons.json").is_file()
        banks[name] = iconify_bank(Path(folder)) if is_icon_set else load_bank(folder or name)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, **banks)
    print(f"{args.out}: {', '.join(banks)}, {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
