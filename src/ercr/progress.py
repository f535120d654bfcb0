"""Bars on standard error that show how far a long call is; silent where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text


class TimeLeft(ProgressColumn):
    """Time left at the speed since the work began; it counts down while a step is under way.

    A task says in its fields when it `began`, when it last `moved`, and how much was `there` before.
    """

    def render(self, task: Task) -> Text:
        fresh = task.completed - task.fields["there"]
        if task.total is None or fresh <= 0:
            return Text("")
        each = (task.fields["moved"] - task.fields["began"]) / fresh
        left = each * (task.total - task.completed) - (time.perf_counter() - task.fields["moved"])
        minutes, seconds = divmod(max(0, round(left)), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left", "progress.remaining")


@contextmanager
def bar(total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar over pictures; yields what is told how many more are done. One picture needs no bar.

    Without a total, it counts.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    progress = Progress(*columns, console=console, transient=True)
    progress.disable = not (shown and console.is_terminal and total != 1)
    now = time.perf_counter()
    task = progress.add_task("pictures", total=total, began=now, moved=now, there=0)
    with progress:
        yield lambda count: progress.update(task, advance=count, moved=time.perf_counter())
