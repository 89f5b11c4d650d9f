"""What the commands say, and where: results to stdout, remarks to stderr."""

from __future__ import annotations

import sys
from typing import TextIO

from prismask.scenes.formats.text import printable


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
