"""The inside of the cage: a warm process that forks a fresh one for every task.

The warm process has imported NumPy and whatever parsers were needed before, and nothing else: no
byte of any file ever reaches it. The fresh process does one task under its limits, writes the
answer into the scratch file and ends. So no file can harm the reading of the next one, and all
memory goes back to the system. A standing process (`stand`) does its tasks itself instead.

    scratch file: position and length of the JSON answer (16 bytes) · arrays · JSON
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import select
import shutil
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from prismask.errors import PrismaskError

if sys.platform != "win32":
    import resource

HEAD = struct.Struct("<QQ")
"""Position and length of the answer."""
LARGEST_ANSWER = 2**24
"""Facts are short; arrays travel beside them."""
LONGEST_MESSAGE = 4000
MOST_MESSAGES = 100
REPORT_SECONDS = 0.1

Task = Callable[..., tuple[Any, list[NDArray[Any]]]]


def serve(scratch: int) -> None:
    """Do one task after the other until nobody can ask for more."""
    replies, requests = _streams()
    for line in requests:
        order = json.loads(line)
        for name in order["modules"]:
            # A module that is missing is reported by the task that needs it.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        # What is there for good need not be looked at, and thereby copied, in every fork.
        gc.freeze()
        code = _in_a_fork(order, scratch, replies, requests.fileno())
        os.write(replies, f"{code}\n".encode())


def stand(scratch: int, folder: str) -> None:
    """Do one task after the other in this process, which keeps what they have prepared.

    Should whoever asks be killed, the `folder` is removed that it would have removed itself.
    """
    replies, requests = _streams()
    watch = threading.Thread(target=_end_with_caller, args=(requests.fileno(), folder), daemon=True)
    watch.start()
    own = _private_bytes()
    for line in requests:
        order = json.loads(line)
        with contextlib.suppress(OSError):  # it may be gone
            os.chdir(order["folder"])
        # Not the address space: a GPU's driver reserves far more of that than anybody uses.
        _set_limits({resource.RLIMIT_DATA: own + int(order["memory_bytes"])}, for_good=False)
        order["arguments"].insert(0, _Progress(replies))
        _do(order, scratch)
        os.write(replies, b"0\n")
    watch.join()


def _streams() -> tuple[int, IO[bytes]]:
    """Where answers go and orders come from."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who ends us
    _set_limits({resource.RLIMIT_CORE: 0})
    # What a parser prints must not be taken for an answer.
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    return replies, sys.stdin.buffer


class _Progress:
    """Tells how far a task is, no oftener than anybody looks."""

    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last > REPORT_SECONDS or done == total:
            self._last = now
            os.write(self._replies, f"{int(done)} {int(total)}\n".encode())


def _end_with_caller(requests: int, folder: str) -> None:
    """End when nobody can ask for more, in the middle of a task too."""
    poll = select.poll()
    poll.register(requests, 0)  # nothing but the end of the pipe
    poll.poll()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _in_a_fork(order: dict[str, Any], scratch: int, replies: int, requests: int) -> int:
    """Do the task in a process of its own; gives its exit code, negative for a signal."""
    ended, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(replies)
        os.close(ended)
        _work_and_exit(order, scratch)
    os.close(held)
    # The pipe closes when the task's process ends; requests can only end as long as it works,
    # which means that whoever asked was killed.
    ready, _, _ = select.select([ended, requests], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
        os._exit(1)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work_and_exit(order: dict[str, Any], scratch: int) -> NoReturn:
    code = 1
    try:
        with contextlib.suppress(OSError):  # it may be gone
            os.chdir(order["folder"])
        _limit(float(order["seconds"]), int(order["memory_bytes"]))
        _do(order, scratch)
        code = 0
    finally:
        os._exit(code)


def _do(order: dict[str, Any], scratch: int) -> None:
    try:
        _write_answer(scratch, _answer(order, scratch))
    except (TypeError, ValueError, RecursionError) as problem:  # facts that JSON cannot hold
        message = f"{type(problem).__name__}: {problem}"[:LONGEST_MESSAGE]
        _write_answer(scratch, {"error": "Exception", "message": message, "messages": []})


def _limit(seconds: float, memory_bytes: int) -> None:
    """The kernel ends what runs too long or grows too large, whatever C code it is in."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    _set_limits(
        {
            resource.RLIMIT_AS: _address_space() + memory_bytes,
            resource.RLIMIT_FSIZE: memory_bytes + LARGEST_ANSWER,
        }
    )


def _set_limits(limits: dict[int, int], for_good: bool = True) -> None:
    """for_good: nobody can raise them again; else the next task has its own."""
    for which, most in limits.items():
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # not every system has all of them
            resource.setrlimit(which, (most, most if for_good else hard))


def _address_space() -> int:
    """Bytes of address space that are taken before the task starts."""
    return _pages(0, 2**32)


def _private_bytes() -> int:
    """Memory that this process has to itself, as the limit on data counts it."""
    return _pages(5, 2**30)


def _pages(field: int, unknown: int) -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return unknown


def _answer(order: dict[str, Any], scratch: int) -> dict[str, Any]:
    messages = _Messages(int(order["log_level"]))
    logging.basicConfig(level=messages.level, handlers=[messages], force=True)
    try:
        module, _, name = str(order["task"]).partition(":")
        task: Task = getattr(importlib.import_module(module), name)
        facts, arrays = task(*order["arguments"])
        position = HEAD.size
        placed = []
        for array in arrays:
            placed.append(_put(scratch, array, position))
            position += array.nbytes
        answer = {"facts": facts, "arrays": placed, "end": position}
    except MemoryError:
        answer = {"error": "MemoryError", "message": ""}
    except PrismaskError as problem:
        answer = {"error": type(problem).__name__, "message": str(problem)[:LONGEST_MESSAGE]}
    except Exception as problem:
        text = f"{type(problem).__name__}: {problem}"[:LONGEST_MESSAGE]
        # torch has no error of its own for a lack of memory.
        name = "MemoryError" if "allocate memory" in text else "Exception"
        trace = traceback.format_exc()[-LONGEST_MESSAGE:]
        answer = {"error": name, "message": text, "traceback": trace}
    return answer | {"messages": messages.kept}


def _put(scratch: int, array: NDArray[Any], position: int) -> dict[str, Any]:
    """Write an array; one that lies column by column, as MATLAB has it, is not turned around."""
    if array.dtype.kind not in "fiub":
        raise TypeError(f"an array of {array.dtype} is no array of numbers.")
    columns_first = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
    stored = array.T if columns_first else array
    _write(scratch, np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data, position)
    return {
        "position": position,
        "shape": list(stored.shape),
        "dtype": array.dtype.str,
        "columns_first": columns_first,
    }


def _write_answer(scratch: int, answer: dict[str, Any]) -> None:
    position = int(answer.pop("end", HEAD.size))
    text = json.dumps(answer).encode()
    if len(text) > LARGEST_ANSWER:
        message = f"what it says besides its numbers takes {len(text)} bytes."
        text = json.dumps({"error": "FormatError", "message": message, "messages": []}).encode()
    _write(scratch, memoryview(text), position)
    # Last, so that an answer cut short is none.
    _write(scratch, memoryview(HEAD.pack(position, len(text))), 0)


def _write(scratch: int, data: memoryview, position: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(scratch, data[done : done + 2**30], position + done)


class _Messages(logging.Handler):
    """Keeps what is logged, to be logged again where people read it."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if len(self.kept) < MOST_MESSAGES and record.name.startswith("prismask"):
            text = record.getMessage()[:LONGEST_MESSAGE]
            self.kept.append((record.name, record.levelno, text))
