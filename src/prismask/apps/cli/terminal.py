"""What the commands say, and where: results to stdout, remarks to stderr.

Long commands show their progress, as bars on a terminal, as plain lines anywhere else:

    with reporter() as report:
        step = report("reconstructing")
        solver(…, progress=step)

A step is called as `step(done, total, info)`; only the commands draw, the library just calls. Where
`info` names a `stage`, that is what people read instead of the title.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, TextIO

from prismask.progress import SECONDS_BETWEEN_LINES, Pace, Progress, duration
from prismask.scenes.formats.contents import printable

WIDTHS = range(10, 1001)
"""Columns to write for: in one, laying out the help never ends; in millions it fills the memory."""


def settle_streams() -> None:
    """Make the surroundings of a process such that nothing written can end it.

    Closed streams become nothing: files would else get their numbers, and be written into. Letters
    that a stream cannot show become their codes, also those of the help. A terminal without a
    sensible width has none to write for.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least free number, which is this one
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS")
    if columns is not None and columns not in map(str, WIDTHS):
        del os.environ["COLUMNS"]


def settle_threads() -> None:
    """Let threads that wait for each other sleep; has to come before torch is loaded.

    By default they spin. Where another program wants one of the cores that only burns what it would
    need, and on two cores a reconstruction took twice as long. Who sets the variable is obeyed.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def say(text: str) -> None:
    """A result, for the person or the next program in the pipe."""
    _write(sys.stdout, text)


def remark(text: str) -> None:
    """Something worth knowing that is not the result, and that never stops the work on it.

    Where stderr takes nothing more (a full disk, a pipe that nobody reads), it goes nowhere.
    """
    try:
        _write(sys.stderr, text)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Let what a stream still holds, and whatever follows, go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _write(stream: TextIO, text: str) -> None:
    """Write what a terminal shows and never obeys; letters it cannot show become their codes."""
    line = f"{printable(text)}\n"
    try:
        stream.write(line)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding))


def complain(text: str) -> None:
    """One sentence about what went wrong."""
    remark(f"prismask: {' '.join(text.split())}")


def table(rows: list[tuple[str, str]], indent: str = "") -> str:
    """Names and values in two aligned columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{indent}{name:<{width}}  {value}".rstrip() for name, value in rows)


Report = Callable[[str], Progress]


class Ahead:
    """What is left of several stages whose usual seconds are known, in their order."""

    def __init__(self, stages: Mapping[str, float]) -> None:
        self._stages = dict(stages)
        self._began = time.monotonic()

    def left(self, title: str) -> str:
        """In words, when this stage begins; empty if nothing is known about it."""
        if title not in self._stages:
            return ""
        usual, number = list(self._stages.values()), list(self._stages).index(title)
        passed, before = time.monotonic() - self._began, sum(usual[:number])
        # How fast this machine is shows by and by; at first it counts as a usual one.
        slower = (passed + TRUSTED_SECONDS) / (before + TRUSTED_SECONDS)
        return f" (about {duration(slower * sum(usual[number:]))} left)"


TRUSTED_SECONDS = 2.0
"""Usual seconds that weigh as much as what has been seen of a machine."""


@contextmanager
def reporter(stages: Mapping[str, float] | None = None) -> Iterator[Report]:
    """Give a function that starts a named stage and returns the function that advances it.

    Starting the next stage, or leaving the block without an error, ends the one before.

    stages: their usual seconds, where they are known: then each tells what is left of all.
    """
    ahead = Ahead(stages or {})
    # Training and evaluation also run where rich is not installed.
    if sys.stderr.isatty() and find_spec("rich") is not None:
        with _bars(ahead) as report:
            yield report
    else:
        yield partial(_lines, ahead)


def _lines(ahead: Ahead, title: str) -> Progress:
    """One line when a stage starts, and one now and then while it runs."""
    remark(f"{title}{ahead.left(title)} …")
    pace, last = Pace(), time.monotonic()

    def step(done: int, total: int, info: Mapping[str, Any]) -> None:
        nonlocal last
        now, stage = time.monotonic(), str(info.get("stage", title))
        taken = pace.text(stage, done, total)
        if now - last >= SECONDS_BETWEEN_LINES and done < total:
            last = now
            remark(f"{stage}: {done} of {total} ({taken})")

    return step


@contextmanager
def _bars(ahead: Ahead) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        running: dict[TaskID, str] = {}

        def finish() -> None:
            while running:
                task, stage = running.popitem()
                total = bars.tasks[bars.task_ids.index(task)].total or 1
                bars.update(task, description=stage, total=total, completed=total)

        def report(title: str) -> Progress:
            finish()
            task = bars.add_task(f"{title}{ahead.left(title)}", total=None)
            running[task] = title

            def step(done: int, total: int, info: Mapping[str, Any]) -> None:
                running[task] = str(info.get("stage", title))
                bars.update(task, description=running[task], completed=done, total=total)

            return step

        yield report
        finish()
