"""What reading a file may take: time, memory, and the size of what it says it holds.

A file of a few bytes can claim terabytes, or keep a parser busy for ever. Both limits grow with
the file, so that healthy ones never meet them, and whoever trusts a file may raise them: with
`limits=ReadLimits(…)` where a file is loaded, or for everything that follows, commands too, with
the environment variables `PRISMASK_READ_MEMORY=16GB` and `PRISMASK_READ_SECONDS=600`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from prismask.errors import ConfigError, FormatError
from prismask.parallel.cage import Limits

MEMORY_VARIABLE, SECONDS_VARIABLE = "PRISMASK_READ_MEMORY", "PRISMASK_READ_SECONDS"
"""Environment variables that set the limits."""

MOST_OBJECTS = 10_000
"""Arrays, groups and members of an archive that one file may have."""
MOST_WAVELENGTHS = 65_536
"""Longer lists are no wavelengths of an image."""
MOST_TEXT_BYTES = 2**24
"""Headers, descriptions and attributes are read whole, so they are short."""
DEFLATE_RATIO = 1100
"""No deflate stream grows by more than 1032 times; a header that claims more is wrong."""

_LEAST_MEMORY, _MEMORY_PER_BYTE = 2 * 10**9, 16
_LEAST_SECONDS, _BYTES_PER_SECOND = 10.0, 2e6
_ENDLESS, _BOUNDLESS = 1e7, 2**60
"""What an infinite limit means to the system."""
_COPIES = 4
"""Turning what a file holds into a record takes about four times its size."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class ReadLimits:
    """What reading a file may take; None stands for the limit that grows with the file."""

    seconds: float | None = None
    """Seconds for each array of the file. [default: 10, and one more for every 2 MB]"""
    memory_bytes: int | None = None
    """Memory; arrays may have a quarter of it. [default: 2 GB, and 16 times the file]"""

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; a limit lies above 0.")


_current: ContextVar[ReadLimits | None] = ContextVar("limits of reading", default=None)


@contextmanager
def using(limits: ReadLimits | None) -> Iterator[None]:
    """Read under these limits in the block; None keeps those that hold already."""
    if limits is None:
        yield
        return
    token = _current.set(limits)
    try:
        yield
    finally:
        _current.reset(token)


def limits_for(path: Path) -> Limits:
    """The limits for reading a file: those in use, else the environment's, else by its size."""
    size = 0 if path.is_dir() else file_size(path)
    stated = _current.get() or ReadLimits()
    memory = stated.memory_bytes or _from_environment(MEMORY_VARIABLE)
    seconds = stated.seconds or _from_environment(SECONDS_VARIABLE)
    return Limits(
        min(seconds or _LEAST_SECONDS + size / _BYTES_PER_SECOND, _ENDLESS),
        int(min(memory or _LEAST_MEMORY + _MEMORY_PER_BYTE * size, _BOUNDLESS)),
    )


def check_decoded(path: Path, claimed: int, what: str) -> None:
    """Raise before anything is allocated where an array takes more than reading may."""
    most = limits_for(path).memory_bytes // _COPIES
    if claimed > most:
        raise FormatError(
            f"{path}: {what} would take {bytes_text(claimed)}; arrays of this file may take "
            f"{bytes_text(most)}. {how_to_raise()}"
        )


def check_claim(source: object, claimed: int, held: int, what: str, ratio: int = 1) -> None:
    """Raise before anything of the claimed size is allocated that the file cannot hold.

    `claimed` bytes are stated by the header, `held` bytes are in the file, and compression may
    make up for a factor `ratio`.
    """
    if claimed > held * ratio:
        raise FormatError(
            f"{source}: {what} claims {bytes_text(claimed)}, but the file holds only "
            f"{bytes_text(held)}. It is cut short, or its header is wrong."
        )


def check_count(source: object, count: int, what: str) -> None:
    """Raise where a file has more arrays or groups than anyone could mean."""
    if count > MOST_OBJECTS:
        raise FormatError(
            f"{source} holds more than {MOST_OBJECTS:,} {what}, which is the limit. Copy what "
            "you need into a file of its own."
        )


def file_size(path: Path) -> int:
    """Bytes in a file."""
    return path.stat().st_size


def how_to_raise() -> str:
    """What to do where a healthy file meets a limit."""
    return (
        f"If you trust the file, raise the limit: {MEMORY_VARIABLE}=16GB (or "
        "limits=ReadLimits(memory_bytes=…))."
    )


def bytes_text(count: int) -> str:
    """`11200000000` → `11.2 GB`."""
    for unit, size in (("bytes", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if count < 1000 * size:
            return f"{count / size:.4g} {unit}"
    # Divided as whole numbers: a header may state more than a float can hold.
    terabytes = count // 10**12
    return f"{count / 10**12:,.4g} TB" if terabytes < 10**9 else "more than 10⁹ TB"


def _from_environment(name: str) -> float | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?B?)", text.upper())
    word = match[2] if match else None
    if match is None or word is None or float(match[1]) <= 0:
        wanted = "a size such as 16GB" if name == MEMORY_VARIABLE else "seconds, such as 600"
        raise ConfigError(f"the environment has {name}={text!r}; it should be {wanted}.")
    return float(match[1]) * _UNITS[word if word in _UNITS else f"{word}B"]
