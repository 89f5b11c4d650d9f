"""Provenance as text: attributes of a record to JSON and back, whatever they hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prismask.errors import FormatError


def plain(value: Any) -> Any:
    """The value made of what JSON knows: NumPy becomes numbers and lists, anything odd a string.

    NaN and infinity become the strings "nan", "inf", "-inf", since JSON has no such numbers.
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def to_json(attrs: Mapping[str, Any]) -> str:
    """Attributes as one line of ASCII JSON."""
    return json.dumps(plain(attrs), allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """Attributes from `to_json`'s line."""
    try:
        attrs = json.loads(text)
    except (ValueError, RecursionError) as problem:  # ValueError: numbers of thousands of digits
        raise FormatError(f"the provenance is not valid JSON: {problem}.") from problem
    if not isinstance(attrs, dict):
        raise FormatError("the provenance is not a JSON object.")
    return attrs
