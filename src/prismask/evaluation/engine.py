"""Who computes the cells: this process, several processes, or a Dask cluster.

All three yield the same results in whatever order they finish. Only a few cells are on their way
at a time, so memory does not depend on how many there are.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from prismask.errors import ConfigError, DeviceError, MissingPartError, PrismaskError
from prismask.evaluation.cells import Cell, CellResult
from prismask.evaluation.trials import Bench, Workload

log = logging.getLogger(__name__)

AHEAD = 2
"""Cells handed out in advance to each worker, so that none waits for the next."""


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

    workers: processes on this machine; 1 computes here.
    threads: CPU threads for each worker; None shares the cores out.
    dask: address of a Dask scheduler, or "local" for a cluster of `workers` processes here.
    share_gpus: on a machine with several GPUs, whether each worker takes the next one instead of
        all taking `device`.
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}; at least 1 is needed.")
    if dask is not None:
        return run_on_dask(work, cells, device, dask, workers, threads)
    if workers > 1:
        return run_in_processes(work, cells, device, workers, threads, share_gpus)
    return run_here(work, cells, device, threads)


def run_here(
    work: Workload, cells: Iterable[Cell], device: torch.device, threads: int | None = None
) -> Iterator[CellResult]:
    """Compute in this process, one after the other."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        bench = Bench(work, device)
        for cell in cells:
            yield bench.run(cell)
    finally:
        torch.set_num_threads(before)


# --- several processes ---------------------------------------------------------------------------


def run_in_processes(
    work: Workload,
    cells: Iterable[Cell],
    device: torch.device,
    workers: int,
    threads: int | None = None,
    share_gpus: bool = True,
) -> Iterator[CellResult]:
    """Compute in `workers` fresh processes."""
    import multiprocessing

    # A forked process cannot use CUDA, and locks of torch's thread pools do not survive a fork.
    context = multiprocessing.get_context("spawn")
    each = threads or max(1, (os.cpu_count() or 1) // workers)
    numbers = context.SimpleQueue()
    for number in range(workers):
        numbers.put(number if share_gpus else None)
    executor = ProcessPoolExecutor(
        workers, context, initializer=_start, initargs=(work, str(device), each, numbers)
    )
    try:
        yield from _in_turn(lambda cell: executor.submit(_run, cell), cells, AHEAD * workers)
    except BrokenProcessPool as error:
        raise DeviceError(
            "a worker process died, perhaps for want of memory. What was finished is kept: go on "
            "with --resume, with fewer --workers."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_bench: Bench | None = None
_broken: PrismaskError | None = None


def _start(work: Workload, device: str, threads: int, numbers: Any) -> None:
    """Prepare a worker process; what goes wrong is told by its first cell."""
    import signal

    # Ctrl-C is the parent's to handle; it tells the workers by ending them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    global _bench, _broken
    try:
        _bench = Bench(work, _share(device, numbers.get()))
    except PrismaskError as error:
        _broken = error


def _run(cell: Cell) -> CellResult:
    if _broken is not None:
        raise _broken
    assert _bench is not None
    return _bench.run(cell)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for its next cell for ever."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _share(device: str, number: int | None) -> torch.device:
    """The GPU of worker `number`, where there are several and they are to be shared."""
    chosen = torch.device(device)
    if number is None or chosen.type != "cuda" or torch.cuda.device_count() < 2:
        return chosen
    return torch.device("cuda", number % torch.cuda.device_count())


# --- a cluster -----------------------------------------------------------------------------------


def run_on_dask(
    work: Workload,
    cells: Iterable[Cell],
    device: torch.device,
    address: str,
    workers: int = 2,
    threads: int | None = None,
) -> Iterator[CellResult]:
    """Compute on a Dask cluster: the scheduler at `address`, or "local" for one made here."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingPartError(
            "a Dask cluster needs the package distributed: `pip install prismask[cluster]`. "
            "Several processes on this machine need nothing: --workers 4."
        ) from error
    if address != "local":
        with Client(address) as client:
            yield from run_with_client(client, work, cells, device, threads)
        return
    # One thread a worker: torch has its own, and a model is not made for two callers at once.
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield from run_with_client(client, work, cells, device, threads)


def run_with_client(
    client: Any,
    work: Workload,
    cells: Iterable[Cell],
    device: torch.device,
    threads: int | None = None,
) -> Iterator[CellResult]:
    """Compute through a `distributed.Client`; the workload travels to each worker once."""
    name = secrets.token_hex(8)
    sent = client.scatter(work, broadcast=True, hash=False)
    executor = client.get_executor(pure=False)
    crew = max(1, len(client.scheduler_info().get("workers", ())))

    def submit(cell: Cell) -> Future[CellResult]:
        found: Future[CellResult] = executor.submit(
            _run_sent, sent, name, cell, str(device), threads
        )
        return found

    try:
        yield from _in_turn(submit, cells, AHEAD * crew)
    finally:
        executor.shutdown(wait=True)


_sent_bench: tuple[str, Bench] | None = None
_one_at_a_time = threading.Lock()


def _run_sent(
    work: Workload, name: str, cell: Cell, device: str, threads: int | None
) -> CellResult:
    """Runs on a cluster's worker: the bench of the current workload is kept between cells."""
    global _sent_bench
    with _one_at_a_time:
        if _sent_bench is None or _sent_bench[0] != name:
            if threads is not None:
                torch.set_num_threads(threads)
            _sent_bench = (name, Bench(work, torch.device(device)))
        return _sent_bench[1].run(cell)


def _in_turn(
    submit: Callable[[Cell], Future[CellResult]], cells: Iterable[Cell], window: int
) -> Iterator[CellResult]:
    """Keep `window` cells on their way; yield results as they come."""
    pending: set[Future[CellResult]] = set()
    try:
        for cell in cells:
            pending.add(submit(cell))
            if len(pending) >= window:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from _good_ones_first(done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from _good_ones_first(done)
    finally:
        for future in pending:
            future.cancel()


def _good_ones_first(done: set[Future[CellResult]]) -> Iterator[CellResult]:
    """An error ends the run; what finished beside it is kept before."""
    for future in sorted(done, key=lambda future: future.exception() is not None):
        yield future.result()
