"""How far long work has come, and where its time went: the library calls, the caller draws.

    cube = reconstruct(y, mask, progress=progress_bar("reconstructing"))

The bar is an element of the page in a notebook, a line that renews itself on a terminal, and a
plain line now and then anywhere else, such as in a log.

    with measured() as timings:
        with part("reading"):
            ...

Parts of a run may lie within each other: each has its own time, without that of the parts inside.
Where nothing is measured, they cost nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from html import escape
from typing import Any

Progress = Callable[[int, int, Mapping[str, Any]], None]
"""`progress(done, total, info)` after each step, counted from 1.

info: whatever the work can tell, such as `stage` (what people read instead of the title), `model`
or `residual`.
"""

SECONDS_BETWEEN_LINES = 5.0
"""Plain lines come no more often than this, so that a log stays readable."""
SECONDS_BETWEEN_FRAMES = 0.1
"""A bar is redrawn no more often than this, so that drawing takes no time to speak of."""
_BLOCKS = 30


def progress_bar(title: str = "working") -> Progress:
    """A bar that suits where Python runs: pass it as `progress` to whatever takes one."""
    notebook = _notebook_display()
    if notebook is not None:
        return _NotebookBar(title, notebook)
    return _TerminalBar(title) if sys.stderr.isatty() else _Lines(title)


def as_progress(given: Progress | bool | None, title: str) -> Progress | None:
    """`True` stands for a bar, `False` and None for none."""
    if isinstance(given, bool):
        return progress_bar(title) if given else None
    return given


class Pace:
    """How long a stage has taken, and about how long it will go on."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._seen = time.monotonic()
        self._first = (self._began, 0)

    def text(self, stage: str, done: int, total: int) -> str:
        """In words, at the moment when `done` of the stage's `total` steps are done."""
        now = time.monotonic()
        if stage != self._stage or done < self._first[1]:
            # It began when the one before it was heard of last.
            self._stage, self._began, self._first = stage, self._seen, (now, done)
        self._seen = now
        passed = duration(now - self._began)
        since, before = self._first
        if done == before and TELLING_STEPS * done >= total:
            since, before = self._began, 0
        if not before < done < total:
            return passed
        return f"{passed}, about {duration((now - since) / (done - before) * (total - done))} left"


TELLING_STEPS = 10
"""Of more steps than this the first is not yet judged by: it often takes longer than the others."""


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Shown:
    """Draws no more often than `pause`, and always the end of a stage."""

    pause = SECONDS_BETWEEN_FRAMES

    def __init__(self, title: str) -> None:
        self.title = title
        self.pace = Pace()
        self.drawn = -1e9

    def __call__(self, done: int, total: int, info: Mapping[str, Any]) -> None:
        stage = str(info.get("stage", self.title))
        pace = self.pace.text(stage, done, total)
        now = time.monotonic()
        if now - self.drawn >= self.pause or done >= total:
            self.drawn = now
            self.draw(stage, done, total, pace)

    def draw(self, stage: str, done: int, total: int, pace: str) -> None:
        """Show that `done` of `total` steps are done; pace: how long it took and will take."""
        raise NotImplementedError


class _NotebookBar(_Shown):
    def __init__(self, title: str, display: Callable[..., Any]) -> None:
        super().__init__(title)
        # At once: until the first step is done a cell would look as if nothing happened.
        begun = _Page(((f"{title} …", f"{escape(title)} <progress></progress>"),))
        self._handle = display(begun, display_id=True)
        self._lines: dict[str, tuple[str, str]] = {}

    def draw(self, stage: str, done: int, total: int, pace: str) -> None:
        bar = f'<progress value="{done}" max="{total}"></progress>'
        counted = f"{done} of {total}, {pace}"
        # Stages that have ended stay, each with the time that it took.
        self._lines[stage] = (f"{stage}: {counted}", f"{escape(stage)} {bar} {counted}")
        self._handle.update(_Page(tuple(self._lines.values())))


class _TerminalBar(_Shown):
    def __init__(self, title: str) -> None:
        super().__init__(title)
        sys.stderr.write(f"{title} …")
        sys.stderr.flush()

    def draw(self, stage: str, done: int, total: int, pace: str) -> None:
        full = _BLOCKS * done // max(total, 1)
        bar = "#" * full + "." * (_BLOCKS - full)
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r\x1b[K{stage} [{bar}] {done} of {total}, {pace}{end}")
        sys.stderr.flush()


class _Lines(_Shown):
    pause = SECONDS_BETWEEN_LINES

    def draw(self, stage: str, done: int, total: int, pace: str) -> None:
        sys.stderr.write(f"{stage}: {done} of {total} ({pace})\n")
        sys.stderr.flush()


@dataclass(frozen=True)
class _Page:
    """What a notebook shows as HTML, and anything else as text."""

    lines: tuple[tuple[str, str], ...]
    """One for each stage, as text and as HTML."""

    def __repr__(self) -> str:
        return "\n".join(text for text, _ in self.lines)

    def _repr_html_(self) -> str:
        return "".join(f"<div><label>{html}</label></div>" for _, html in self.lines)


def _notebook_display() -> Callable[..., Any] | None:
    """The `display` of the notebook that Python runs in, or None: IPython is never imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Callable[..., Any] | None = getattr(
        sys.modules.get("IPython.display"), "display", None
    )
    return display


OTHER = "other"
"""What lies in no part."""


@dataclass
class Timings:
    """Seconds of each part, in the order in which they began first."""

    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=lambda: [OTHER])
    _since: float = field(default_factory=lambda: time.perf_counter())

    @property
    def total(self) -> float:
        """Seconds of everything."""
        return sum(self.seconds.values())

    def _turn(self) -> None:
        """Book what has passed since the last turn on the part that is open."""
        now = time.perf_counter()
        name = self._open[-1]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def begin(self, name: str) -> None:
        """From now on it is this part's time."""
        self._turn()
        self.seconds.setdefault(name, 0.0)
        self._open.append(name)

    def end(self) -> None:
        """From now on it is the time of the part around."""
        self._turn()
        self._open.pop()

    def table(self) -> str:
        """Seconds and shares, one part a line; what lies in no part comes last."""
        rows = {name: s for name, s in self.seconds.items() if name != OTHER}
        rows |= {OTHER: self.seconds.get(OTHER, 0.0), "total": self.total}
        width, total = max(map(len, rows)), self.total or 1.0
        return "\n".join(
            f"{name:<{width}} {seconds:8.2f} s {100 * seconds / total:4.0f} %"
            for name, seconds in rows.items()
        )

    def as_dict(self) -> dict[str, float]:
        """Seconds of each part and in all, for a file."""
        return {**{name: round(s, 4) for name, s in self.seconds.items()}, "total": self.total}


_current: ContextVar[Timings | None] = ContextVar("timings", default=None)


@contextmanager
def measured() -> Iterator[Timings]:
    """Measure what happens within."""
    timings = Timings()
    token = _current.set(timings)
    try:
        yield timings
    finally:
        timings._turn()
        _current.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Give a part its name; also a decorator."""
    timings = _current.get()
    if timings is None:
        yield
        return
    timings.begin(name)
    try:
        yield
    finally:
        timings.end()
