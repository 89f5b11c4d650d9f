"""Who does the tasks, and doing them in this process."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from prismask.errors import ConfigError
from prismask.parallel.stream import Outcome, Prepare, Result, Task

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
        from prismask.parallel.processes import run_in_processes

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
            except Exception as error:  # whoever asked for the task decides what it means
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
