"""Which requests are allowed: checks of the Host and Origin headers and of the password; reads headers only."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ercr.errors import InputError
from ercr.printable import printable
from ercr.web.asgi import Message, Refused, header

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_MIN_PASSWORD = 12  # characters
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]*:[0-9a-f:.]*")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class AccessRules:
    """Allowed host names besides the server's own, each with its port (None: any), and the password, if any."""

    allowed: frozenset[tuple[str, int | None]] = frozenset()
    password: str | None = None

    def check(self, scope: Message) -> None:
        """Raise if a request has a foreign Host or Origin header or lacks the password."""
        host = header(scope, b"host")
        if not self._is_own(_name_and_port(host, 80 if scope.get("scheme") != "https" else 443), scope):
            raise Refused(
                403,
                f"This server has no name {_quoted(host)}: use its own address, or start it with --allow-host.",
            )
        origin = header(scope, b"origin")
        if origin and not self._is_own(_origin(origin), scope):
            raise Refused(403, f"Pages from {_quoted(origin)} may not use this server.")
        if self.password is not None and not self._has_password(header(scope, b"authorization")):
            challenge = {"www-authenticate": 'Basic realm="ercr", charset="UTF-8"'}
            raise Refused(401, "This server requires a password; enter any user name.", headers=challenge)

    def _is_own(self, host: tuple[str, int] | None, scope: Message) -> bool:
        if host is None:
            return False
        name, port = host
        if (name, port) in self.allowed or (name, None) in self.allowed:
            return True
        # the local address of the connection; a server on all addresses accepts the one that the visitor used
        address, own_port = scope.get("server") or ("", None)
        return name in (*_LOCAL_NAMES, address) and port == own_port

    def _has_password(self, authorization: str) -> bool:
        kind, _, encoded = authorization.partition(" ")
        if kind.lower() != "basic" or self.password is None:
            return False
        try:
            _, _, given = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        return secrets.compare_digest(given, self.password.encode())


def allowed_hosts(names: list[str]) -> frozenset[tuple[str, int | None]]:
    """The names and ports given with `--allow-host`, checked."""
    found = set()
    for name in names:
        host = _name_and_port(name, 0)
        if host is None:
            raise InputError(f"--allow-host takes a name or name:port, such as maps.example.org, not {name!r}.")
        found.add((host[0], host[1] or None))
    return frozenset(found)


def read_password(path: Path) -> str:
    """The password in a file, which must hold one line."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = file.read(4096).strip().splitlines()
    except (OSError, ValueError):
        raise InputError(f"--password-file: {path} cannot be read as text.") from None
    if len(lines) != 1 or len(lines[0].strip()) < _MIN_PASSWORD:
        raise InputError(
            f"--password-file: {path} must hold one line with a password of at least {_MIN_PASSWORD} characters."
        )
    return lines[0].strip()


def new_password() -> str:
    """A random password."""
    return secrets.token_urlsafe(18)


def _origin(text: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    if parts.scheme not in _PORTS or parts.path or parts.query or parts.fragment:
        return None
    return _name_and_port(parts.netloc, _PORTS[parts.scheme])


def _name_and_port(authority: str, port: int) -> tuple[str, int] | None:
    """Name and port of `name`, `name:port` or `[::1]:port`; None for any other text."""
    name, bracketed, rest = authority.lower(), authority.startswith("["), ""
    if bracketed:
        name, closed, rest = name[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return None
    elif name.count(":") == 1:
        name, _, rest = name.partition(":")
        rest = f":{rest}"
    if rest:
        if not (rest[1:].isascii() and rest[1:].isdecimal() and 0 < int(rest[1:6]) < 65536 and len(rest) < 7):
            return None
        port = int(rest[1:])
    return (name, port) if len(name) < 254 and _NAME.fullmatch(name) and (":" in name) == bracketed else None


def _quoted(text: str) -> str:
    return repr(printable(text[:80]))
