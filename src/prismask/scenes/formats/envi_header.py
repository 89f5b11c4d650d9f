"""The text of ENVI headers: `key = value` lines, where braces may span several.

Read here and not by `spectral`, which knows no encoding but UTF-8, splits every list at its
commas, our provenance too, and takes time that grows with the square of a list's lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from prismask.errors import FormatError
from prismask.scenes.formats.limits import MOST_TEXT_BYTES, file_size


def parse_header(path: Path) -> dict[str, str]:
    """The fields of a header, keys in lower case, braces taken off."""
    if file_size(path) > MOST_TEXT_BYTES:
        raise FormatError(f"{path} is too large for an ENVI header; is it the data file?")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    lines = text.splitlines()
    if not lines or lines[0].lstrip("\ufeff").strip() != "ENVI":
        raise FormatError(f"{path} is not an ENVI header: its first line is not 'ENVI'.")
    fields: dict[str, str] = {}
    rest = iter(lines[1:])
    for line in rest:
        key, equals, value = line.partition("=")
        if not equals or line.lstrip().startswith(";"):
            continue
        value = value.strip()
        if value.startswith("{"):
            value = _braced(path, key.strip(), value, rest)
        fields[_key(key)] = value
    return fields


def _braced(path: Path, key: str, start: str, rest: Iterator[str]) -> str:
    """What stands between braces, which may span several lines."""
    lines = [start]
    while "}" not in lines[-1]:
        following = next(rest, None)
        if following is None:
            raise FormatError(
                f"{path}: the list of {key!r} has no closing brace. The header is cut short, or "
                "the brace is missing."
            )
        lines.append(following.strip())
    value = " ".join(lines)
    return value[1 : value.index("}")].strip()


def whole(path: Path, fields: dict[str, str], key: str, default: int | None = None) -> int:
    """A whole number of the header."""
    if key not in fields and default is not None:
        return default
    if key not in fields:
        raise FormatError(f"{path} has no '{key}'. The header is cut short or not complete.")
    try:
        return int(fields[key])
    except ValueError as problem:
        raise FormatError(f"{path}: {key} is {fields[key]!r}, not a whole number.") from problem


def numbers(
    path: Path, fields: dict[str, str], key: str, count: int | None = None
) -> list[float] | None:
    """A list of numbers of the header, None if it is not there; `count` is how many fit."""
    if key not in fields:
        return None
    words = [word for word in fields[key].replace(",", " ").split() if word]
    try:
        values = [float(word) for word in words]
    except ValueError as problem:
        raise FormatError(
            f"{path}: {key} holds something that is no number: {problem}."
        ) from problem
    if count is not None and len(values) != count:
        what = "is empty ({})" if not values else f"lists {len(values)}"
        raise FormatError(
            f"{path}: {key} {what}, but there are {count} bands. Fill the list, or remove the line."
        )
    if not all(math.isfinite(value) for value in values):
        raise FormatError(f"{path}: {key} holds a number that is not finite.")
    return values


def _key(text: str) -> str:
    return " ".join(text.lower().split())
