"""Do maps depend on what the model learned and on what it saw? They must fall apart without either.

python -m benchmarks.sanity --model scenes-llava --out docs/tables/sanity-scenes-llava.json

The same answers are explained by the model, by the model with random weights (every matrix drawn anew with its own
spread: the decoder's, and then all), and by the model with the next scene's picture. Maps are compared with the model's
own by correlation, and with the masks by Obj-IoU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ercr
from ercr.datasets import Scenes
from ercr.datasets.sample import Sample
from ercr.metrics.answers import AnswerScore, score_answer
from ercr.metrics.language import english
from ercr.metrics.protocol import Protocol

FIRST_SEED = 850_000
PROTOCOL = Protocol.preset("tam")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes-llava")
    parser.add_argument("--methods", default="ercr,contrast")
    parser.add_argument("--scenes", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    document = {"model": arguments.model, "scenes": arguments.scenes, "protocol": str(PROTOCOL)}
    document["rows"] = measure(arguments.model, arguments.methods.split(","), arguments.scenes)
    text = json.dumps(document, indent=1)
    arguments.out.write_text(text + "\n")
    print(text)


def measure(model: str, methods: Sequence[str], count: int) -> dict[str, Any]:
    """Obj-IoU and correlation with the model's own maps, by method and change."""
    samples = list(Scenes(count, FIRST_SEED))
    explainer = ercr.Explainer.from_pretrained(model)
    answers = [explainer.explain(s.image, s.prompt, method="cam", max_new_tokens=40).text for s in samples]
    shown = [sample.image.resize(samples[0].image.size) for sample in samples]  # maps of one grid can be compared
    found = {"as trained": explained(explainer, shown, samples, answers, methods)}
    found["next picture"] = explained(explainer, [*shown[1:], shown[0]], samples, answers, methods)
    adapter = explainer.adapter
    for name, part in (("random decoder", adapter.language_model), ("random weights", adapter.model)):
        randomise(part)
        vars(adapter).pop("mean_row", None)  # it was made from the trained weights
        found[name] = explained(explainer, shown, samples, answers, methods)
    return {
        method: {
            change: {"obj_iou": _iou(rows[method], samples), "correlation": _likeness(rows[method], found, method)}
            for change, rows in found.items()
        }
        for method in methods
    }


def explained(
    explainer: ercr.Explainer, images: Sequence[Any], samples: Sequence[Sample], answers: Sequence[str], methods: Any
) -> dict[str, list[Any]]:
    rows = [
        explainer.explain_all(image, sample.prompt, methods=methods, answer=answer)
        for image, sample, answer in zip(images, samples, answers, strict=True)
    ]
    return {method: [row[at] for row in rows] for at, method in enumerate(methods)}


@torch.no_grad()
def randomise(part: torch.nn.Module) -> None:
    """Draw every matrix anew with its own mean and spread; norms and biases stay."""
    generator = torch.Generator().manual_seed(0)
    for weight in part.parameters():
        if weight.ndim > 1:
            noise = torch.randn(weight.shape, generator=generator).to(weight)
            weight.copy_(noise * weight.std() + weight.mean())


def _score(explanation: Any, sample: Sample) -> AnswerScore:
    labels = np.asarray(sample.labels)
    return score_answer(explanation, labels, sample.categories, english(), PROTOCOL)


def _iou(explanations: Sequence[Any], samples: Sequence[Sample]) -> float:
    scores = [_score(one, sample) for one, sample in zip(explanations, samples, strict=True)]
    values = [word.pooled.iou for score in scores for word in score.words if word.pooled is not None]
    return round(100 * float(np.mean(values)), 1)


def _likeness(explanations: Sequence[Any], found: dict[str, dict[str, list[Any]]], method: str) -> float:
    """Mean correlation of the nouns' maps with those of the model as trained; a flat map has none."""
    language, values = english(), []
    for one, other in zip(explanations, found["as trained"][method], strict=True):
        for word, before in zip(one.words, other.words, strict=True):
            if language.kind(word.text) == "noun":
                spread = word.map.std() * before.map.std()
                together = ((word.map - word.map.mean()) * (before.map - before.map.mean())).mean()
                values.append(together / spread if spread > 1e-9 else 0.0)
    return round(float(np.mean(values)), 3)


if __name__ == "__main__":
    main()
