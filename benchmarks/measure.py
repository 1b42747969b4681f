"""Timing and printing that the suites share."""

import gc
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

__all__ = ["Target", "Task", "best", "show", "show_targets"]

CONSOLE = Console(width=150, highlight=False)
SHORT = 0.02
"""Seconds: what is faster than this runs several times in a round."""


@dataclass(frozen=True)
class Task:
    run: Callable[[], object]
    draws: int = 1
    """What one run is divided by."""


@dataclass(frozen=True)
class Target:
    what: str
    limit: str
    measured: str
    met: bool


def best(tasks: Mapping[str, Task], rounds: int) -> dict[str, float]:
    """The best nanoseconds of processor time per draw of each.

    A round runs all of them, so that the machine's moods hit all; waiting for other programs is not counted.
    """
    fastest = dict.fromkeys(tasks, math.inf)
    for task in tasks.values():
        task.run()  # first use: tables, caches, imports
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, task in tasks.items():
                for _ in range(5 if fastest[name] < SHORT else 1):
                    start = time.process_time()
                    task.run()
                    fastest[name] = min(fastest[name], time.process_time() - start)
    finally:
        gc.enable()
    return {name: 1e9 * seconds / tasks[name].draws for name, seconds in fastest.items()}


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(table)
    CONSOLE.print()


def show_targets(targets: Iterable[Target]) -> None:
    rows = [(t.what, t.limit, t.measured, "met" if t.met else "MISSED") for t in targets]
    show("Targets", ("", "target", "measured", ""), rows)
