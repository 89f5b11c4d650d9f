"""Tasks on a Dask cluster, and clusters that are not there."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from small_tasks import Doing, number_of

from prismask.errors import (
    ConfigError,
    DeviceError,
    FormatError,
    MissingPartError,
    WorkerLostError,
)
from prismask.parallel import cluster
from prismask.parallel.workers import Outcome, Workers, run_tasks

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")


@contextlib.contextmanager
def local_cluster(workers: int) -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as made:
        yield made.scheduler_address


def test_what_was_prepared_serves_its_own_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker outlives a run, and the next one brings another model."""
    monkeypatch.setattr(cluster, "_ready", None)
    monkeypatch.setattr(cluster, "_set_threads", lambda threads: None)
    made: list[str] = []

    def preparing(name: str) -> Any:
        def prepare(number: int | None) -> Any:
            made.append(name)
            return lambda task: f"{name} {task}"

        return prepare

    runs = ("one", "one", "two")
    found = [cluster._run(preparing(name), name, "task", None) for name in runs]
    assert found == ["one task", "one task", "two task"]
    assert made == ["one", "two"]


def test_what_dask_calls_off_was_lost() -> None:
    """Its scheduler does so with all that is under way when it ends."""
    with pytest.raises(WorkerLostError, match="the Dask cluster was lost"):
        cluster._understood(Outcome("task", error=CancelledError()))
    failed = Outcome("task", error=FormatError("x"))
    assert cluster._understood(failed) is failed


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPartError, match=r"pip install prismask\[cluster\]"):
        next(run_tasks(["fine-1"], Doing(tmp_path), Workers(dask="local")))


@pytest.mark.parametrize("address", ["nonsense", "http://host:80", "tcp://host"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a Dask scheduler"):
        cluster.connect(address, 1).__enter__()


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        started = time.monotonic()
        with pytest.raises(DeviceError, match="no Dask scheduler answers at tcp://127"):
            cluster.connect(f"tcp://127.0.0.1:{free.getsockname()[1]}", 1).__enter__()
    assert time.monotonic() - started < 20, "30 s are Dask's own patience"


def test_who_finds_no_workers_goes_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Client:
        def __init__(self, address: str, **_: Any) -> None:
            self.address = address

        def close(self) -> None:
            closed.append(self.address)

    def nobody(client: Any, address: str) -> None:
        raise DeviceError("nobody works there.")

    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(cluster, "_wait_for_a_worker", nobody)
    with pytest.raises(DeviceError, match="nobody works"):
        cluster.connect("tcp://127.0.0.1:8786", 1).__enter__()
    assert closed == ["tcp://127.0.0.1:8786"]


def test_somebody_else_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_talk, args=(server,), daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DeviceError, match="no Dask scheduler answers"):
            cluster.connect(address, 1).__enter__()


def _talk(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            guest, _ = server.accept()
            guest.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            guest.close()


@pytest.mark.slow
def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_FOR_A_WORKER", 0.5)
    with local_cluster(0) as address, pytest.raises(DeviceError, match=f"dask worker {address}"):
        cluster.connect(address, 1).__enter__()


@pytest.mark.slow
def test_deaths_and_errors_take_only_their_own_task(tmp_path: Path) -> None:
    import dask

    levels = logging.getLogger("distributed").level
    tasks = ["fine-1", "bad-3", "die-5", "fine-4", "once-2"]
    # With Dask's own patience, four deaths, the same takes longer. On a single worker the tasks
    # beside the bad one see its deaths as well.
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        workers = Workers(1, threads=1, dask="local")
        outcomes = {one.task: one for one in run_tasks(iter(tasks), Doing(tmp_path), workers)}
    assert sorted(outcomes) == sorted(tasks)
    assert isinstance(outcomes["bad-3"].error, FormatError)
    assert isinstance(outcomes["die-5"].error, WorkerLostError)
    assert "every worker that tried it died" in str(outcomes["die-5"].error)
    done = [outcomes[task].get() for task in ("fine-1", "once-2", "fine-4")]
    assert [number_of(one) for one in done] == ["1", "2", "4"]
    assert not any(one.endswith(f" {os.getpid()}") for one in done)
    assert logging.getLogger("distributed").level == levels


@pytest.mark.slow
def test_two_clusters_on_one_machine() -> None:
    with cluster.connect("local", 1) as one, cluster.connect("local", 1) as other:
        assert one.submit(sum, (1, 2)).result() == other.submit(sum, (1, 2)).result() == 3


@pytest.mark.slow
def test_a_cluster_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 2.0)
    with local_cluster(1) as address:
        outcomes = run_tasks(["fine-1", "long-2", "long-3"], Doing(tmp_path), Workers(dask=address))
        assert number_of(next(outcomes).result) == "1"
    with pytest.raises(WorkerLostError, match="the Dask cluster was lost"):
        next(outcomes)


def test_a_cluster_does_not_become_the_default_of_the_process() -> None:
    dask = pytest.importorskip("dask")
    with cluster.connect(cluster.LOCAL, 1):
        assert dask.config.get("scheduler", None) is None
    assert dask.config.get("scheduler", None) is None
