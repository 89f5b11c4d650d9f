"""One owner for a run folder.

Two runs that write into one folder would mix their records without a word. The owner holds a lock
that the operating system releases when the process ends, however it ends; beside it lies who that
is, for the message that the second one gets.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prismask.errors import FolderInUseError

LOCK, OWNER = ".prismask-lock", ".prismask-owner"
"""Names of the lock and of what is known of its holder; both may be deleted when nothing runs."""


@contextmanager
def owned(folder: Path | None, what: str) -> Iterator[None]:
    """Hold `folder`, which is made if need be, while the block runs; None: nothing to hold.

    what: the kind of work, such as "a training".

    Raises
    ------
    FolderInUseError
        Another process, or this one, holds it already.
    """
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout

    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FolderInUseError(_told(folder)) from None
    owner = {"what": what, "process": os.getpid(), "host": socket.gethostname()}
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    (folder / OWNER).write_text(json.dumps({**owner, "since": since}), encoding="utf-8")
    try:
        yield
    finally:
        (folder / OWNER).unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):
            (folder / LOCK).unlink()
            if made:
                folder.rmdir()  # only where nothing was left in it


def _told(folder: Path) -> str:
    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        who = f"{owner['what']} of process {owner['process']} on {owner['host']}"
        who += f", running since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{folder} is in use by {who}. Wait for it, stop it, or use another folder."
