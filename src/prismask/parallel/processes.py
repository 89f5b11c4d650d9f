"""Tasks in several processes on this machine.

A process that dies takes the whole pool with it, and nobody knows which task was to blame. Those
that were on their way are suspects: each is tried once more in a process of its own, and only one
that dies there as well counts as lost. The others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection
from typing import Any

from prismask.errors import WorkerLostError
from prismask.parallel.stream import AHEAD, Outcome, Prepare, Result, Task, in_turn
from prismask.parallel.workers import Workers


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
