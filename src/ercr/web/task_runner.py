"""Runs a task: words and their maps while the model generates, then the explanations; knows nothing of the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ercr.explaining.explainer import Explainer
from ercr.explaining.streaming import Step
from ercr.explanation import Explanation
from ercr.image.gallery import Shown
from ercr.image.geometry import Floats
from ercr.image.images import LoadedImage
from ercr.image.pieces import AnyGeometry
from ercr.methods import resolve
from ercr.web.tasks import Task
from ercr.words.pieces import group

_UPDATE_INTERVAL = 0.1  # seconds between two updates: faster ones cost as much and nobody sees them


@dataclass
class PartialAnswer:
    """The tokens that were generated so far, with their maps."""

    geometry: AnyGeometry
    texts: list[str] = field(default_factory=list)
    maps: list[Floats] = field(default_factory=list)  # whose peaks are their strengths
    complete: bool = False
    shown: Shown | None = None  # what the maps lie over

    def add(self, step: Step) -> None:
        if not step.special:
            peak = float(step.map.max(initial=0.0))
            self.texts.append(step.text)
            self.maps.append(step.map * (step.strength / peak if peak > 0 else 0.0))

    def words(self) -> list[tuple[str, Floats]]:
        """Words and their maps; 1 is what the strongest word so far reaches. The last word may still grow."""
        top = max((float(map_.max(initial=0.0)) for map_ in self.maps), default=0.0) or 1.0
        return [
            ("".join(self.texts[i] for i in indices), np.asarray(np.max([self.maps[i] for i in indices], 0) / top))
            for indices in group(self.texts)
        ]


def run_task(task: Task, explainer: Explainer) -> Iterator[PartialAnswer | tuple[Explanation, ...]]:
    """The answer so far, several times, then one explanation per method, all of the same answer."""
    shown: Shown = task.image if isinstance(task.image, LoadedImage) else _opened(task, explainer)
    if task.sentence is not None or not _streams(task.methods[0]):
        yield tuple(
            explainer.explain_all(
                shown,
                task.prompt,
                methods=task.methods,
                answer=task.sentence,
                max_new_tokens=task.length,
                candidates=True,
                grounding=True,
            )
        )
        return
    extras: Any = {"candidates": True, "grounding": True}
    stream = explainer.stream(shown, task.prompt, method=task.methods[0], max_new_tokens=task.length, **extras)
    partial: PartialAnswer | None = None
    updated = 0.0
    for step in stream:
        partial = partial or PartialAnswer(stream.geometry, shown=shown)
        partial.add(step)
        if time.monotonic() - updated >= _UPDATE_INTERVAL:
            yield partial
            updated = time.monotonic()
    if partial is not None:
        partial.complete = True
        yield partial
    first = stream.explanation()
    # as token ids, because a tokenizer may split the same words differently
    said: Any = [token.id for token in first.text_tokens if token.kind == "answer"]
    others = [explainer.explain(shown, task.prompt, answer=said, method=name, **extras) for name in task.methods[1:]]
    for other in others:
        # the answer was passed as token ids, but the model did generate it
        other.provenance.update({key: first.provenance[key] for key in ("answer", "generation")})
    yield (first, *others)


def _opened(task: Task, explainer: Explainer) -> Shown:
    """Pictures and videos, read once for the model and for the page; the model's rule chooses the frames."""
    return explainer.runs.opened(task.image, task.prompt).loaded


def _streams(name: str) -> bool:
    method, settings = resolve(name)
    return method.streams(settings)
