"""A helper process that can be killed: what reads or computes for strangers runs in one.

    worker = KillableProcess("reader", folder)
    answer = worker.call(task, (argument, …), seconds=30)

`task(report, *arguments)` is a module-level function that returns what JSON can hold. The
process stays for the next call, unless it had to be killed; then the next call starts another.
Answers come back as JSON, not as pickles: a process that a crafted file has taken over must not
be able to take this one over as well.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prismask.errors import PrismaskError

Report = Callable[[int, int], None]
Task = Callable[..., Any]

POLL_SECONDS = 0.1
MOST_BYTES = 2**20
"""Answers are short; a longer one is a fault."""
LONGEST_MESSAGE = 2000

_log = logging.getLogger(__name__)


class RefusedError(PrismaskError, ValueError):
    """The task refused what it was given; the message is meant for people."""


class WorkerDiedError(PrismaskError, RuntimeError):
    """The process ended without an answer."""


class TimeLimitError(PrismaskError, TimeoutError):
    """The task took too long and was killed."""


class CancelledError(PrismaskError, RuntimeError):
    """Somebody called the task off and it was killed."""


class KillableProcess:
    """A process for one call at a time."""

    def __init__(self, name: str, folder: Path, memory_bytes: int | None = None) -> None:
        """memory_bytes: what tasks may use beyond what the process takes for itself."""
        self._name = name
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._process: Any = None
        self._connection: Connection | None = None
        self._closed = False

    def call(
        self,
        task: Task,
        arguments: tuple[Any, ...],
        seconds: float,
        report: Report | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Any:
        """Run `task` there; raises one of the errors of this module where it gives no answer."""
        with self._lock:
            if self._closed:
                raise CancelledError("the server is shutting down.")
            deadline = time.monotonic() + seconds
            connection = self._started()
            try:
                connection.send((task, arguments))
                return self._wait(connection, deadline, seconds, report, is_cancelled)
            except (TimeLimitError, CancelledError):
                self._kill()
                raise
            except RefusedError:
                raise
            except (EOFError, OSError, ValueError) as problem:
                self._kill()
                raise WorkerDiedError(
                    "the process that worked on this ended without an answer; the file may be "
                    "damaged, or memory ran out."
                ) from problem

    @property
    def is_ready(self) -> bool:
        """Whether the process of an earlier call is there for the next."""
        process = self._process
        try:
            return process is not None and bool(process.is_alive())
        except ValueError:  # it has just been put away
            return False

    def close(self) -> None:
        """Kill the process, even in the middle of a call."""
        self._closed = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ValueError):  # a call may just have put it away
                process.kill()
        with self._lock:
            self._kill()

    def _wait(
        self,
        connection: Connection,
        deadline: float,
        seconds: float,
        report: Report | None,
        is_cancelled: Callable[[], bool] | None,
    ) -> Any:
        while True:
            if is_cancelled is not None and is_cancelled():
                raise CancelledError("cancelled.")
            if time.monotonic() > deadline:
                raise TimeLimitError(f"stopped after {seconds:g} s, the time limit.")
            if not connection.poll(POLL_SECONDS):
                continue
            word, content = json.loads(connection.recv_bytes(MOST_BYTES))
            if word == "progress" and report is not None:
                report(int(content[0]), int(content[1]))
            elif word == "done":
                return content
            elif word == "refused":
                raise RefusedError(str(content))

    def _started(self) -> Connection:
        if self._process is not None and self._process.is_alive() and self._connection is not None:
            return self._connection
        self._kill()
        # Fork would copy the state of threads, of which this process has several.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, str(self._folder), self._memory_bytes)
        self._process = context.Process(
            target=_work, args=arguments, name=f"prismask-{self._name}", daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours
        return ours

    def _kill(self) -> None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.join()
            process.close()


# --- in the other process -----------------------------------------------------------------------


def _work(connection: Connection, folder: str, memory_bytes: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    threading.Thread(target=_follow, args=(folder,), daemon=True).start()
    _limit_memory(memory_bytes)
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > POLL_SECONDS or done == total:
            last = now
            _send(connection, "progress", [done, total])

    while True:
        try:
            task, arguments = connection.recv()
        except EOFError:
            return
        try:
            _send(connection, "done", task(report, *arguments))
        except PrismaskError as error:
            _send(connection, "refused", str(error)[:LONGEST_MESSAGE])
        except Exception as error:
            if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's words
                _send(connection, "refused", "it needs more memory than is allowed here.")
                continue
            # A fault of ours: the log has it all, a stranger gets its name.
            _log.exception("a task failed")
            _send(connection, "refused", f"it could not be done ({type(error).__name__}).")


def _send(connection: Connection, word: str, content: Any) -> None:
    connection.send_bytes(json.dumps([word, content]).encode())


def _follow(folder: str) -> None:
    """End with the server even where it was killed, and leave none of its files behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _limit_memory(memory_bytes: int | None) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    if memory_bytes is None:
        return
    # Not the address space: a GPU's driver reserves far more of that than anybody uses.
    most = _private_bytes() + memory_bytes
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(ValueError, OSError):  # not every system has it
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _private_bytes() -> int:
    """Memory that this process has to itself, as the limit counts it."""
    try:
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
        return int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 2**30
