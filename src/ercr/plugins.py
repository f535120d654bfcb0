"""Methods, families and datasets from outside this package: from installed packages and from single files.

A package lists its modules under the entry points `ercr.methods`, `ercr.families` or `ercr.datasets`. A file is given
by `--plugin` or in the environment variable ERCR_PLUGINS. Each is imported once and registers what it defines.
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

_lock = threading.RLock()  # reentrant, because a plugin may ask for all methods while it is loaded
if hasattr(os, "register_at_fork"):  # else a process forked while another thread loads would wait for ever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_files: dict[Path, str] = {}  # loaded files and the hashes of their texts
_groups: set[str] = set()  # whose entry points were loaded


def load(group: str, package: str) -> None:
    """Import all modules of a package of ours, then the plugins of a group, so that they register themselves.

    The registries call this before each lookup.
    """
    with _lock:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
        load_files(_from_environment())
        if group in _groups:
            return
        _groups.add(group)
        try:
            for entry in importlib.metadata.entry_points(group=group):
                _load_entry(entry)
        except PluginError:
            _groups.discard(group)  # so that the next call raises again
            raise


def load_files(files: Iterable[str | os.PathLike[str]]) -> None:
    """Run Python files, each one once."""
    for file in files:
        path = Path(file).absolute()
        with _lock:
            if path not in _files:
                _load_file(path)


def remember(files: Iterable[str | os.PathLike[str]]) -> None:
    """Load these files and those in ERCR_PLUGINS, and add them to it, so that child processes load them, too."""
    paths = [*_from_environment(), *(str(Path(file).absolute()) for file in files)]
    load_files(paths)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(paths))


def files() -> tuple[str, ...]:
    """The loaded files, for a worker process to load as well."""
    load_files(_from_environment())
    return tuple(map(str, _files))


def _from_environment() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def used() -> dict[str, str]:
    """The hash of every loaded file and the version of every package with entry points; results may depend on them."""
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
        raise PluginError(f"The plugin {where} cannot be loaded: {_reason(error)}. Repair or uninstall it.") from error


def _load_file(path: Path) -> None:
    source = read_plain(path, error=PluginError)
    digest = hashlib.sha256(source).hexdigest()
    # with a unique name in sys.modules, where dataclasses and pickle look the module up
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
