"""Where the time of a run went, by part.

    with measured() as timings:
        with part("reading"):
            ...

Parts may lie within each other: each has its own time, without that of the parts inside. Where
nobody measures, they cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

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
