"""The same sentence for two readers: flags for those who type commands, arguments for Python.

Messages of errors and findings are written with the flags of the command line. Where Python code
calls, `told_in_python` puts the arguments of the functions in their place; commands and the web
page, which has words of its own, say `speaking_flags` and get them as they were written.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from prismask.errors import PrismaskError, PrismaskWarning

P = ParamSpec("P")
R = TypeVar("R")

_speaks_flags: ContextVar[bool] = ContextVar("speaks_flags", default=False)

_SWITCHES = {
    "align": "align=True",
    "average": "average=True",
    "no-align": "align=False",
    "no-check-mask": "check_mask=False",
    "overwrite": "overwrite=True",
    "resume": "resume=True",
}
"""Flags that stand alone."""
_CAMERA = {"bands", "step", "offsets", "polynomial", "axis", "design"}
"""Flags that describe the camera: in Python they are arguments of the `CASSI` that is passed."""
_TURNS = {
    "flipped-left-right": "np.fliplr({})",
    "flipped-top-bottom": "np.flipud({})",
    "turned-180": "np.rot90({}, 2)",
    "transposed": "np.transpose({})",
    "transposed-other-diagonal": "np.rot90(np.transpose({}), 2)",
    "turned-90-counterclockwise": "np.rot90({})",
    "turned-90-clockwise": "np.rot90({}, -1)",
}
"""What `--turn-mask` and `--turn-snapshot` do, which in Python is done before the call."""
_TURN = re.compile(rf"--turn-(mask|snapshot) ({'|'.join(sorted(_TURNS, key=len, reverse=True))})")
_CROP = re.compile(r"--crop-mask (\d+),(\d+),(\d+),(\d+)(?: \(TOP,LEFT,HEIGHT,WIDTH\))?")
_OF_COMMANDS = re.compile(r" \(for --[^)]*\)")
"""What only commands have, such as a second name where they read two files."""
_FLAG = re.compile(
    r"(?<![\w-])--([a-z][a-z-]*[a-z])(?:[ =](-?\d[\d.,]*\d|-?\d|[a-z]+[-.][\w.-]*\w|[A-Z]+\b))?"
)


def python_words(text: str) -> str:
    """A sentence with arguments instead of flags; `commands` stay.

    >>> python_words("compare with --method gap-tv, or give --align.")
    "compare with method='gap-tv', or give align=True."
    >>> python_words("Give --model lumen.m2m to use it.")
    "Give model='lumen.m2m' to use it."
    >>> python_words("--crop-mask 0,2,64,60 takes its top left part.")
    'np.asarray(mask)[0:64, 2:62] takes its top left part.'
    """
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        part = _TURN.sub(_turn, _OF_COMMANDS.sub("", parts[place]))
        parts[place] = _FLAG.sub(_argument, _CROP.sub(_crop, part))
    return "`".join(parts)


def _turn(found: re.Match[str]) -> str:
    return _TURNS[found[2]].format("mask" if found[1] == "mask" else "measurement")


def _crop(found: re.Match[str]) -> str:
    top, left, height, width = (int(number) for number in found.groups())
    return f"np.asarray(mask)[{top}:{top + height}, {left}:{left + width}]"


def _argument(found: re.Match[str]) -> str:
    flag, value = found[1], found[2]
    if flag in _SWITCHES:
        return _SWITCHES[flag] + (f" {value}" if value else "")
    name = flag.replace("-", "_")
    bare = value is not None and (value[-1].isdigit() or value.isupper())
    said = name if value is None else f"{name}={value if bare else repr(value)}"
    return f"{said} of the camera" if flag in _CAMERA else said


def worded(text: str) -> str:
    """A sentence in the words of the caller: flags or arguments."""
    return text if _speaks_flags.get() else python_words(text)


def told_in_python(function: Callable[P, R]) -> Callable[P, R]:
    """A public function whose errors speak of arguments, unless a command has called it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PrismaskError as error:
            if len(error.args) == 1:
                error.args = (worded(str(error)),)
            raise

    return call


def warn_caller(text: str) -> None:
    """A `PrismaskWarning` that points to the first line outside of this package."""
    here = f"{Path(__file__).parent}{os.sep}"
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    warnings.warn(worded(text), PrismaskWarning, stacklevel=level)


@contextmanager
def speaking_flags() -> Iterator[None]:
    """While this lasts, errors are worded for the command line."""
    before = _speaks_flags.set(True)
    try:
        yield
    finally:
        _speaks_flags.reset(before)


# --- a finding: one thing worth knowing about a snapshot, for the person and for the history ------
#
# Written with flags, too; `reconstruct` passes the warnings among them on in the words of Python.


@dataclass(frozen=True)
class Finding:
    """One sentence and how much it matters."""

    weight: Literal["note", "warning"]
    """`warning`: the result may be wrong; `note`: good to know."""
    text: str
    """The sentence."""


def warn_in_python(findings: Iterable[str], stacklevel: int = 2) -> None:
    """Pass the warnings among the lines of a history on to `warnings`, in the words of Python."""
    for line in findings:
        weight, _, text = line.partition(": ")
        if weight == "warning":
            warnings.warn(python_words(text), PrismaskWarning, stacklevel=stacklevel + 1)
