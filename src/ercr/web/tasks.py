"""What a visitor asks for, checked: raw values from a page or an API call in, a task or one clear sentence out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ercr.errors import InputError, nearest
from ercr.image.images import LoadedImage
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.uploads import read_upload


@dataclass(frozen=True)
class Task:
    """One image, one prompt, one model; one method, or two to compare; generated words or given ones."""

    image: LoadedImage
    prompt: str
    model: str
    methods: tuple[str, ...]
    sentence: str | None
    length: int


@dataclass(frozen=True)
class Desk:
    """Where requests are checked before they cost anything."""

    folder: Folder
    limits: Limits
    models: tuple[str, ...]
    methods: tuple[str, ...]

    def task(
        self,
        image: Any,
        prompt: Any,
        sentence: Any = None,
        *,
        model: Any = None,
        method: Any = "ercr",
        other: Any = None,
        length: Any = None,
    ) -> Task:
        """A task from what a client sent, which may be anything; texts come first because they cost least."""
        most = self.limits.answer_tokens
        if isinstance(length, bool) or not isinstance(length, int | float | None) or length != length:
            raise InputError("The longest answer must be a number of tokens.")
        if length is not None and not 1 <= length <= most:
            raise InputError(f"The longest answer must lie between 1 and {most} tokens.")
        methods = [self._one_of(method, self.methods, "method")]
        if other not in (None, ""):
            methods.append(self._one_of(other, self.methods, "method"))
            if methods[0] == methods[1]:
                raise InputError("Choose two different methods to compare.")
        return Task(
            prompt=self._text(prompt, "prompt", "ask the model something, such as 'Describe this image.'"),
            sentence=None if sentence is None else self._text(sentence, "sentence", "write at least one word"),
            model=self._one_of(model, self.models, "model") if model is not None else self.models[0],
            methods=tuple(methods),
            length=most if length is None else int(length),
            image=self.picture(image),
        )

    def picture(self, sent: Any) -> LoadedImage:
        """The picture behind what a client sent, which must name a file that was uploaded here."""
        if sent is None:
            raise InputError("There is no picture yet: choose, paste or take one first.")
        path = sent.get("path") if isinstance(sent, dict) else None
        if not isinstance(path, str) or not self.folder.holds(path):
            raise InputError("The picture must be a file uploaded to this server: choose it again.")
        return read_upload(Path(path), self.limits)

    def _text(self, text: Any, what: str, advice: str) -> str:
        if not isinstance(text, str):
            raise InputError(f"The {what} must be text.")
        if not text.strip():
            raise InputError(f"The {what} is empty: {advice}.")
        if len(text) > self.limits.prompt_characters:
            most = self.limits.prompt_characters
            raise InputError(f"The {what} has {len(text):,} characters, and {most:,} are allowed: shorten it.")
        # half a surrogate pair cannot be encoded, neither for the model nor for a file
        return text.encode("utf-8", "replace").decode()

    def _one_of(self, name: Any, known: tuple[str, ...], what: str) -> str:
        if not isinstance(name, str):
            raise InputError(f"The {what} must be one of {', '.join(known)}.")
        if name not in known:
            close = nearest(name[:80], known)
            raise InputError(f"There is no {what} {name[:80]!r} here; there are {', '.join(known)}.{close}")
        return name
