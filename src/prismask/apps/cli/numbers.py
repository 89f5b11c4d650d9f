"""Lists of numbers on the command line: `450,460,470`, or the name of a text file with them."""

from __future__ import annotations

import re
from pathlib import Path

from prismask.errors import ConfigError

LONGEST_LIST = 10**6
"""Bytes of a file that lists numbers."""


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Numbers separated by commas, blanks or lines, from `text` or from the file it names."""
    source = text
    if re.search(r"[A-Za-z/\\]", text) and _is_file(text):
        source = _read(Path(text), option)
    words = [word for word in re.split(r"[,;\s]+", source) if word]
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if not numbers:
        raise ConfigError(
            f"{option} is {_short(text)!r}; give numbers separated by commas, such as "
            "450,460.5,470, or the name of a text file that holds them."
        )
    return numbers


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, as a list in 1.0e+02 notation may be
        return False


def _read(path: Path, option: str) -> str:
    try:
        if path.stat().st_size > LONGEST_LIST:
            raise ConfigError(f"{option} names {path}, which is too long for a list of numbers.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} names {path}, which is no readable text file.") from error


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}…"
