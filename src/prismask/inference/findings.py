"""A finding: one thing worth knowing about a snapshot, for the person and for the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One sentence and how much it matters."""

    weight: Literal["note", "warning"]
    """`warning`: the result may be wrong; `note`: good to know."""
    text: str
    """The sentence."""
