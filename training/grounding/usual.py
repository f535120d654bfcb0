"""Makes a calibration's table: how strongly pictures usually spell each word of a model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from ercr import Explainer
from ercr.datasets.registry import open_dataset
from ercr.datasets.sample import first_picture
from ercr.image.geometry import Floats
from ercr.trace import Needs, trace_samples
from ercr.trace.lens import vocabulary_sizes
from ercr.words.usual import Usual

PICTURES = 80  # evenly spaced ones of the dataset


@torch.no_grad()
def usual(model: str, dataset: str) -> Usual:
    explainer = Explainer.from_pretrained(model)
    sizes, means = zip(*_sizes(explainer, dataset), strict=True)
    return Usual.of(np.stack(sizes), np.stack(means))


def _sizes(explainer: Explainer, dataset: str) -> Iterator[list[Floats]]:
    adapter, samples = explainer.adapter, open_dataset(dataset)
    for index in range(0, len(samples), max(1, len(samples) // PICTURES)):
        sample = samples[index]
        request = explainer.runs.ready(first_picture(sample), sample.prompt, None).request
        (trace,) = trace_samples(adapter, [replace(request, answer=adapter.encode_answer("A"))], Needs(lens=()), {})
        assert trace.lens is not None, "it was asked for"
        yield [column.double().cpu().numpy() for column in vocabulary_sizes(adapter, trace.lens[-1])]
