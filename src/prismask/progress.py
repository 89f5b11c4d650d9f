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


class _Shown:
    """Draws no more often than `pause`, and always the end of a stage."""

    pause = SECONDS_BETWEEN_FRAMES

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.drawn = -1e9

    def __call__(self, done: int, total: int, info: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self.drawn >= self.pause or done >= total:
            self.drawn = now
            self.draw(str(info.get("stage", self.title)), done, total, now - self.started)

    def draw(self, stage: str, done: int, total: int, seconds: float) -> None:
        """Show that `done` of `total` steps are done."""
        raise NotImplementedError


class _NotebookBar(_Shown):
    def __init__(self, title: str, display: Callable[..., Any]) -> None:
        super().__init__(title)
        self._display = display
        self._handle: Any = None

    def draw(self, stage: str, done: int, total: int, seconds: float) -> None:
        shown = _Html(
            f'<label>{escape(stage)} <progress value="{done}" max="{total}"></progress> '
            f"{done} of {total}, {seconds:.0f} s</label>"
        )
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _TerminalBar(_Shown):
    def draw(self, stage: str, done: int, total: int, seconds: float) -> None:
        full = _BLOCKS * done // max(total, 1)
        bar = "#" * full + "." * (_BLOCKS - full)
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r\x1b[K{stage} [{bar}] {done} of {total}, {seconds:.0f} s{end}")
        sys.stderr.flush()


class _Lines(_Shown):
    pause = SECONDS_BETWEEN_LINES

    def draw(self, stage: str, done: int, total: int, seconds: float) -> None:
        sys.stderr.write(f"{stage}: {done} of {total} ({seconds:.0f} s)\n")
        sys.stderr.flush()


class _Html:
    """What a notebook shows as HTML, and anything else as text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


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
