"""Uploads as multipart forms: files are written while they arrive and removed if the form is not complete."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ercr.web.asgi import Message, Receive, Refused, declared_length, header
from ercr.web.folder import Folder, NoSpace, blocks_for, disk_use
from ercr.web.limits import Limits

_FORM_OVERHEAD = 100_000  # bytes of a form besides its files
_MAX_PARTS = 8  # files and fields of one form
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_INVALID_FORM = "The form cannot be read: send the file as multipart/form-data, in a field named 'files'."


async def receive_upload(scope: Message, receive: Receive, folder: Folder, limits: Limits) -> list[str]:
    """The paths of the files in a form; of a form that is refused or incomplete no file stays."""
    length = declared_length(scope, limits.upload_bytes + _FORM_OVERHEAD, f"{limits.upload_mb:g} MB")
    boundary = _boundary(header(scope, b"content-type"))
    try:
        return await _receive(receive, length, boundary, folder, limits)
    except NoSpace as full:
        raise Refused(507, str(full)) from None


async def _receive(receive: Receive, length: int, boundary: bytes, folder: Folder, limits: Limits) -> list[str]:
    least = _MAX_PARTS * blocks_for(0)
    # space is reserved for what has arrived: a large Content-Length alone reserves none
    with (
        folder.reserve(least, likely=least + blocks_for(length)) as reservation,
        _Form(boundary, folder, limits) as form,
    ):
        more, seen = True, 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The connection ended before the body did.")
            body = bytes(message.get("body", b""))
            seen += len(body)
            if seen > length:
                raise Refused(413, "The body is longer than its Content-Length.")
            reservation.grow_to(least + blocks_for(seen))
            form.feed(body)
            more = message.get("more_body", False)
        paths = form.finish()
        reservation.kept = sum(disk_use(path.parent) for path in paths)
        return [str(path) for path in paths]


def _boundary(content_type: str) -> bytes:
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise Refused(415, "Send the file as multipart/form-data, in a field named 'files'.")
    return boundary


class _Form:
    """A form that is being parsed. Leaving the block before `finish` removes the files."""

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
            raise Refused(400, _INVALID_FORM) from None
        except OSError:
            raise Refused(
                507, "The server cannot store the upload, because its disk is full: try again later."
            ) from None

    def finish(self) -> list[Path]:
        """The files, if the form is complete."""
        if not self._ended or not self._paths:
            raise Refused(400, _INVALID_FORM)
        self._finished = True
        return self._paths

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Refused(413, f"A form may hold {_MAX_PARTS} parts at most.")
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
            return  # another field: parsed and ignored
        # of the client's file name only the suffix is used
        suffix = _SUFFIX.search(options[b"filename"].decode("latin-1"))
        target = self._folder.path / secrets.token_hex(16)
        target.mkdir()
        self._paths.append(target / f"picture{suffix[0].lower() if suffix else ''}")
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
