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
        source = _without_header(_read(Path(text), option))
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


def parse_wavelengths(text: str) -> tuple[float, ...]:
    """`--wavelengths`, which are in nm."""
    from prismask.errors import ValuesError
    from prismask.scenes.units import check_nanometres

    numbers = parse_numbers(text, "--wavelengths")
    try:
        check_nanometres(numbers)
    except ValuesError as problem:
        raise ConfigError(f"--wavelengths: {problem}") from problem
    return numbers


def _without_header(text: str) -> str:
    """A file's text without comments and without the title of its column."""
    lines = [line.partition("#")[0].strip() for line in text.lstrip("\ufeff").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) > 1 and not re.search(r"\d", re.sub(r"[^\W\d]\w*", "", lines[0])):
        lines = lines[1:]
    return "\n".join(lines)


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
