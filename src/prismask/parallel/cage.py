"""Tasks that may crash, hang or fill the memory, in a process where that harms nobody.

    facts, arrays = run_caged("package.module:function", [argument, …],
                              Limits(seconds=10, memory_bytes=2**31), modules=["h5py"])

`function(*arguments)` takes what JSON can hold and returns facts (JSON again) and arrays of
numbers. It runs in a fresh process, forked from a warm one that has imported `modules`. Arrays come
back through an unnamed file in memory, so nothing is left behind, however this process ends.
Answers are never unpickled: a process that a crafted file has taken over must not be able to take
this one over as well. Calls may come from any thread and any process.

In a `StandingCage`, what a task has prepared, a network on its device, is there for the next:

    facts = StandingCage(folder).call("package.module:function", [argument, …], limits, report)

Its tasks take `report(done, total)` before their own arguments, and give facts and no arrays. Only
where one crashes, hangs or is called off is the process replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask import errors
from prismask.errors import PrismaskError
from prismask.parallel.cage_process import HEAD, LARGEST_ANSWER

MOST_IDLE = 2
"""Warm processes that are kept for the next call."""
GRACE_SECONDS = 30.0
"""What starting a process and importing parsers may take on top of the task's own time."""
POLL_SECONDS = 0.1
"""How soon a task that was called off is stopped."""

LONGEST_LINE = 64

Report = Callable[[int, int], None]
"""Takes how many parts of a task are done, and how many there are."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from prismask.parallel.cage_process import serve; serve(int(sys.argv[2]))"
)
_STAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from prismask.parallel.cage_process import stand; stand(int(sys.argv[2]), sys.argv[3])"
)


class CageError(PrismaskError, RuntimeError):
    """The task gave no answer."""


class TimeLimitError(CageError):
    """The task took too long and was stopped."""


class MemoryLimitError(CageError):
    """The task needed more memory than it may have."""


class CrashError(CageError):
    """The task's process died; the message says how."""


class TaskFailedError(CageError):
    """The task raised something that is no `PrismaskError`; the message has its type and text.

    Its traceback is among the notes, which logs show and messages do not.
    """


class CancelledError(CageError):
    """Somebody called the task off, and it was stopped."""


@dataclass(frozen=True)
class Limits:
    """What a task may use."""

    seconds: float
    """Seconds on the clock."""
    memory_bytes: int
    """Memory beyond what the process takes before it starts."""


def is_supported() -> bool:
    """Whether this system can fork and limit processes; Windows cannot."""
    # A program frozen into one file has no interpreter that could be started.
    return hasattr(os, "fork") and bool(sys.executable) and not getattr(sys, "frozen", False)


def run_caged(
    task: str,
    arguments: Sequence[Any],
    limits: Limits,
    modules: Sequence[str] = (),
    is_cancelled: Callable[[], bool] | None = None,
) -> tuple[Any, list[NDArray[Any]]]:
    """Do a task; raises its own `PrismaskError`, or a `CageError` where it gave no answer."""
    order = order_for(task, arguments, limits) | {"modules": list(modules)}
    cage = _borrow()
    try:
        code = cage.call(order, limits.seconds + GRACE_SECONDS, is_cancelled=is_cancelled)
        _check_exit(code, limits)
        answer, arrays = cage.answer()
    except BaseException as problem:
        # A task that ended, however badly, leaves a good cage; anything else (Ctrl-C too) may
        # have left it in the middle of something.
        if isinstance(problem, CageError) and not cage.is_lost:
            _give_back(cage)
        else:
            cage.kill()
        raise
    _give_back(cage)
    return facts_of(answer), arrays


def order_for(task: str, arguments: Sequence[Any], limits: Limits) -> dict[str, Any]:
    """A task as a cage reads it."""
    return {
        "task": task,
        "arguments": list(arguments),
        "modules": [],
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "folder": _working_folder(),
        "log_level": logging.getLogger("prismask").getEffectiveLevel(),
    }


def facts_of(answer: dict[str, Any]) -> Any:
    """What a task found out; raises what it raised, and logs again what it logged."""
    for name, level, text in answer.get("messages", []):
        logging.getLogger(str(name)).log(int(level), "%s", str(text))
    if "error" in answer:
        problem = _error(str(answer["error"]), str(answer["message"]))
        problem.add_note(str(answer.get("traceback", "")))
        raise problem
    return answer["facts"]


