"""A task carried out: words and their maps while the model speaks, then the explanations; knows no page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ercr.explaining.explainer import Explainer
from ercr.explaining.streaming import Step
from ercr.explanation import Explanation
from ercr.image.geometry import Floats, Geometry
from ercr.methods import resolve
from ercr.web.tasks import Task
from ercr.words.pieces import group

_PAUSE = 0.1  # seconds between two reports: faster ones are not seen and cost the same


@dataclass
class Speech:
    """What has been said so far."""

    geometry: Geometry
    texts: list[str] = field(default_factory=list)
    maps: list[Floats] = field(default_factory=list)
    complete: bool = False

    def hear(self, step: Step) -> None:
        if not step.special:
            self.texts.append(step.text)
            self.maps.append(step.map)

    def words(self) -> list[tuple[str, Floats]]:
        """Words and their maps, as the explanation will have them; the last one may grow until all is said."""
        return [
            ("".join(self.texts[i] for i in indices), np.asarray(np.max([self.maps[i] for i in indices], 0)))
            for indices in group(self.texts)
        ]


def carry_out(task: Task, explainer: Explainer) -> Iterator[Speech | tuple[Explanation, ...]]:
    """Reports of the speech so far, then one explanation per method, all of the same answer."""
    if task.sentence is not None or not _streams(task.methods[0]):
        yield tuple(
            explainer.explain_all(
                task.image, task.prompt, methods=task.methods, answer=task.sentence, max_new_tokens=task.length
            )
        )
        return
    stream = explainer.stream(task.image, task.prompt, method=task.methods[0], max_new_tokens=task.length)
    speech: Speech | None = None
    reported = 0.0
    for step in stream:
        speech = speech or Speech(stream.explanation().geometry)
        speech.hear(step)
        if time.monotonic() - reported >= _PAUSE:
            yield speech
            reported = time.monotonic()
    if speech is not None:
        speech.complete = True
        yield speech
    first = stream.explanation()
    # as ids, because a tokenizer may cut the same words differently; explaining takes both
    said: Any = [token.id for token in first.text_tokens if token.kind == "answer"]
    others = [explainer.explain(task.image, task.prompt, answer=said, method=name) for name in task.methods[1:]]
    for other in others:
        # it was handed over as token ids, but the model did say it
        other.provenance.update({key: first.provenance[key] for key in ("answer", "generation")})
    yield (first, *others)


def _streams(name: str) -> bool:
    method, settings = resolve(name)
    return method.streams(settings)
