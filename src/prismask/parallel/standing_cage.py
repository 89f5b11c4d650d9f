"""A cage that stays: what a task has prepared, a network on its device, is there for the next.

    worker = StandingCage(folder)
    facts = worker.call("package.module:function", [argument, …], limits, report, is_cancelled)

Tasks take `report(done, total)` before their own arguments, and give facts and no arrays. They
trust what they are given more than those of `run_caged`, which have a fresh process each: limits on
time and memory hold, and what crashes, hangs or is called off harms nobody else, but only then the
process is replaced.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prismask.parallel.cage import (
    Cage,
    CancelledError,
    Limits,
    Report,
    TimeLimitError,
    facts_of,
    is_supported,
    order_for,
)


class StandingCage:
    """A process for one call at a time."""

    def __init__(self, folder: Path) -> None:
        """folder: the caller's, removed should it be killed before it can do so itself."""
        self._folder = folder
        self._turn = threading.Lock()
        self._closed = False
        self.is_ready = False
        """Whether the process of an earlier call is there for the next."""
        # At once, so that there is somebody to remove the folder.
        self._cage = Cage(standing=True, folder=folder) if is_supported() else None

    def call(
        self,
        task: str,
        arguments: Sequence[Any],
        limits: Limits,
        report: Report | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Any:
        """Do a task; raises its own `PrismaskError`, or a `CageError` where it gave no answer."""
        if not is_supported():
            module, _, name = task.partition(":")
            function = getattr(importlib.import_module(module), name)
            return function(report or (lambda done, total: None), *arguments)[0]
        with self._turn:
            cage = self._standing()
            try:
                cage.call(
                    order_for(task, arguments, limits), limits.seconds, report,
                    lambda: self._closed or (is_cancelled is not None and is_cancelled()),
                )  # fmt: skip
                answer, _ = cage.answer()
            except BaseException as problem:
                # In the middle of something, or dead.
                self.is_ready = False
                cage.kill()
                if isinstance(problem, TimeLimitError):
                    raise TimeLimitError(
                        f"stopped after {limits.seconds:g} s, the time limit."
                    ) from None
                raise
            self.is_ready = True
            return facts_of(answer)

    def close(self) -> None:
        """End the process, even in the middle of a call."""
        self._closed = True
        with self._turn:
            self.is_ready = False
            if self._cage is not None:
                self._cage.kill()

    def _standing(self) -> Cage:
        if self._closed:
            raise CancelledError("the server is shutting down.")
        if self._cage is None or self._cage.scratch < 0 or self._cage.process.poll() is not None:
            if self._cage is not None:
                self._cage.kill()
            self._cage = Cage(standing=True, folder=self._folder)
        return self._cage
