"""Tasks on a Dask cluster.

A task whose worker dies is given to another one; Dask gives up on it after a few deaths, and on
all that happened to wait at the same workers. Those are suspects: each is tried again with nothing
beside it, and only one that kills its workers then counts as lost.

The workers need Prismask, and tasks that name files need to find them under the same names.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import Any

from prismask.errors import ConfigError, DeviceError, MissingPartError, WorkerLostError
from prismask.parallel.workers import AHEAD, LOCAL, Outcome, Prepare, Result, Task, Workers, in_turn

log = logging.getLogger(__name__)

SECONDS_TO_CONNECT = 5.0
"""A scheduler that is there answers much sooner, even from another continent."""
SECONDS_FOR_A_WORKER = 20.0
"""How long a cluster without a worker is waited for: long enough for one that just starts."""

LOST = (
    "the Dask cluster was lost, or all workers that held what the others need. What was finished "
    "is kept; see that the cluster runs, and go on."
)


def run_on_dask(
    tasks: Iterable[Task], prepare: Prepare[Task, Result], workers: Workers, broadcast: bool = False
) -> Generator[Outcome[Task, Result], None, None]:
    """Do the tasks on the cluster that `workers.dask` names."""
    with connect(workers.dask or LOCAL, workers.count) as client:
        # A local worker knows nothing of cores; others say with --nthreads what they may use.
        threads = workers.share if workers.dask == LOCAL else workers.threads
        yield from run_with_client(client, tasks, prepare, threads, broadcast)


@contextmanager
def connect(address: str, workers: int) -> Iterator[Any]:
    """A `distributed.Client` of the scheduler at `address`, or of a cluster made here.

    Never the default of this process: xarray would send its own work there, even afterwards.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingPartError(
            "a Dask cluster needs the package distributed: `pip install prismask[cluster]`. "
            "Several processes on this machine need nothing: --workers 4."
        ) from error
    with _quietly() as level:
        if address != LOCAL:
            with _client_of(address) as client:
                yield client
            return
        # One thread a worker: torch has its own, and a model is not made for two callers at once.
        here = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            # Any free port: two clusters on one machine would want the same one otherwise.
            dashboard_address="127.0.0.1:0",
            silence_logs=level,
        )
        with here, Client(here, set_as_default=False) as client:
            yield client


def _client_of(address: str) -> Any:
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)
    except ValueError as error:
        raise ConfigError(
            f"{address!r} is no address of a Dask scheduler ({error}); give one such as "
            f"tcp://host:8786, or {LOCAL!r} for a cluster on this machine."
        ) from error
    client = Client.__new__(Client)
    try:
        client.__init__(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except Exception as error:  # nobody, or somebody who speaks another language than Dask
        # What could not connect is half made. Unless it thinks itself closed it waits ten seconds
        # for itself when it is collected, in whichever thread that happens.
        client.status = "closed"
        raise DeviceError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}: {error}). Is `dask "
            "scheduler` running there, and is its port open to this machine?"
        ) from error
    try:
        _wait_for_a_worker(client, address)
    except BaseException:
        client.close()
        raise
    return client


def _wait_for_a_worker(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=SECONDS_FOR_A_WORKER)
    except TimeoutError as error:
        raise DeviceError(
            f"the Dask scheduler at {address} has no worker. Start one on each machine: "
            f"`dask worker {address}`."
        ) from error


@contextmanager
def _quietly() -> Iterator[int]:
    """Dask tells every step of its machinery, and we what matters of it; unless people debug."""
    level = logging.DEBUG if log.isEnabledFor(logging.DEBUG) else logging.CRITICAL
    before = {name: logging.getLogger(name).level for name in ("distributed", "distributed.client")}
    try:
        for name, had in before.items():
            logging.getLogger(name).setLevel(max(had, level))
        yield level
    finally:
        for name, had in before.items():
            logging.getLogger(name).setLevel(had)


def run_with_client(
    client: Any,
    tasks: Iterable[Task],
    prepare: Prepare[Task, Result],
    threads: int | None = None,
    broadcast: bool = False,
) -> Generator[Outcome[Task, Result], None, None]:
    """Do the tasks through a `distributed.Client`."""
    name = secrets.token_hex(8)
    sent = client.scatter(prepare, broadcast=True, hash=False) if broadcast else prepare
    executor = client.get_executor(pure=False)

    def submit(task: Task) -> Future[Result]:
        found: Future[Result] = executor.submit(_run, sent, name, task, threads)
        return found

    def window() -> int:
        # Asked each time: workers come and go.
        try:
            return AHEAD * max(1, len(client.nthreads()))
        except OSError as error:
            raise WorkerLostError(LOST) from error

    suspects: list[Task] = []
    try:
        for outcome in in_turn(submit, tasks, window):
            if _was_killed(outcome.error):
                suspects.append(outcome.task)
            else:
                yield _understood(outcome)
        for outcome in in_turn(submit, suspects, lambda: 1):
            yield _understood(outcome)
    finally:
        # Nothing is on its way any more, unless the run was left early: then it is cancelled.
        with suppress(OSError):  # the cluster may be gone, and that is reported already
            executor.shutdown(wait=False)


def _was_killed(error: BaseException | None) -> bool:
    if error is None:
        return False
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _understood(outcome: Outcome[Task, Result]) -> Outcome[Task, Result]:
    """The outcome with Dask's own errors in our words."""
    if _was_killed(outcome.error):
        lost = WorkerLostError("every worker that tried it died; out of memory?")
        return Outcome(outcome.task, error=lost)
    if isinstance(outcome.error, CancelledError):
        raise WorkerLostError(LOST)
    return outcome


# --- on a worker ---------------------------------------------------------------------------------

_ready: tuple[str, Callable[[Any], Any]] | None = None
_one_at_a_time = threading.Lock()


def _run(prepare: Prepare[Any, Any], name: str, task: Any, threads: int | None) -> Any:
    """What was prepared is kept for the next task of the same run."""
    global _ready
    with _one_at_a_time:
        if _ready is None or _ready[0] != name:
            _set_threads(threads)
            _ready = (name, prepare(None))
        return _ready[1](task)


def _set_threads(threads: int | None) -> None:
    import torch
    from distributed import get_worker

    if threads is None:
        # Dask starts its workers with one thread for torch; one task at a time may have them all.
        threads = get_worker().state.nthreads
    torch.set_num_threads(threads)
