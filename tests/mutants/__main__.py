"""`python -m tests.mutants [module …]`: mutates the core with cosmic-ray and counts what its tests notice.

The mutants and results of a module stay in build/mutants as a session of cosmic-ray, so that a run that was stopped
goes on where it ended. `--again` forgets them, `--draw 80` takes so many at random from modules that have more.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(sys.prefix) / "mutation"))

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutants.forked import ROOT, Bench
from tests.mutants.sites import items

SEED = 0


def main() -> None:
    core = tomllib.loads((Path(__file__).parent / "core.toml").read_text())
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("modules", nargs="*", metavar="module", help=f"some of {', '.join(core)}")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--draw", type=int, help="so many mutants of a module, drawn at random")
    parser.add_argument("--survivors", action="store_true", help="test once more those that survived")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(core):
        parser.error(f"no part of the core: {', '.join(sorted(unknown))}")
    killed = total = 0
    for name in given.modules or core:
        with use_db(_session(name, given.again)) as session:
            if not session.num_work_items:
                session.add_work_items(items(ROOT / "src" / "ercr" / f"{name}.py"))
            _run(name, core[name]["tests"], session, _asked(session, given.draw, given.survivors))
            found = [result.is_killed for _, result in session.completed_work_items]
            killed, total = killed + sum(found), total + len(found)
            _show(name, session)
    print(f"{'all':28}{_score(killed, total)}")


def _session(name: str, again: bool) -> str:
    path = ROOT / "build" / "mutants" / f"{name.replace('/', '.')}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    if again:
        path.unlink(missing_ok=True)
    return str(path)


def _asked(session: WorkDB, draw: int | None, survivors: bool) -> list[WorkItem]:
    """The mutants to test now, by their places."""
    if survivors:
        return _sorted(item for item, result in session.completed_work_items if not result.is_killed)
    every = _sorted(session.work_items)
    drawn = every if draw is None else random.Random(SEED).sample(every, min(draw, len(every)))
    done = {item.job_id for item, _ in session.completed_work_items}
    return _sorted(item for item in drawn if item.job_id not in done)


def _sorted(found: Iterable[WorkItem]) -> list[WorkItem]:
    def place(item: WorkItem) -> tuple[tuple[int, int], str, int]:
        mutation = item.mutations[0]
        return mutation.start_pos, mutation.operator_name, mutation.occurrence

    return sorted(found, key=place)


def _run(name: str, tests: list[str], session: WorkDB, pending: list[WorkItem]) -> None:
    if not pending:
        return
    path = ROOT / "src" / "ercr" / f"{name}.py"
    bench, text, began = Bench(tests), path.read_text(), time.monotonic()
    print(f"{name}: {len(pending)} mutants; the tests take {bench.usual:.1f} s", file=sys.stderr)
    for count, item in enumerate(pending, 1):
        killed = bench.fails(path, _mutated(text, item))
        outcome = TestOutcome.KILLED if killed else TestOutcome.SURVIVED
        session.set_result(item.job_id, WorkResult(WorkerOutcome.NORMAL, bench.output, outcome))
        if count % 50 == 0:
            print(f"  {count} of {len(pending)}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _mutated(text: str, item: WorkItem) -> str:
    mutation = item.mutations[0]
    changed = mutate_code(text, get_operator(mutation.operator_name)(**mutation.operator_args), mutation.occurrence)
    assert changed is not None
    return str(changed)


def _described(text: str, item: WorkItem) -> str:
    """A mutant in one line: where it is, and what is changed into what."""
    mutation = item.mutations[0]
    old, new = text.splitlines(), _mutated(text, item).splitlines()
    line = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), mutation.start_pos[0] - 1)
    return f"  {mutation.module_path.name}:{line + 1}: {old[line].strip()}  ->  {new[line].strip()}"


def _show(name: str, session: WorkDB) -> None:
    path = ROOT / "src" / "ercr" / f"{name}.py"
    done = session.completed_work_items
    killed = sum(result.is_killed for _, result in done)
    drawn = "" if len(done) == session.num_work_items else f" (drawn from {session.num_work_items})"
    print(f"{name:28}{_score(killed, len(done))}{drawn}", flush=True)
    for item, result in sorted(done, key=lambda pair: pair[0].mutations[0].start_pos):
        if not result.is_killed:
            print(_described(path.read_text(), item))


def _score(killed: int, total: int) -> str:
    return f"{killed:5} of {total:4} killed, {100 * killed / max(total, 1):5.1f} %"


if __name__ == "__main__":
    main()
