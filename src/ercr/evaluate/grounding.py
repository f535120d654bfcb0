"""The task `grounding`: for every sample, the words of the model's own answer and names that it is asked about.

Names of things that are there and of things that are not stand in answers such as "A dog.", which the model is given,
as it is given a reference caption of its picture and one of another picture. What is there is known from masks and
reference captions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from ercr.datasets.sample import Sample, Samples, all_labels, first_picture
from ercr.evaluate.rows import Failure, Row
from ercr.evaluate.schema import SIGNALS
from ercr.evaluate.word_signals import Read, read
from ercr.evaluate.worker import Loaded, Worker
from ercr.explaining.decoding import decoding
from ercr.metrics.language import Language, english
from ercr.metrics.presence import NAMELESS, Named, Names, Scene, kinds, scene, stem
from ercr.trace import Needs, trace_samples
from ercr.words import Word
from ercr.words.calibration import Calibration

_STATISTICS = 500  # samples from which the frequencies of things are counted


class GroundingWorker(Worker):
    """Evaluates parts of a run of this task."""

    def rows(self, loaded: Sequence[Loaded]) -> list[Row]:
        rows: list[Row] = []
        for index, sample in loaded:
            if isinstance(sample, Failure):
                name = self.dataset.name(index) if isinstance(self.dataset, Samples) else str(index)
                rows.append(_failed(index, name, sample))
            else:
                rows += self._rows_of(index, sample)
            self._move(1.0)
        return rows

    def _rows_of(self, index: int, sample: Sample) -> list[Row]:
        try:
            return [*self._words(index, sample)]
        except Exception as error:
            return [_failed(index, sample.id, Failure.of("model", error))]

    def _words(self, index: int, sample: Sample) -> Iterator[Row]:
        known = scene(all_labels(sample), sample.categories, sample.references, self._language)
        names = self._names.draw(known, self.plan.names, np.random.default_rng([index, 0]))
        other = self._next(index)
        adapter = self.explainer.adapter
        ready = self.explainer.runs.ready(sample.image, sample.prompt, None)
        told: list[tuple[str, str | None, Tensor]] = [("own", None, self._own_answer(ready.request))]
        told += [("given", drawn, adapter.encode_answer(text)) for drawn, text in _captions(sample, other)]
        told = [one for one in told if len(one[2])]
        answers = [answer for _, _, answer in told] + [adapter.encode_answer(_asking(name.text)) for name in names]
        picture = None if self.plan.signals == "own" else first_picture(other)
        found = read(self.explainer, ready, answers, self._calibration, picture) if answers else []
        head = {"index": index, "sample": sample.id, "status": "ok"}
        for (source, drawn, _), one in zip(told, found, strict=False):
            facts = {**head, "source": source, "drawn": drawn}
            yield from _word_rows(facts, one, known, sample.prompt, self._language)
        for name, one in zip(names, found[len(told) :], strict=True):
            yield _name_row(head, name, known.areas.get(name.text), one)

    def _next(self, index: int) -> Sample:
        """The sample behind this one that can be read; it stands for any other."""
        for step in range(1, len(self.dataset)):
            try:
                return self.dataset[(index + step) % len(self.dataset)]
            except Exception:  # a damaged sample fails on its own
                continue
        return self.dataset[index]

    def _own_answer(self, request: Any) -> Tensor:
        options = decoding(self.plan.max_new_tokens, None)
        trace = trace_samples(self.explainer.adapter, [request], Needs(top=1), options)[0]
        return trace.ids[trace.input_length :]

    @cached_property
    def _language(self) -> Language:
        return english()

    @cached_property
    def _calibration(self) -> Calibration:
        return self.explainer.runs.calibration(None)

    @cached_property
    def _names(self) -> Names:
        """Names to ask about, by what the dataset's first samples hold."""

        def scenes() -> Iterator[Scene]:
            for index in range(min(len(self.dataset), _STATISTICS)):
                try:
                    sample = self.dataset[index]
                except Exception:  # a damaged sample fails on its own
                    continue
                yield scene(all_labels(sample), sample.categories, sample.references, self._language)

        return Names(scenes(), self._language)


def _asking(name: str) -> str:
    return f"{'An' if name[:1].lower() in 'aeiou' else 'A'} {name}."


def _captions(sample: Sample, other: Sample) -> Iterator[tuple[str, str]]:
    """A reference caption of the picture and one of another picture, as sentences."""
    for drawn, text in (("caption", sample.references[:1]), ("other caption", other.references[:1])):
        if bare := " ".join("".join(text).split()).rstrip(" ."):
            yield drawn, f"{bare[0].upper()}{bare[1:]}."


def _word_rows(head: Row, found: Read, known: Scene, prompt: Any, language: Language) -> Iterator[Row]:
    """A row for every word of an answer; the words of a category's name make one."""
    said = {stem(word, language) for word in prompt.split()} if isinstance(prompt, str) else set()
    answer = "".join(token.text for word in found.words for token in word.tokens).strip()
    place = 0
    while place < len(found.words):
        count = _length(found.words[place:], known, language)
        part = found.words[place : place + count]
        text = " ".join(word.text for word in part)
        kind = "noun" if count > 1 else language.kind(text)
        noun = stem("-".join(word.text for word in part), language)
        judged = kind == "noun" and noun not in NAMELESS
        there, by = known.judge(noun, language) if judged else (None, None)
        yield {
            **head,
            **_numbers(found, place, place + count),
            **{"answer": answer, "text": text, "there": there, "by": by, "kind": kind},
            **{"word": place, "words": len(found.words), "repeated": noun in said},
        }
        said.add(noun)
        place += count


def _length(words: Sequence[Word], known: Scene, language: Language) -> int:
    """How many words name one thing: two, if they are a category's name or another word for one."""
    if len(words) > 1:
        both = "-".join(word.text.lower() for word in words[:2])
        names = {stem(name, language) for name in known.vocabulary}
        if stem(both, language) in names or stem(both, language) in kinds().same:
            return 2
    return 1


def _name_row(head: Row, name: Named, area: float | None, found: Read) -> Row:
    """The row of a name in an answer of an article, the name and a full stop."""
    return {
        **head,
        **_numbers(found, 1, len(found.words) - 1),
        **{"source": "name", "answer": _asking(name.text), "text": name.text, "drawn": name.drawn, "area": area},
        **{"there": name.there, "kind": "noun", "word": 1, "words": len(found.words), "repeated": False},
    }


def _numbers(found: Read, start: int, stop: int) -> Row:
    """The grounding and the signals of a word, or of some words that name one thing."""
    whole, signals = found.name(start, stop)
    return {
        **{name: signals.get(name) for name in SIGNALS},
        **{"seen": whole.seen, "verdict": whole.verdict, "content": whole.content},
    }


def _failed(index: int, name: str, failure: Failure) -> Row:
    return {"index": index, "sample": name, "status": "failed", "reason": failure.reason}
