"""Run on its own with one version of transformers: explain a picture with every checkpoint given, keep the numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

import ercr


def main(picture: str, out: str, folders: list[str]) -> None:
    torch.set_num_threads(1)
    arrays = {}
    for folder in folders:
        explainer = ercr.Explainer.from_pretrained(folder, dtype="float32")
        for method in ("ercr", "tam", "cam"):
            options = {"max_new_tokens": 6, "generation": {"min_new_tokens": 4}}
            explanation = explainer.explain(Image.open(picture), "Describe this image.", method=method, **options)
            key = f"{Path(folder).name}-{method}"
            arrays[f"{key}-maps"] = explanation.maps
            arrays[f"{key}-ids"] = np.array([t.id for t in explanation.text_tokens])
            arrays[f"{key}-probabilities"] = np.array([t.probability for t in explanation.text_tokens])
    np.savez(out, version=transformers.__version__, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
