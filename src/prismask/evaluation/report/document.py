"""What a report is made of, whatever it is rendered as.

Text may hold `code` in backticks and **bold** words; everything else is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from prismask.evaluation.analyses.store import safe_name


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Listing:
    """Points, one below the other."""

    kind: ClassVar[str] = "listing"
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; the first column names its row."""

    kind: ClassVar[str] = "table"
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[tuple[str, int]] = ()
    """Titles over several columns each, with how many; they cover all columns after the first."""
    note: str = ""
    """What to mind, below the table."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure."""

    kind: ClassVar[str] = "picture"
    name: str
    """A file may be called so."""
    png: bytes
    caption: str
    alt: str
    """What one sees, for those who cannot."""
    shows_truth: bool = False
    """Whether true cubes of a data set are pictured: not for publishing."""

    def __post_init__(self) -> None:
        # Names are made of labels and folders, which may hold anything.
        object.__setattr__(self, "name", safe_name(self.name))


Block = Text | Listing | Table | Picture


@dataclass(frozen=True)
class Section:
    """A part of the page with its own heading."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str
    """What this is, in a sentence or two."""
    sections: Sequence[Section]

    @property
    def pictures(self) -> list[Picture]:
        """All figures, in order."""
        return [
            block
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Picture)
        ]
