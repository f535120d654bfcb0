"""Checks raw values from the page or an API call and makes a task of them, or raises an error of one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ercr.errors import InputError, nearest
from ercr.image.clips import Clip, is_video_name
from ercr.image.images import LoadedImage
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.uploads import read_upload, read_video


@dataclass(frozen=True)
class Task:
    """Pictures, one prompt, one model; one method, or two to compare; generated words or given ones."""

    image: LoadedImage | list[LoadedImage | Clip]
    prompt: str
    model: str
    methods: tuple[str, ...]
    sentence: str | None
    length: int


@dataclass(frozen=True)
class TaskChecker:
    """Checks requests before they take time or memory."""

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
        more: Any = None,
    ) -> Task:
        """A task from values of any type that a client sent; the picture, which takes most time, is checked last."""
        most = self.limits.answer_tokens
        if isinstance(length, bool) or not isinstance(length, int | float | None) or length != length:
            raise InputError("The longest answer must be given as a number of tokens.")
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
            image=self._shown(image, more),
        )

    def _shown(self, image: Any, more: Any) -> LoadedImage | list[LoadedImage | Clip]:
        """The picture, or a list of all pictures and videos."""
        files = more if isinstance(more, list) else [] if more is None else [more]
        if not files:
            return self.picture(image)
        count = len(files) + (image is not None)
        if count > self.limits.pictures:
            raise InputError(f"Give 1 to {self.limits.pictures} pictures, not {count}.")
        first = [] if image is None else [self.picture(image)]
        found = [*first, *(self._file(value) for value in files)]
        # together they may have as many pixels as one
        pixels = sum(picture.rgb.width * picture.rgb.height for picture in found if isinstance(picture, LoadedImage))
        if pixels > self.limits.pixels:
            raise InputError(
                f"The pictures have {pixels / 1e6:.1f} megapixels together, and {self.limits.pixels / 1e6:g} are "
                f"allowed: scale them down."
            )
        return found

    def _file(self, value: Any) -> LoadedImage | Clip:
        path = self._path(value)
        if not is_video_name(path):
            return read_upload(path, self.limits)
        if not self.limits.videos:
            raise InputError("This server takes no videos: choose pictures.")
        return read_video(path, self.limits)

    def picture(self, value: Any) -> LoadedImage:
        """The picture that a client named, which must be a file uploaded to this server."""
        if value is None:
            raise InputError("There is no picture yet: choose, paste or take one first.")
        return read_upload(self._path(value), self.limits)

    def _path(self, value: Any) -> Path:
        path = value.get("path") if isinstance(value, dict) else None
        if not isinstance(path, str) or not self.folder.contains(path):
            raise InputError("The picture must be a file uploaded to this server: choose it again.")
        return Path(path)

    def _text(self, text: Any, what: str, advice: str) -> str:
        if not isinstance(text, str):
            raise InputError(f"The {what} must be text.")
        if not text.strip():
            raise InputError(f"The {what} is empty: {advice}.")
        if len(text) > self.limits.prompt_characters:
            most = self.limits.prompt_characters
            raise InputError(f"The {what} has {len(text):,} characters, and {most:,} are allowed: shorten it.")
        # lone surrogates cannot be encoded, neither for the model nor for a file
        return text.encode("utf-8", "replace").decode()

    def _one_of(self, name: Any, known: tuple[str, ...], what: str) -> str:
        if not isinstance(name, str):
            raise InputError(f"The {what} must be one of {', '.join(known)}.")
        if name not in known:
            close = nearest(name[:80], known)
            raise InputError(f"This server has no {what} {name[:80]!r}; choose one of {', '.join(known)}.{close}")
        return name
