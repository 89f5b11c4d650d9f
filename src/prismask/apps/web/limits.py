"""How much a visitor may ask for."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds on uploads, jobs and memory; small enough to be sent to a worker."""

    upload_bytes: int = 256 * MEBIBYTE
    """Largest request, snapshot and mask together."""
    uploads: int = 4
    """Uploads that may be under way at the same time."""
    values: int = 64 * MEBIBYTE
    """Most numbers in a snapshot or mask, by its header."""
    cube_values: int = 96 * MEBIBYTE
    """Most numbers in a cube: height × width × bands. A network takes eleven times their memory and
    half a gigabyte, GAP-TV six times."""
    queue: int = 8
    """Jobs that may wait."""
    seconds: float = 900.0
    """How long one job may run."""
    check_seconds: float = 30.0
    """How long reading an upload may take."""
    keep_seconds: float = 3600.0
    """How long a finished job and its result are kept."""
    result_bytes: int = 4096 * MEBIBYTE
    """Memory for results; beyond it the oldest goes."""
    picture_bytes: int = 256 * MEBIBYTE
    """Memory for rendered pictures."""
    memory: int = 6144 * MEBIBYTE
    """Memory of a process that works for visitors, whether it reads what they sent or reconstructs;
    a bomb that grows beyond it just fails."""
