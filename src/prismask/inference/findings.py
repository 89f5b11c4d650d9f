"""A finding: one thing worth knowing about a snapshot, for the person and for the history.

Findings are written in the flags of the command line, where most people read them. `python_words`
says the same with the arguments of `reconstruct`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prismask.errors import PrismaskWarning


@dataclass(frozen=True)
class Finding:
    """One sentence and how much it matters."""

    weight: Literal["note", "warning"]
    """`warning`: the result may be wrong; `note`: good to know."""
    text: str
    """The sentence."""


_SWITCHES = {"align": "align=True", "no-check-mask": "check_mask=False"}
"""Flags that stand alone."""
_CAMERA = {"bands", "step", "offsets", "polynomial", "axis", "design"}
"""Flags that describe the camera: in Python they are arguments of the `CASSI` that is passed."""
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])(?:[ =](-?\d[\d.,]*\d|-?\d|[a-z]+-[\w.-]*\w))?")


def python_words(text: str) -> str:
    """A sentence with the arguments of `reconstruct` instead of flags; `commands` stay.

    >>> python_words("compare with --method gap-tv, or give --align.")
    "compare with method='gap-tv', or give align=True."
    """
    parts = text.split("`")
    parts[::2] = [_FLAG.sub(_argument, part) for part in parts[::2]]
    return "`".join(parts)


def _argument(found: re.Match[str]) -> str:
    flag, value = found[1], found[2]
    if flag in _SWITCHES:
        return _SWITCHES[flag] + (f" {value}" if value else "")
    name = flag.replace("-", "_")
    said = name if value is None else f"{name}={value if value[-1].isdigit() else repr(value)}"
    return f"{said} of the camera" if flag in _CAMERA else said


def warn_in_python(findings: Iterable[str], stacklevel: int = 2) -> None:
    """Pass the warnings among the lines of a history on to `warnings`, in the words of Python."""
    for line in findings:
        weight, _, text = line.partition(": ")
        if weight == "warning":
            warnings.warn(python_words(text), PrismaskWarning, stacklevel=stacklevel + 1)
