"""Packs the pictograms of several styles into one file that a training machine can read; it trains nothing.

    python -m training.sprites --out carry/sprites.npz openmoji google=DIR twitter=DIR fluent=DIR fluent3d=DIR \\
        noto-v1=DIR emojione=DIR emojione-v1=DIR fxemoji=DIR

A style is `openmoji`, a folder of PNG files named by code point (`img/google/64` of the npm package
emoji-datasource-google), or the folder of an Iconify icon set (the npm package @iconify-json/noto-v1; `fluent` is
fluent-emoji-flat, `fluent3d` is fluent-emoji). Old icon sets lack some pictograms; those are taken from the first
style of the command.
"""

from __future__ import annotations

import argparse
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ercr.datasets.scenes.pictograms import PICTOGRAMS, SIZE, Bank, fit, load_bank


def iconify_bank(folder: Path, slugs: dict[str, set[str]], fill: Bank) -> tuple[Bank, int]:
    """The pictograms of an Iconify icon set, drawn from its SVG bodies, and how many were filled in from `fill`."""
    icons = json.loads((folder / "icons.json").read_text())
    names = {_plain(name): name for name in [*icons["icons"], *icons.get("aliases", {})]}
    pictures, missing = [], 0
    for (_, code), other in zip(PICTOGRAMS, fill, strict=True):
        name = next((names[slug] for slug in sorted(slugs[code]) if slug in names), None)
        missing += name is None
        pictures.append(other if name is None else _draw(icons, name))
    return np.stack(pictures), missing


def _draw(icons: dict[str, Any], name: str) -> Bank:
    import resvg_py

    icon = icons["icons"][icons.get("aliases", {}).get(name, {}).get("parent", name)]
    width, height = (icon.get(side) or icons.get(side, 16) for side in ("width", "height"))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{icon["body"]}</svg>'
    png = resvg_py.svg_to_bytes(svg_string=svg, width=2 * SIZE, height=2 * SIZE, skip_system_fonts=True)
    return fit(Image.open(io.BytesIO(bytes(png))))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def names_of(folders: list[Path]) -> dict[str, set[str]]:
    """Every pictogram's names: Unicode's, and those of the icon sets that list code points."""
    slugs = {code: {_plain(unicodedata.name(chr(int(code.split("-")[0], 16))))} for _, code in PICTOGRAMS}
    for folder in folders:
        listed = json.loads((folder / "chars.json").read_text())
        for code, known in slugs.items():
            found = listed.get(code) or listed.get(code.replace("-fe0f", ""))
            known.update([_plain(found)] if found else [])
    return slugs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("styles", nargs="+", help="NAME or NAME=FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    styles = {name: folder for name, _, folder in (entry.partition("=") for entry in args.styles)}
    sets = {name: Path(folder) for name, folder in styles.items() if folder and (Path(folder) / "icons.json").is_file()}
    slugs = names_of(list(sets.values()))
    banks: dict[str, Bank] = {}
    for name, folder in styles.items():
        if name in sets:
            banks[name], missing = iconify_bank(sets[name], slugs, next(iter(banks.values())))
            print(f"{name}: {len(PICTOGRAMS) - missing} of {len(PICTOGRAMS)} pictograms")
        else:
            banks[name] = load_bank(folder or name)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, **banks)  # type: ignore[arg-type]
    print(f"{args.out}: {', '.join(banks)}, {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
