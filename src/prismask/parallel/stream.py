"""A few tasks on their way at a time; what became of each as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

Task = TypeVar("Task")
Result = TypeVar("Result")

Prepare = Callable[[int | None], Callable[[Task], Result]]
"""`prepare(number)` gives the function that does tasks. It travels to every worker and is called
there once; `number` counts the processes of one machine from 0, None where there is no count."""

AHEAD = 2
"""Tasks handed out in advance to each worker, so that none waits for the next."""


@dataclass(frozen=True, eq=False)
class Outcome(Generic[Task, Result]):
    """What became of a task: a result, or the error that came instead."""

    task: Task
    result: Result | None = None
    error: BaseException | None = None

    def get(self) -> Result:
        """The result; the error is raised."""
        if self.error is not None:
            raise self.error
        return cast(Result, self.result)


def in_turn(
    submit: Callable[[Task], Future[Result]],
    tasks: Iterable[Task],
    window: Callable[[], int],
) -> Generator[Outcome[Task, Result], None, None]:
    """Keep `window()` tasks on their way; yield what became of them as they come back."""
    pending: dict[Future[Result], Task] = {}
    try:
        for task in tasks:
            pending[submit(task)] = task
            if len(pending) >= window():
                yield from _next_ones(pending)
        while pending:
            yield from _next_ones(pending)
    finally:
        for future in pending:
            future.cancel()


def _next_ones(pending: dict[Future[Result], Task]) -> Generator[Outcome[Task, Result], None, None]:
    """Wait for at least one; good ones first, as an error may end the run."""
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    found = [_outcome(future, pending.pop(future)) for future in list(pending) if future in done]
    yield from sorted(found, key=lambda outcome: outcome.error is not None)


def _outcome(future: Future[Result], task: Task) -> Outcome[Task, Result]:
    error = CancelledError() if future.cancelled() else future.exception()
    return Outcome(task, error=error) if error is not None else Outcome(task, future.result())
