"""A finding: one thing worth knowing about a snapshot, for the person and for the history.

Findings are written in the flags of the command line, where most people read them; `wording` says
the same with the arguments of `reconstruct`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prismask.errors import PrismaskWarning
from prismask.wording import python_words


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
