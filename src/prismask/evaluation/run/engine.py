"""Who computes the cells: this process, several processes, or a Dask cluster.

All three yield the same results in whatever order they finish.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import torch

from prismask.errors import WorkerLostError
from prismask.evaluation.run.cells import Cell, CellResult
from prismask.evaluation.run.trials import Bench, Workload
from prismask.parallel.stream import Outcome
from prismask.parallel.workers import Workers, run_tasks


def run_cells(
    work: Workload,
    cells: Iterable[Cell],
    device: torch.device,
    workers: int = 1,
    threads: int | None = None,
    dask: str | None = None,
    share_gpus: bool = True,
) -> Iterator[CellResult]:
    """Compute `cells` and yield each result as soon as it is there.

    workers, threads, dask: see `parallel.workers.Workers`.
    share_gpus: on a machine with several GPUs, whether each worker takes the next one instead of
        all taking `device`.
    """
    doers = Workers(workers, threads, dask)
    # Scenes and weights are large: a cluster's workers get them once.
    return _results(run_tasks(cells, Benches(work, device, share_gpus), doers, broadcast=True))


@dataclass(frozen=True, eq=False)
class Benches:
    """Makes the bench of each worker. It travels between processes."""

    work: Workload
    device: torch.device
    share_gpus: bool = True

    def __call__(self, number: int | None) -> Callable[[Cell], CellResult]:
        """The bench of worker `number`."""
        return Bench(self.work, self._device(number)).run

    def _device(self, number: int | None) -> torch.device:
        """The GPU of a worker, where there are several and they are to be shared."""
        several = self.device.type == "cuda" and torch.cuda.device_count() > 1
        if number is None or not self.share_gpus or not several:
            return self.device
        return torch.device("cuda", number % torch.cuda.device_count())


def _results(
    outcomes: Generator[Outcome[Cell, CellResult], None, None],
) -> Iterator[CellResult]:
    """An error ends the run."""
    with closing(outcomes):
        for outcome in outcomes:
            if isinstance(outcome.error, WorkerLostError):
                raise WorkerLostError(
                    "a worker process died, perhaps for want of memory. What was finished is "
                    "kept: go on with --resume, with fewer --workers."
                ) from outcome.error
            yield outcome.get()
