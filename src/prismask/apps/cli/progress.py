"""Progress of long commands: bars on a terminal, plain lines anywhere else.

    with reporter() as report:
        step = report("reconstructing")
        solver(…, progress=step)

A step is called as `step(done, total, info)`; only the commands draw, the library just calls. Where
`info` names a `stage`, that is what people read instead of the title.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from prismask.apps.cli.terminal import remark
from prismask.progress import Progress

Report = Callable[[str], Progress]

SECONDS_BETWEEN_LINES = 5.0
"""Plain lines come no oftener than this, so that a log stays readable."""


@contextmanager
def reporter() -> Iterator[Report]:
    """Give a function that starts a named stage and returns the function that advances it.

    Starting the next stage, or leaving the block without an error, ends the one before.
    """
    # Training and evaluation also run where rich is not installed.
    if sys.stderr.isatty() and find_spec("rich") is not None:
        with _bars() as report:
            yield report
    else:
        yield _lines


def _lines(title: str) -> Progress:
    """One line when a stage starts, and one now and then while it runs."""
    remark(f"{title} …")
    started = last = time.monotonic()

    def step(done: int, total: int, info: Mapping[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES and done < total:
            last = now
            stage = info.get("stage", title)
            remark(f"{stage}: {done} of {total} ({now - started:.0f} s)")

    return step


@contextmanager
def _bars() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        running: list[TaskID] = []

        def finish() -> None:
            if running:
                task = running.pop()
                total = bars.tasks[bars.task_ids.index(task)].total or 1
                bars.update(task, total=total, completed=total)

        def report(title: str) -> Progress:
            finish()
            task = bars.add_task(title, total=None)
            running.append(task)

            def step(done: int, total: int, info: Mapping[str, Any]) -> None:
                stage = info.get("stage", title)
                bars.update(task, description=stage, completed=done, total=total)

            return step

        yield report
        finish()
