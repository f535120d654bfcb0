"""Tests of one module against many versions of its text: everything heavy is imported once, each version is forked."""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_OURS = ("ercr", "ercr_zoo", "tests")
_MEMORY = 8 * 2**30  # bytes that a mutant may fill


class _Changed(importlib.abc.MetaPathFinder):
    """Finds some modules as they are changed, and leaves all others to the finders behind it."""

    def __init__(self, texts: dict[str, tuple[Path, str]]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._texts:
            return None
        file, text = self._texts[name]
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file), text))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


class Bench:
    """Runs tests in forks of this process, in which no module of this project is loaded."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = list(tests)
        self._folder = tempfile.TemporaryDirectory()
        sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "zoo" / "src")]
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        # what the tests load, but for this project, is loaded here: a fork then starts with it
        found = Path(self._folder.name) / "modules.json"
        self.seconds = 600.0
        self.output = ""
        if self._fork({}, listed=found):
            raise SystemExit(f"Without any mutant these tests fail already:\n{self.output}")
        for name in json.loads(found.read_text()):
            try:
                importlib.import_module(name)
            except Exception:
                continue
        gc.collect()
        gc.freeze()
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        if self._fork({}):
            raise SystemExit(f"Without any mutant these tests fail already:\n{self.output}")
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.usual = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        self.seconds = 5 * self.usual + 5

    def fails(self, path: Path, text: str) -> bool:
        """Whether a test notices that a module's text is another one; one that runs without end is noticed."""
        return self._fork({module_name(path): (path, text)})

    def _fork(self, changed: dict[str, tuple[Path, str]], listed: Path | None = None) -> bool:
        log = Path(self._folder.name) / "log"
        child = os.fork()
        if child == 0:
            status = 2
            try:
                status = self._test(changed, listed, log)
            finally:
                os._exit(status)
        status = _wait(child, 20 * self.seconds)
        self.output = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return status != 0

    def _test(self, changed: dict[str, tuple[Path, str]], listed: Path | None, log: Path) -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (int(self.seconds) + 1, int(self.seconds) + 2))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, "wb", 0), write_through=True) for fd in (1, 2))
        os.chdir(ROOT)
        sys.dont_write_bytecode = bool(changed)
        sys.meta_path.insert(0, _Changed(changed))
        import hypothesis
        import pytest

        # the same examples for every mutant, and no search for the smallest one
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", derandomize=True, database=None, deadline=None, phases=phases)
        hypothesis.settings.load_profile("mutants")
        _remember_checkpoints(Path(self._folder.name))
        options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
        status = int(pytest.main([*options, f"--basetemp={self._folder.name}/tmp", *self.tests]))
        if listed:
            names = [name for name in sys.modules if name.split(".")[0] not in _OURS and name != "__main__"]
            listed.write_text(json.dumps(names))
        return status


def _remember_checkpoints(folder: Path) -> None:
    """The tiny checkpoints are the same for every mutant: they are made once."""
    from tests import tiny

    make = tiny.build

    def build(name: str, _: Path) -> Path:
        kept = folder / "checkpoints" / name
        if not kept.exists():
            made = folder / "made" / name
            made.mkdir(parents=True)
            make(name, made)
            kept.parent.mkdir(exist_ok=True)
            made.rename(kept)
        return kept

    tiny.build = build


def _wait(child: int, most: float) -> int:
    stop = time.monotonic() + most
    pause = 0.01
    while time.monotonic() < stop:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