class Cage:
    """A warm process and its scratch file, for one call at a time."""

    def __init__(self, standing: bool = False, folder: Path | None = None) -> None:
        """standing: one that does tasks itself; it removes `folder` should its caller be killed."""
        self.scratch = _scratch_file()
        self.is_lost = False
        path = json.dumps([str(Path(_working_folder(), entry)) for entry in sys.path])
        # A process with threads of its own must not fork.
        single = () if standing else ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = os.environ | dict.fromkeys(single, "1")
        words = [_STAND if standing else _START, path, str(self.scratch), str(folder or "")]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                pass_fds=(self.scratch,), start_new_session=True, env=environment, bufsize=0,
                cwd="/",  # no folder is kept busy by a process that only waits
            )  # fmt: skip
        except OSError as problem:
            os.close(self.scratch)
            raise CrashError(f"a process could not be started: {problem.strerror}.") from problem
        _all.add(self)

    def call(
        self,
        order: dict[str, Any],
        seconds: float,
        report: Report | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> int:
        """Have a task done; gives the exit code of its process, negative for a signal."""
        assert self.process.stdin is not None
        deadline = time.monotonic() + seconds
        text = json.dumps(order).encode() + b"\n"
        try:
            os.ftruncate(self.scratch, 0)
            self.process.stdin.write(text)
            while True:
                code, *progress = map(int, self._line(deadline, is_cancelled).split())
                if not progress:
                    return code
                if report is not None:
                    report(code, *progress)
        except (OSError, ValueError, TypeError) as problem:
            self.is_lost = True
            raise CrashError("the process that does such tasks ended.") from problem

    def _line(self, deadline: float, is_cancelled: Callable[[], bool] | None) -> bytes:
        assert self.process.stdout is not None
        pause = 1000.0 if is_cancelled is None else POLL_SECONDS
        handle = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left < 0:
                self.is_lost = True
                raise TimeLimitError("no answer came in time.")
            if is_cancelled is not None and is_cancelled():
                self.is_lost = True
                raise CancelledError("cancelled.")
            if not poll.poll(1000 * min(left + 0.01, pause)):
                continue
            # One byte at a time: whatever follows this line belongs to the next.
            got = os.read(handle, 1)
            if not got or len(line) > LONGEST_LINE:
                raise OSError("the pipe was closed, or has nonsense in it")
            line += got
        return line

    def answer(self) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """What the task wrote; every size is checked against the file before it is believed."""
        size = os.fstat(self.scratch).st_size
        head = os.pread(self.scratch, HEAD.size, 0)
        position, length = HEAD.unpack(head) if len(head) == HEAD.size else (0, 0)
        if not length or length > LARGEST_ANSWER or position + length > size:
            raise CrashError("the process ended without an answer.")
        answer = json.loads(os.pread(self.scratch, length, position))
        arrays = [self._array(facts, size) for facts in answer.get("arrays", [])]
        os.ftruncate(self.scratch, 0)
        return answer, arrays

    def _array(self, facts: dict[str, Any], size: int) -> NDArray[Any]:
        dtype = np.dtype(str(facts["dtype"]))
        shape = tuple(int(n) for n in facts["shape"])
        position = int(facts["position"])
        count = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "fiub" or min(shape, default=1) < 0 or position + count > size:
            raise CrashError("the process gave an answer that cannot be.")
        array = np.empty(shape, dtype)
        target = array.reshape(-1).view(np.uint8).data
        done = 0
        while done < count:
            got = os.preadv(self.scratch, [target[done : done + 2**30]], position + done)
            if not got:
                raise CrashError("the process gave an answer cut short.")
            done += got
        return array.T if facts["columns_first"] else array

    def kill(self) -> None:
        """End the process and whatever it forked."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let the process end, which it does when nobody can ask for more."""
        self.release()
        self.process.wait()

    def release(self) -> None:
        """Close what this process holds of the cage."""
        _all.discard(self)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.scratch >= 0:
            os.close(self.scratch)
            self.scratch = -1


def _working_folder() -> str:
    """Where relative paths start; this process may have moved since the warm one was started."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "/"


def _scratch_file() -> int:
    """An unnamed file, in memory where the system has such: gone with the last who holds it."""
    import fcntl

    with (
        os.fdopen(os.memfd_create("prismask"))
        if hasattr(os, "memfd_create")
        else tempfile.TemporaryFile() as file
    ):
        # Above those of stdin, stdout and stderr, which this process may have closed.
        return fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)


def _check_exit(code: int, limits: Limits) -> None:
    if code == -signal.SIGALRM:
        raise TimeLimitError(f"stopped after {limits.seconds:g} s.")
    if code < 0:
        names = {member.value: member.name for member in signal.Signals}
        raise CrashError(f"the process crashed ({names.get(-code, f'signal {-code}')}).")
    if code > 0:
        # Nothing but a lack of memory keeps it from saying what went wrong.
        raise MemoryLimitError("the process had no memory left to answer.")


def _error(name: str, message: str) -> PrismaskError:
    if name == "MemoryError":
        return MemoryLimitError("it needs more memory than it may have.")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, PrismaskError):
        return kind(message)
    return TaskFailedError(message)


# --- cages at hand -------------------------------------------------------------------------------

_idle: list[Cage] = []
_all: weakref.WeakSet[Cage] = weakref.WeakSet()
_guard = threading.Lock()


def _borrow() -> Cage:
    while True:
        with _guard:
            cage = _idle.pop() if _idle else None
        if cage is None:
            return Cage()
        if cage.process.poll() is None:
            return cage
        cage.close()  # somebody ended it meanwhile


def _give_back(cage: Cage) -> None:
    with _guard:
        if len(_idle) < MOST_IDLE:
            _idle.append(cage)
            return
    cage.close()


def _close_all() -> None:
    with _guard:
        waiting = list(_idle)
        _idle.clear()
    for cage in waiting:
        cage.close()


def _forget_all() -> None:
    """After a fork: the cages belong to the parent."""
    global _guard
    _guard = threading.Lock()
    _idle.clear()
    for cage in list(_all):
        cage.release()
        cage.process.returncode = 0  # not ours to wait for


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


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
