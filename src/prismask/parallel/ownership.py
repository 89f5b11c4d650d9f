"""One owner for a run folder.

Two runs that write into one folder would silently mix their records. The owner holds a lock that
the operating system releases when the process ends, however it ends. A file beside the lock says
who the owner is, so that the message to a second run can.

Runs that share the work on a folder (`shared`) hold it together, provided they do the same work.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prismask.errors import FolderInUseError, OutputExistsError, WriteFailedError

LOCK, OWNER = ".prismask-lock", ".prismask-owner"
"""Names of the lock and of the file about its holder; both may be deleted when nothing runs."""


PATIENCE_SECONDS = 1.0
"""How long to try again while another run is just beginning or ending."""


@contextmanager
def owned(folder: Path | None, what: str) -> Iterator[None]:
    """Hold `folder`, which is made if need be, while the block runs; None: nothing to hold.

    what: the kind of work, such as "a training".

    Raises
    ------
    FolderInUseError
        Another process, or this one, holds it already.
    WriteFailedError
        Nothing can be written there.
    """
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    with _made(folder):
        lock = FileLock(folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise FolderInUseError(_in_use(folder)) from None
        except OSError as problem:
            raise _refusal(folder, problem) from problem
        try:
            _write_owner(folder, what)
            yield
        finally:
            # Before the lock is released: by then its files may belong to another run.
            _clear(folder)
            lock.release()


@contextmanager
def shared(folder: Path, what: str, work: str) -> Iterator[None]:
    """Hold `folder` together with other runs that do the same `work` there, and with no others.

    what: the kind of work, for people; work: what makes it the same, for example a hash.

    Raises `FolderInUseError` and `WriteFailedError` as `owned` does. On systems without POSIX file
    locks nothing is held.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with _made(folder):
        handle = _opened_together(folder, what, work)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails unless this is the last
                _clear(folder)
            os.close(handle)


def _opened_together(folder: Path, what: str, work: str) -> int:
    """A handle that holds the lock together with others; closing it releases the lock."""
    import fcntl

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise _refusal(folder, problem) from problem
        try:
            if _lock(handle, fcntl.LOCK_EX) and os.fstat(handle).st_nlink:
                _write_owner(folder, what, work=work)
                fcntl.flock(handle, fcntl.LOCK_SH)
                return handle
            if _lock(handle, fcntl.LOCK_SH) and os.fstat(handle).st_nlink:
                if _owner(folder).get("work") == work:
                    return handle
                raise FolderInUseError(
                    f"{_in_use(folder)} It has other options, and the results would be mixed."
                )
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > deadline:
            raise FolderInUseError(_in_use(folder))
        time.sleep(PATIENCE_SECONDS / 20)


def _lock(handle: int, kind: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make the folder for the block; if nothing was put into a new one, it is removed again."""
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputExistsError(f"{folder} is a file; give the name of a folder.") from None
    except (OSError, ValueError) as problem:  # ValueError: no name of a file, with a zero in it
        raise _refusal(folder, problem) from problem
    try:
        yield
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()  # only where nothing was left in it


def _refusal(folder: Path, problem: OSError | ValueError) -> WriteFailedError:
    reason = getattr(problem, "strerror", None) or problem
    return WriteFailedError(
        f"nothing can be written into {folder}: {reason}. Choose another folder for the result."
    )


def _write_owner(folder: Path, what: str, **more: str) -> None:
    owner = {"what": what, "process": os.getpid(), "host": socket.gethostname()}
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps({**owner, "since": since, **more})
    try:
        (folder / OWNER).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise _refusal(folder, problem) from problem


def _clear(folder: Path) -> None:
    for name in (OWNER, LOCK):
        with suppress(OSError):
            (folder / name).unlink()


def _owner(folder: Path) -> dict[str, Any]:
    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _in_use(folder: Path) -> str:
    owner = _owner(folder)
    try:
        who = f"{owner['what']} of process {owner['process']} on {owner['host']}"
        who += f", running since {owner['since']}"
    except KeyError:
        who = "another process"
    return f"{folder} is in use by {who}. Wait for it, stop it, or use another folder."
