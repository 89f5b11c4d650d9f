"""Tasks for workers: done in this process or in several, each reported as soon as it is done.

A few tasks are on their way at a time. In several processes, one that dies takes the whole pool
with it, and it is unknown which task was to blame. Those that were on their way are suspects: each
is tried once more in a process of its own, and only one that dies there as well counts as lost. The
others go on. Tasks on a cluster are in `cluster`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from typing import Any, Generic, TypeVar, cast

from prismask.errors import ConfigError, WorkerLostError

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


LOCAL = "local"
"""Stands for a cluster that is made here, for the run alone, instead of a scheduler's address."""


@dataclass(frozen=True)
class Workers:
    """This process, several processes, or a cluster."""

    count: int = 1
    """Processes on this machine; 1 without `dask` works in this one."""
    threads: int | None = None
    """CPU threads for each worker; None shares the cores out."""
    dask: str | None = None
    """Address of a Dask scheduler, or "local" for a cluster of `count` processes here."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"workers is {self.count}; at least one has to work.")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}; at least one is needed.")

    @property
    def share(self) -> int:
        """Threads for each of the processes on this machine."""
        return self.threads or max(1, (os.cpu_count() or 1) // self.count)


def run_tasks(
    tasks: Iterable[Task], prepare: Prepare[Task, Result], workers: Workers, broadcast: bool = False
) -> Generator[Outcome[Task, Result], None, None]:
    """Do `tasks`; yield what became of each as soon as it is known, in whatever order.

    Only a few tasks are on their way at a time, so memory does not depend on how many there are.
    Leaving the loop early cancels what is on its way.

    prepare: see `Prepare`; it has to be something pickle can send, unless this process works.
    broadcast: whether `prepare` is large, so that a cluster should send it once instead of with
        every task; it is lost with the last worker that holds it.
    """
    if workers.dask is not None:
        from prismask.parallel.cluster import run_on_dask

        return run_on_dask(tasks, prepare, workers, broadcast)
    if workers.count > 1:
        return run_in_processes(tasks, prepare, workers)
    return run_here(tasks, prepare, workers.threads)


def run_here(
    tasks: Iterable[Task], prepare: Prepare[Task, Result], threads: int | None = None
) -> Generator[Outcome[Task, Result], None, None]:
    """Do the tasks in this process, one after the other."""
    before = None if threads is None else _set_threads(threads)
    try:
        do = prepare(None)
        for task in tasks:
            try:
                outcome: Outcome[Task, Result] = Outcome(task, do(task))
            except Exception as error:  # the caller decides what it means
                outcome = Outcome(task, error=error)
            yield outcome
    finally:
        if before is not None:
            _set_threads(before)


def _set_threads(threads: int) -> int:
    """Give torch that many threads; returns how many it had."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    return before


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


def run_in_processes(
    tasks: Iterable[Task], prepare: Prepare[Task, Result], workers: Workers
) -> Generator[Outcome[Task, Result], None, None]:
    """Do the tasks in `workers.count` fresh processes."""
    remaining = iter(tasks)
    while True:
        suspects: list[Task] = []
        with _pool(prepare, workers.count, workers.share) as submit:
            given = _while_nobody_died(remaining, suspects)
            for outcome in in_turn(submit, given, lambda: AHEAD * workers.count):
                if isinstance(outcome.error, BrokenProcessPool):
                    suspects.append(outcome.task)
                else:
                    yield outcome
        if not suspects:
            return
        for task in suspects:
            yield _alone(task, prepare, workers)


def _while_nobody_died(tasks: Iterator[Task], suspects: list[Task]) -> Iterator[Task]:
    while not suspects:
        try:
            task = next(tasks)
        except StopIteration:
            return
        yield task


def _alone(task: Task, prepare: Prepare[Task, Result], workers: Workers) -> Outcome[Task, Result]:
    """The task in a process of its own."""
    with _pool(prepare, 1, workers.share) as submit:
        (outcome,) = in_turn(submit, [task], lambda: 1)
    if isinstance(outcome.error, BrokenProcessPool):
        return Outcome(task, error=WorkerLostError("the worker process died; out of memory?"))
    return outcome


@contextmanager
def _pool(
    prepare: Prepare[Task, Result], workers: int, threads: int
) -> Iterator[Callable[[Task], Future[Result]]]:
    """Processes that are there as long as the block; gives the function that hands them a task."""
    # A forked process cannot use CUDA, and locks of torch's thread pools do not survive a fork.
    context = multiprocessing.get_context("spawn")
    told_to_stop, stop = context.Pipe(duplex=False)
    numbers = context.SimpleQueue()
    for number in range(workers):
        numbers.put(number)
    executor = ProcessPoolExecutor(
        workers, context, _start, (prepare, threads, numbers, told_to_stop)
    )

    def submit(task: Task) -> Future[Result]:
        try:
            return executor.submit(_run, task)
        except BrokenProcessPool as error:
            broken: Future[Result] = Future()
            broken.set_exception(error)
            return broken

    try:
        yield submit
    except BaseException:
        stop.send(None)
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        stop.close()
        told_to_stop.close()
        numbers.close()


# --- in a worker process -------------------------------------------------------------------------

_make: Callable[[], Callable[[Any], Any]]
_do: Callable[[Any], Any] | None = None
_busy = False
_stopping = False


def _start(
    prepare: Prepare[Any, Any], threads: int, numbers: Any, told_to_stop: connection.Connection
) -> None:
    """Make a process ready; what is costly waits for the first task, which can tell an error."""
    import torch

    global _make
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_follow_parent, args=(told_to_stop,), daemon=True).start()
    torch.set_num_threads(threads)
    number = numbers.get()
    _make = partial(prepare, number)


def _run(task: Any) -> Any:
    global _do, _busy
    _busy = True
    try:
        if _stopping:
            raise KeyboardInterrupt
        if _do is None:
            _do = _make()
        return _do(task)
    finally:
        _busy = False


def _interrupt(number: int, frame: object) -> None:
    # Ctrl-C on a terminal reaches every process; whether it ends the run is the parent's to say.
    # A task is interrupted rather than killed, so that it can clear away what it was writing.
    if _stopping and _busy:
        raise KeyboardInterrupt


def _follow_parent(told_to_stop: connection.Connection) -> None:
    """End the task when told to; a worker whose parent was killed would wait for work for ever."""
    global _stopping
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    connection.wait([told_to_stop, parent.sentinel])
    _stopping = True
    os.kill(os.getpid(), signal.SIGINT)
    parent.join()
    os._exit(1)
