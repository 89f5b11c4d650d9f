"""What the commands say, and where: results to stdout, remarks to stderr."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A result, for the person or the next program in the pipe."""
    sys.stdout.write(f"{text}\n")


def remark(text: str) -> None:
    """Something worth knowing that is not the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """One sentence about what went wrong."""
    remark(f"prismask: {' '.join(text.split())}")


def table(rows: list[tuple[str, str]], indent: str = "") -> str:
    """Names and values in two aligned columns."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{indent}{name:<{width}}  {value}".rstrip() for name, value in rows)
