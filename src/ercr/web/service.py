"""What the page and the API do with a request: check it, run it, and report an error in one sentence."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from ercr.errors import Cancelled, ErcrError
from ercr.explanation import Explanation
from ercr.trace.cancel import each_stopped_when, stopped_when
from ercr.web import results
from ercr.web.answer_html import AnswerView, note, report_frame, result_links
from ercr.web.folder import Folder, disk_use
from ercr.web.limits import Limits
from ercr.web.listeners import Listeners
from ercr.web.model_cache import ModelCache
from ercr.web.task_runner import PartialAnswer, run_task
from ercr.web.tasks import Task, TaskChecker

log = logging.getLogger("ercr.web")
View = tuple[str, str, str]  # HTML of the answer, of the strip of maps and of the report
Answer = tuple[str, list[dict[str, Any]], str]  # text, words, path of the report


class Service:
    """Explains pictures for visitors.

    `make_error` turns a sentence into the exception that the page shows. `current_event` returns the session and the
    event that are being served; their work is stopped when `listeners` says that it is abandoned.
    """

    def __init__(
        self,
        folder: Folder,
        limits: Limits,
        model_cache: ModelCache,
        examples: list[Path],
        make_error: Callable[[str], Exception],
        listeners: Listeners | None = None,
        current_event: Callable[[], tuple[str, str] | None] = lambda: None,
    ) -> None:
        from ercr.methods import methods

        self.folder = folder
        self.limits = limits
        self.model_cache = model_cache
        self.examples = examples
        self.methods = {name: method.title for name, method in methods().items()}
        self._checker = TaskChecker(folder, limits, tuple(model_cache.names), tuple(self.methods))
        self._make_error = make_error
        self._listeners = listeners or Listeners()
        self._current_event = current_event
        self._decoding = threading.Semaphore(limits.concurrent)  # limits memory: decoded pictures are large

    def upload_error(self, image: Any) -> str | None:
        """The error in an upload as one sentence, or None."""
        with self._decoding:
            try:
                self._checker.picture(image)
            except Exception as error:
                return error_message(error)
        return None

    def example(self, index: Any) -> str | None:
        """The path of an example that was clicked, or None for an unknown index."""
        known = isinstance(index, int) and 0 <= index < len(self.examples)
        return str(self.examples[index]) if known else None

    def stream(
        self, image: Any, prompt: Any, sentence: Any, model: Any, method: Any, other: Any, length: Any, more: Any = None
    ) -> Iterator[View]:
        """Views of the answer while it is generated, then the report."""
        try:
            given = sentence if isinstance(sentence, str) and sentence.strip() else None
            options = {"model": model, "method": method, "other": other, "length": length, "more": more}
            task = self._checker.task(image, prompt, given, **options)
        except Exception as error:
            raise self._page_error(error_message(error)) from None
        yield note("Explaining …" if self.model_cache.loaded(task.model) else "Loading the model …"), "", ""
        try:
            with self._until_abandoned() as abandoned:
                yield from self._views(task, abandoned)
        except Cancelled as error:
            raise self._page_error(error_message(error)) from None
        except Exception as error:
            message = error_message(error)
            yield note(message, "trouble"), "", ""  # replaces "Explaining …"
            raise self._page_error(message) from None

    def _views(self, task: Task, abandoned: Callable[[], bool]) -> Iterator[View]:
        explainer = self.model_cache.get(task.model)
        began, view = time.monotonic(), None
        for state in each_stopped_when(abandoned, run_task(task, explainer)):
            if isinstance(state, PartialAnswer):
                assert state.shown is not None
                view = view or AnswerView(state.shown)
                yield *view.update(state), ""
                continue
            place = self.folder.new_result()
            with self.folder.reserve(results.likely_size(state)) as reservation:
                files = results.write_all(state, place)
                reservation.kept = disk_use(place)
            yield (
                result_links(place.name, files, _summary(state, time.monotonic() - began)),
                "",
                report_frame(place.name),
            )

    def explain(self, image: Any, prompt: Any, model: Any, method: Any, max_new_tokens: Any) -> Answer:
        """Let the model answer a prompt about an image, and measure the image evidence for every word it says.

        Returns the answer, its words with probability, grounding (whether each was seen or guessed), evidence (0 to 1),
        strength, map (rows of cells) and the box in pixels of the picture that the map covers, and a self-contained
        HTML report.
        """
        return self._answer(image, prompt, model=model, method=method, length=max_new_tokens)

    def explain_several(self, images: Any, prompt: Any, model: Any, method: Any, max_new_tokens: Any) -> Answer:
        """Let the model answer a prompt about several images, in their order, and show which of them each word is from.

        Returns the answer, its words with a map for each image and the share of the evidence that each image has, and a
        self-contained HTML report.
        """
        return self._answer(None, prompt, model=model, method=method, length=max_new_tokens, more=images)

    def explain_sentence(self, image: Any, sentence: Any, prompt: Any, model: Any, method: Any) -> Answer:
        """Measure the image evidence for every word of a given sentence, as if the model had answered with it.

        Returns the sentence, its words with the probability the model gives them, whether each was seen or guessed,
        their evidence (0 to 1), strength, map and box, and a self-contained HTML report.
        """
        return self._answer(image, prompt, sentence, model=model, method=method)

    def compare(
        self, image: Any, prompt: Any, model: Any, method: Any, other_method: Any, max_new_tokens: Any
    ) -> Answer:
        """Explain one answer of the model by two methods.

        Returns the answer, its words with probability, box, and evidence and map by each method, and one self-contained
        HTML report with both side by side.
        """
        return self._answer(image, prompt, model=model, method=method, other=other_method, length=max_new_tokens)

    def _answer(self, *asked: Any, **options: Any) -> Answer:
        try:
            task = self._checker.task(*asked, **options)
            explainer = self.model_cache.get(task.model)
            with self._until_abandoned() as abandoned, stopped_when(abandoned):
                explanations = explainer.explain_all(
                    task.image,
                    task.prompt,
                    methods=task.methods,
                    answer=task.sentence,
                    max_new_tokens=task.length,
                    candidates=True,
                    grounding=True,
                )
            place = self.folder.new_result()
            with self.folder.reserve(results.likely_size(explanations)) as reservation:
                report = results.write_report(explanations, place)
                reservation.kept = disk_use(place)
            return explanations[0].text, results.words(explanations), str(report)
        except Exception as error:
            raise self._page_error(error_message(error)) from None

    @contextmanager
    def _until_abandoned(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether the work in this block is abandoned; always False for unknown clients."""
        event = self._current_event()
        if event is None:
            yield lambda: False
            return
        with self._listeners.running(*event) as abandoned:
            yield abandoned

    def _page_error(self, message: str) -> Exception:
        # the page shows the message as HTML, and the message may quote the visitor
        return self._make_error(escape(message, quote=False))


def error_message(error: Exception) -> str:
    """One sentence for a visitor: what to change, or that the server failed; the log then has the details."""
    if isinstance(error, ErcrError):
        message = str(error)
    elif "out of memory" in str(error).lower() or isinstance(error, MemoryError):
        _release_memory()
        message = "The server ran out of memory: try a smaller picture, a shorter answer or another method."
    else:
        log.error("A request failed.", exc_info=error)
        message = "The server failed, and its log shows the error: try another picture or method."
    return " ".join(message.split())


def _release_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _summary(explanations: tuple[Explanation, ...], seconds: float) -> str:
    words = len(explanations[0].words)
    if not words:
        return "The model said nothing."
    return f"{words} word{'s' * (words != 1)} explained in {seconds:.1f} s."
