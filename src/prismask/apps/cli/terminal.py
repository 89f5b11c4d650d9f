"""What the commands say, and where: results to stdout, remarks to stderr."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from prismask.scenes.formats.text import printable


def settle_streams() -> None:
    """Make the surroundings of a process such that nothing written can end it.

    Closed streams become nothing: files would else get their numbers, and be written into. Letters
    that a stream cannot show become their codes, also those of the help. A terminal without a width
    has none that anybody could write for.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least free number, which is this one
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS", "1")
    if not (columns.isascii() and columns.isdigit() and int(columns) > 0):
        del os.environ["COLUMNS"]


def say(text: str) -> None:
    """A result, for the person or the next program in the pipe."""
    _write(sys.stdout, text)


def remark(text: str) -> None:
    """Something worth knowing that is not the result."""
    _write(sys.stderr, text)
    sys.stderr.flush()


def _write(stream: TextIO, text: str) -> None:
    """Write what a terminal shows and never obeys; letters it cannot show become their codes."""
    line = f"{printable(text)}\n"
    try:
        stream.write(line)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding))


def complain(text: str) -> None:
    """One sentence about what went wrong."""
    remark(f"prismask: {' '.join(text.split())}")


def table(rows: list[tuple[str, str]], indent: str = "") -> str:
    """Names and values in two aligned columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{indent}{name:<{width}}  {value}".rstrip() for name, value in rows)
