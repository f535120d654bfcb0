"""Downloads pictures and videos from http and https addresses for library and commands; the server never does."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from ercr.errors import ImageError
from ercr.version import __version__

MAX_BYTES = 64 * 2**20
MAX_REDIRECTS = 5
_TIMEOUT = 60.0  # seconds for the whole download
_LARGER = 8  # times as much of both for a video
_IDLE_TIMEOUT = 15.0  # seconds without a byte
_SCHEME = re.compile(
    r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE
)  # two letters or more, because one letter is a Windows drive


def is_address(source: object) -> bool:
    return isinstance(source, str) and _SCHEME.match(source) is not None


def download(address: str, kind: str = "picture") -> bytes:
    """The bytes at an address, within limits of size and time; `kind` is what is expected there: picture, video."""
    scheme = _SCHEME.match(address)
    if scheme is None or scheme[1].lower() not in ("http", "https"):
        raise ImageError(f"{address} cannot be opened: {kind}s come from files, or from http and https addresses.")
    times = _LARGER if kind == "video" else 1
    timeout = times * _TIMEOUT
    found: list[bytes | Exception] = []

    def work() -> None:
        try:
            found.append(_read(address, kind, times * MAX_BYTES, timeout))
        except Exception as error:
            found.append(error)

    # a thread, because the socket's timeout does not end a server that sends its headers byte by byte
    thread = threading.Thread(target=work, name="ercr-download", daemon=True)
    thread.start()
    thread.join(timeout)
    if not found:
        raise ImageError(
            f"{address} took longer than {timeout:g} seconds: download the {kind} yourself and give the file."
        )
    if isinstance(found[0], Exception):
        raise _as_image_error(address, found[0]) from None
    return found[0]


def _read(address: str, kind: str, most: int, timeout: float) -> bytes:
    accept = "image/*" if kind == "picture" else "video/*"
    request = urllib.request.Request(address, headers={"User-Agent": f"ercr/{__version__}", "Accept": accept})
    end = time.monotonic() + timeout
    with _opener().open(request, timeout=_IDLE_TIMEOUT) as response:
        parts: list[bytes] = []
        size = 0
        while part := response.read1(2**16):
            parts.append(part)
            size += len(part)
            if size > most:
                raise ImageError(f"{address} holds more than {most // 2**20} MB: give a smaller {kind}.")
            if time.monotonic() > end:
                raise TimeoutError
        whole: Any = response.headers.get("Content-Length")
        if whole is not None and str(whole).isdigit() and size < int(whole):
            raise ImageError(f"{address} ended after {size} of {whole} bytes: try again.")
    return b"".join(parts)


class _FewRedirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MAX_REDIRECTS
    max_repeats = 2


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http and https only, so that no redirect leads to a file or another protocol."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _FewRedirects(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _as_image_error(address: str, error: Exception) -> ImageError:
    if isinstance(error, ImageError):
        return error
    reason = getattr(error, "reason", error)
    if isinstance(error, urllib.error.HTTPError):
        moved = "it redirects too often or to another protocol"
        detail = moved if 300 <= error.code < 400 else f"the server answered {error.code} {error.reason}"
    elif isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        detail = "the server does not answer"
    else:
        detail = str(getattr(reason, "strerror", None) or reason) or type(error).__name__
    return ImageError(f"{address} cannot be downloaded: {' '.join(detail.split())}.")
