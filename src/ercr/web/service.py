"""What the page and the API do with a request: check it, carry it out, and say in one sentence what went wrong."""

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
from ercr.web.folder import Folder, disk_use
from ercr.web.limits import Limits
from ercr.web.live import Live, framed, kept, note
from ercr.web.presence import Presence
from ercr.web.shelf import Shelf
from ercr.web.spoken import Speech, carry_out
from ercr.web.tasks import Desk, Task

log = logging.getLogger("ercr.web")
View = tuple[str, str, str]  # HTML of the answer, of the strip of maps and of the report
Answer = tuple[str, list[dict[str, Any]], str]  # text, words, path of the report


class Service:
    """Explains for visitors.

    `refuse` turns a sentence into the error that a page shows; `visitor` names the session and the event that are
    being served, whose work ends when `presence` says that nobody waits for it.
    """

    def __init__(
        self,
        folder: Folder,
        limits: Limits,
        shelf: Shelf,
        examples: list[Path],
        refuse: Callable[[str], Exception],
        presence: Presence | None = None,
        visitor: Callable[[], tuple[str, str] | None] = lambda: None,
    ) -> None:
        from ercr.methods import methods

        self.folder = folder
        self.limits = limits
        self.shelf = shelf
        self.examples = examples
        self.methods = {name: method.title for name, method in methods().items()}
        self._desk = Desk(folder, limits, tuple(shelf.names), tuple(self.methods))
        self._shown_error = refuse
        self._presence = presence or Presence()
        self._visitor = visitor
        self._looking = threading.Semaphore(limits.concurrent)  # decoded pictures are large

    def trouble_with(self, image: Any) -> str | None:
        """What is wrong with an upload, if anything."""
        with self._looking:
            try:
                self._desk.picture(image)
            except Exception as error:
                return in_one_sentence(error)
        return None

    def example(self, index: Any) -> str | None:
        """The picture of an example that was clicked, if there is one of that number."""
        known = isinstance(index, int) and 0 <= index < len(self.examples)
        return str(self.examples[index]) if known else None

    def watch(
        self, image: Any, prompt: Any, sentence: Any, model: Any, method: Any, other: Any, length: Any
    ) -> Iterator[View]:
        """Views of the answer while it is spoken, then the report."""
        try:
            given = sentence if isinstance(sentence, str) and sentence.strip() else None
            task = self._desk.task(image, prompt, given, model=model, method=method, other=other, length=length)
        except Exception as error:
            raise self._refusal(in_one_sentence(error)) from None
        yield note("Explaining …" if self.shelf.loaded(task.model) else "Loading the model …"), "", ""
        try:
            with self._while_wanted() as unwanted:
                yield from self._views(task, unwanted)
        except Cancelled as error:
            raise self._refusal(in_one_sentence(error)) from None
        except Exception as error:
            trouble = in_one_sentence(error)
            yield note(trouble, "trouble"), "", ""  # in place of what was promised
            raise self._refusal(trouble) from None

    def _views(self, task: Task, unwanted: Callable[[], bool]) -> Iterator[View]:
        explainer = self.shelf.get(task.model)
        began, live = time.monotonic(), Live(task.image.rgb)
        for state in each_stopped_when(unwanted, carry_out(task, explainer)):
            if isinstance(state, Speech):
                yield *live.update(state), ""
                continue
            place = self.folder.new_result()
            with self.folder.promise(results.likely_size(state)) as promise:
                files = results.write_all(state, place)
                promise.kept = disk_use(place)
            yield kept(place.name, files, _summary(state, time.monotonic() - began)), "", framed(place.name)

    def explain(self, image: Any, prompt: Any, model: Any, method: Any, max_new_tokens: Any) -> Answer:
        """Let the model answer a prompt about an image, and measure the image evidence for every word it says.

        Returns the answer, its words with probability, evidence (0 to 1), map (rows of cells) and the box in pixels of
        the picture that the map covers, and a self-contained HTML report.
        """
        return self._answer(image, prompt, model=model, method=method, length=max_new_tokens)

    def explain_sentence(self, image: Any, sentence: Any, prompt: Any, model: Any, method: Any) -> Answer:
        """Measure the image evidence for every word of a given sentence, as if the model had answered with it.

        Returns the sentence, its words with the probability the model gives them, their evidence (0 to 1), map and box,
        and a self-contained HTML report. A word without evidence or with a low probability may be invented.
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
            task = self._desk.task(*asked, **options)
            explainer = self.shelf.get(task.model)
            with self._while_wanted() as unwanted, stopped_when(unwanted):
                explanations = explainer.explain_all(
                    task.image, task.prompt, methods=task.methods, answer=task.sentence, max_new_tokens=task.length
                )
            place = self.folder.new_result()
            with self.folder.promise(results.likely_size(explanations)) as promise:
                report = results.write_report(explanations, place)
                promise.kept = disk_use(place)
            return explanations[0].text, results.words(explanations), str(report)
        except Exception as error:
            raise self._refusal(in_one_sentence(error)) from None

    @contextmanager
    def _while_wanted(self) -> Iterator[Callable[[], bool]]:
        """Whether anybody still waits for what runs in here; who is not known, waits."""
        served = self._visitor()
        if served is None:
            yield lambda: False
            return
        with self._presence.running(*served) as unwanted:
            yield unwanted

    def _refusal(self, trouble: str) -> Exception:
        # pages show an error's message as HTML, and a message may quote the visitor
        return self._shown_error(escape(trouble, quote=False))


def in_one_sentence(error: Exception) -> str:
    """One sentence for a visitor: what to change, or that it is not their doing, which the log then explains."""
    if isinstance(error, ErcrError):
        message = str(error)
    elif "out of memory" in str(error).lower() or isinstance(error, MemoryError):
        _release_memory()
        message = "The server ran out of memory: try a smaller picture, a shorter answer or another method."
    else:
        log.error("A request failed.", exc_info=error)
        message = "Something failed on the server, and its log says what; another picture or method may work."
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
