"""Every packaged model against the oracle, over sizes, scales and kinds of views; prints one line a case.

    python -m tests.methods.oracle_sweep --minutes 10

Cases are drawn in a fixed order until the time is over. Exits with 1 where a map, a stage, a weight or a fit of any
case is further than 1e-4 from the oracle's. Models whose parts are not at hand are named and left out.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time

import numpy as np
import torch
from PIL import Image

import ercr
from ercr.datasets import Scenes
from ercr.errors import CheckpointError
from tests.methods import oracle

MODELS = ("scenes-qwen2vl", "scenes-llava", "scenes-internvl", "photo-mini")
SIZES = ((224, 224), (231, 157), (97, 331), (119, 67), (301, 302), (53, 41), (640, 427))  # width, height
SCALES = ((0.5, 0.75, 1.0), (0.4, 1.0, 1.6), (0.45, 0.6, 0.9, 1.0, 1.3), (0.4, 0.7), (1.0, 1.2, 1.5), (1.4, 1.6))
NORMALIZE = ("none", "none", "joint")
PROMPT = "Describe this image."
NEAR = 1e-4


def cases(seed):
    """Sizes, scales and kinds of views in an order that mixes them; the default settings first."""
    every = list(itertools.product(SIZES, SCALES, ("pad", "interpolate"), NORMALIZE[1:]))
    random.Random(seed).shuffle(every)
    return [(size, SCALES[0], "pad", "none") for size in SIZES] + every


def judge(explainer, judged, picture, scales, kind, normalize):
    told = explainer.explain(picture, PROMPT, max_new_tokens=16, scales=scales, views=kind, normalize=normalize)
    answer = [token.id for token in told.text_tokens if token.kind == "answer"]
    return oracle.difference(told, oracle.explain(judged, picture, PROMPT, answer, scales, kind, normalize))


def sweep(name, seconds, seed):
    """How far the package was from the oracle in each case."""
    try:
        explainer = ercr.Explainer.from_pretrained(name)
    except CheckpointError as missing:
        print(f"{name}: left out. {missing}")
        return []
    judged, pictures, far = oracle.around(explainer), Scenes(5, start=900_000), []
    until = time.monotonic() + seconds
    for index, (size, *settings) in enumerate(cases(seed)):
        if time.monotonic() > until:
            break
        picture = pictures[index % 5].image.resize(size, Image.Resampling.BICUBIC)
        far.append(judge(explainer, judged, picture, *settings))
        print(f"{name} {size} {settings}: {far[-1]:.1e}{'' if far[-1] < NEAR else ' FAR'}", flush=True)
    return far


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--minutes", type=float, default=10, help="for all models together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    models, wrong = options.models.split(","), 0
    for name in models:
        far = sweep(name, options.minutes * 60 / len(models), options.seed)
        wrong += int((np.array(far) >= NEAR).sum())
        if far:
            print(f"{name}: {len(far)} cases, furthest {max(far):.1e}")
    raise SystemExit(int(wrong > 0))


if __name__ == "__main__":
    main()
