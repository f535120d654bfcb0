"""Uploads: the files of a form, written as they come and gone at once if the rest does not; opens no file of others."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ercr.web.asgi import Message, Receive, Refused, declared_length, header
from ercr.web.folder import Folder, Full, blocks_for, disk_use
from ercr.web.limits import Limits

_FORM = 100_000  # bytes of a form around an upload
_PARTS = 8  # files and fields of one form
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_BROKEN = "The form cannot be read: send the file as multipart/form-data, in a field named 'files'."


async def receive_upload(scope: Message, receive: Receive, folder: Folder, limits: Limits) -> list[str]:
    """The paths of the files in a form, all of them whole; nothing stays of a form that is refused or broken off."""
    length = declared_length(scope, limits.upload_bytes + _FORM, f"{limits.upload_mb:g} MB")
    boundary = _boundary(header(scope, b"content-type"))
    try:
        return await _receive(receive, length, boundary, folder, limits)
    except Full as full:
        raise Refused(507, str(full)) from None


async def _receive(receive: Receive, length: int, boundary: bytes, folder: Folder, limits: Limits) -> list[str]:
    least = _PARTS * blocks_for(0)
    # room is kept for what has come: who announces much and sends nothing takes none
    with folder.promise(least, likely=least + blocks_for(length)) as promise, _Form(boundary, folder, limits) as form:
        more, seen = True, 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The connection ended before the body did.")
            body = bytes(message.get("body", b""))
            seen += len(body)
            if seen > length:
                raise Refused(413, "The body is longer than its Content-Length.")
            promise.grow_to(least + blocks_for(seen))
            form.feed(body)
            more = message.get("more_body", False)
        paths = form.finish()
        promise.kept = sum(disk_use(path.parent) for path in paths)
        return [str(path) for path in paths]


def _boundary(content_type: str) -> bytes:
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise Refused(415, "Send the file as multipart/form-data, in a field named 'files'.")
    return boundary


class _Form:
    """A form being read. Leaving it before it is finished removes what was written."""

    def __init__(self, boundary: bytes, folder: Folder, limits: Limits) -> None:
        from python_multipart.multipart import MultipartParser

        names = (
            "part_begin",
            "header_field",
            "header_value",
            "header_end",
            "headers_finished",
            "part_data",
            "part_end",
        )
        callbacks: Any = {f"on_{name}": getattr(self, f"_{name}") for name in names}
        callbacks["on_end"] = self._end
        self._parser = MultipartParser(boundary, callbacks)
        self._folder = folder
        self._limits = limits
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._file: BinaryIO | None = None
        self._written = 0
        self._ended = self._finished = False
        self._paths: list[Path] = []

    def __enter__(self) -> _Form:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if not self._finished:
            for path in self._paths:
                shutil.rmtree(path.parent, ignore_errors=True)

    def feed(self, data: bytes) -> None:
        from python_multipart.exceptions import FormParserError

        try:
            self._parser.write(data)
        except FormParserError:
            raise Refused(400, _BROKEN) from None
        except OSError:
            raise Refused(507, "The server cannot store more: its disk is full.") from None

    def finish(self) -> list[Path]:
        """The files, if the form is whole."""
        if not self._ended or not self._paths:
            raise Refused(400, _BROKEN)
        self._finished = True
        return self._paths

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _PARTS:
            raise Refused(413, f"A form may hold {_PARTS} parts at most.")
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _headers_finished(self) -> None:
        from python_multipart.multipart import parse_options_header

        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if options.get(b"name") != b"files" or b"filename" not in options:
            return  # a field of a form: read and dropped
        # the name is a visitor's: nothing but its ending is used
        ending = _SUFFIX.search(options[b"filename"].decode("latin-1"))
        place = self._folder.path / secrets.token_hex(16)
        place.mkdir()
        self._paths.append(place / f"picture{ending[0].lower() if ending else ''}")
        self._file, self._written = open(self._paths[-1], "xb", buffering=0), 0  # noqa: SIM115 - parts open and close

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            return
        self._written += end - start
        if self._written > self._limits.upload_bytes:
            raise Refused(413, f"The file is larger than the {self._limits.upload_mb:g} MB allowed.")
        rest = memoryview(data)[start:end]
        while rest:
            rest = rest[os.write(self._file.fileno(), rest) :]

    def _part_end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end(self) -> None:
        self._ended = True
