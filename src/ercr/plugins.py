"""Methods, families and datasets from outside this package: installed packages that announce them, and single files.

A package names modules under the entry points `ercr.methods`, `ercr.families` or `ercr.datasets`. A file is named by
`--plugin` or in the environment variable ERCR_PLUGINS. Either is imported once and registers itself.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ercr.errors import PluginError
from ercr.files.plain import read_plain

VARIABLE = "ERCR_PLUGINS"
GROUPS = ("ercr.methods", "ercr.families", "ercr.datasets")

_lock = threading.RLock()  # the same thread comes back when a plugin asks for all methods
if hasattr(os, "register_at_fork"):  # else a process forked while another thread loads would wait for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_files: dict[Path, str] = {}  # what was loaded, and the hash of its text
_groups: set[str] = set()  # whose packages were loaded


def load(group: str, package: str) -> None:
    """Everything that may register itself in a group: the files of a package of ours, then those from outside.

    The registries call this before they answer.
    """
    with _lock:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
        load_files(_named())
        if group in _groups:
            return
        _groups.add(group)
        try:
            for entry in importlib.metadata.entry_points(group=group):
                _load_entry(entry)
        except PluginError:
            _groups.discard(group)  # said again by the next call, not forgotten
            raise


def load_files(files: Iterable[str | os.PathLike[str]]) -> None:
    """Run files of Python, each once."""
    for file in files:
        path = Path(file).absolute()
        with _lock:
            if path not in _files:
                _load_file(path)


def remember(files: Iterable[str | os.PathLike[str]]) -> None:
    """Load files and those of the environment, and name all there, so that processes started from here load them."""
    paths = [*_named(), *(str(Path(file).absolute()) for file in files)]
    load_files(paths)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(paths))


def files() -> tuple[str, ...]:
    """The files that were loaded, for a worker to load as well."""
    load_files(_named())
    return tuple(map(str, _files))


def _named() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def used() -> dict[str, str]:
    """The hash of every loaded file and the version of every package with entry points; rows may depend on them."""
    files()
    found = {path.name: digest for path, digest in _files.items()}
    for group in GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            if entry.dist is not None:
                found[entry.dist.name] = entry.dist.version
    return dict(sorted(found.items()))


def _load_entry(entry: importlib.metadata.EntryPoint) -> None:
    try:
        entry.load()
    except (Exception, SystemExit) as error:
        package = entry.dist.name if entry.dist is not None else "an installed package"
        where = f"{entry.value!r} of {package}"
        raise PluginError(f"The plugin {where} cannot be loaded: {_reason(error)}. Repair or remove it.") from error


def _load_file(path: Path) -> None:
    source = read_plain(path, error=PluginError)
    digest = hashlib.sha256(source).hexdigest()
    # under a name of its own: dataclasses and pickle look their module up
    module = ModuleType(f"ercr_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    _files[path] = digest
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del _files[path], sys.modules[module.__name__]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{path}, line {lines[-1]}," if lines else str(path)
        raise PluginError(f"The plugin {where} cannot be loaded: {_reason(error)}.") from error


def _reason(error: BaseException) -> str:
    text = str(error).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
