"""What strangers are told where a process that worked for them gave no answer."""

from __future__ import annotations

import logging

from prismask.errors import PrismaskError
from prismask.parallel.cage import CrashError, MemoryLimitError, TaskFailedError

_log = logging.getLogger(__name__)


def told(problem: PrismaskError) -> str:
    """An error of a cage in words for people who neither see nor know the server."""
    if isinstance(problem, TaskFailedError):
        # A fault of ours: the log has it all, a stranger gets its name.
        _log.error("a task failed", exc_info=problem)
        return f"it could not be done ({str(problem).partition(':')[0]})."
    if isinstance(problem, MemoryLimitError):
        return "it needs more memory than is allowed here."
    if isinstance(problem, CrashError):
        return (
            "the process that worked on this ended without an answer; the file may be damaged, "
            "or memory ran out."
        )
    return str(problem)
