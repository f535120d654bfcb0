"""Turns parts of an album into rows and pages with one loaded model; a picture that fails affects its own row only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ercr.album.pages import write_page
from ercr.album.plan import AlbumPlan
from ercr.album.rows import Row, failed, row
from ercr.album.sources import Entry
from ercr.evaluate.plan import with_model
from ercr.evaluate.rows import Failure
from ercr.evaluate.run import Run
from ercr.evaluate.work import Done
from ercr.explaining.explainer import Explainer
from ercr.explaining.grounding import Grounds
from ercr.explaining.sizes import BatchSize, Sizes
from ercr.explanation import Explanation
from ercr.trace.memory import free_memory


class AlbumWorker:
    """Explains parts of an album with one model; `moved` gets the number of pictures since the last call."""

    def __init__(
        self,
        explainer: Explainer,
        source: Sequence[Entry],
        plan: AlbumPlan,
        settings: Mapping[str, Any],
        run: Run,
        batch_size: BatchSize,
        moved: Callable[[float], None] = lambda pictures: None,
    ) -> None:
        self.explainer, self.source, self.plan, self.run, self.moved = explainer, source, plan, run, moved
        self.sizes = Sizes(batch_size, explainer.adapter)
        self.parts = plan.parts(source)
        if run.threads is not None:
            torch.set_num_threads(run.threads)  # on a CPU the number of threads affects the last digits
        prepared_on = explainer.adapter.device.type if explainer.adapter.for_bulk.takes_device_pictures else "cpu"
        run.claim({**with_model(settings, explainer), "image_device": prepared_on})

    def part(self, number: int, following: int | None = None) -> Done:
        """Compute a part and write it."""
        started, indices = time.perf_counter(), self.parts[number]
        rows = list(self._rows(indices))
        self.run.write_part(number, indices, rows)
        lost = sum(one["status"] == "failed" for one in rows)
        return Done(number, len(indices), lost, round(time.perf_counter() - started, 3))

    def _rows(self, indices: range) -> Iterator[Row]:
        entries = {index: self._entry(index) for index in indices}
        jobs = [entry for entry in entries.values() if isinstance(entry, Entry)]
        explained = iter(self._explained(jobs))
        for index, entry in entries.items():
            found = entry if isinstance(entry, Failure) else next(explained)
            known = entry if isinstance(entry, Entry) else None
            if isinstance(found, Failure):
                yield failed(index, known, self.plan.prompt, found.reason)
            else:
                assert known is not None
                if self.plan.pages:
                    write_page(self.run.path, index, found)
                yield row(index, known, self.plan.prompt, found, self.plan.maps)
            self.moved(1)

    def _entry(self, index: int) -> Entry | Failure:
        try:
            return self.source[index]
        except Exception as error:  # a damaged line or row
            return Failure.of("input", error)

    def _explained(self, entries: Sequence[Entry]) -> Iterator[Explanation | Failure]:
        """Explanations in order, or why there is none. After an error of the model, each picture runs alone."""
        done = 0
        try:
            for found in self._explain(entries, self.sizes):
                done += 1
                yield Failure.of("input", found) if isinstance(found, Exception) else found
            return
        except Exception as error:
            Failure.of("model", error)  # raises if the device was lost, which ends the run
        free_memory()  # after the handler, as the error holds the tensors of the failed attempt
        for entry in entries[done:]:
            try:
                found = next(self._explain([entry], Sizes(1, self.explainer.adapter)))
            except Exception as error:
                yield Failure.of("model", error)
                continue
            yield Failure.of("input", found) if isinstance(found, Exception) else found

    def _explain(self, entries: Sequence[Entry], sizes: Sizes) -> Iterator[Explanation | Exception]:
        jobs = ({"image": entry.picture, "prompt": entry.prompt, "answer": entry.answer} for entry in entries)
        return self.explainer.explain_iter(
            jobs,
            self.plan.prompt,
            method=self.plan.method,
            max_new_tokens=self.plan.max_new_tokens,
            batch_size=sizes,
            errors="keep",
            grounding=Grounds(calibration=self.plan.calibration) if self.plan.grounding else False,
            progress=False,
        )
