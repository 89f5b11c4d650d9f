"""What a report is made of, and its rendering as HTML and as Markdown.

Text may hold `code` in backticks and **bold** words; everything else is taken as it stands.

HTML comes from the templates beside this file. It needs no other file and no network: pictures and
style are inside. Everything a template is given is escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from prismask.evaluation.run.runs import safe_name
from prismask.evaluation.tables.markdown import grid


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
    """Remarks below the table."""


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


WORDY_LENGTH = 28
"""Letters from which a cell is read as words rather than as a number."""


def render(template: str, **values: Any) -> str:
    """A template of this package filled with `values`."""
    return _environment().get_template(template).render(**values)


def html_page(page: Page) -> str:
    """A report as HTML."""
    return render("report.html", page=page)


def markdown_page(page: Page, files: Mapping[str, str] | None = None) -> str:
    """A report as Markdown; `files` gives the path of each picture that was written."""
    parts = [f"# {page.title}", page.lead]
    for section in page.sections:
        parts.append(f"## {section.title}")
        for block in section.blocks:
            parts += _markdown_block(block, files or {})
    return "\n\n".join(parts) + "\n"


# --- HTML ----------------------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("prismask.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "inline": inline,
        "data_address": data_address,
        "wordy_columns": wordy_columns,
    }
    return environment


def inline(text: str) -> Markup:
    """Escaped, with `code` and **bold**."""
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe))


def data_address(png: bytes) -> str:
    """A PNG as the text that an `img` takes in place of an address."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def wordy_columns(table: Table) -> set[int]:
    """Columns that hold sentences or lists: they read from the left and may be broken."""
    return {
        column
        for column in range(1, len(table.header))
        if any(_is_wordy(row[column]) for row in table.rows)
    }


def _is_wordy(cell: str) -> bool:
    begins_as_number = re.match(r"[+\-−–]?[\d.]", cell)
    return len(cell) >= WORDY_LENGTH and not begins_as_number


# --- markdown ------------------------------------------------------------------------------------


def _markdown_block(block: Block, files: Mapping[str, str]) -> list[str]:
    if isinstance(block, Text):
        return [block.text]
    if isinstance(block, Listing):
        return ["\n".join(f"- {item}" for item in block.items)]
    if isinstance(block, Picture):
        # Without a file there is nothing to point to: the HTML page holds the picture.
        path = files.get(block.name)
        return [] if path is None else [f"![{block.alt}]({path})", block.caption]
    caption = block.caption.replace("**", "")
    table = grid(_cells(_header(block)), map(_cells, block.rows))
    return [f"**{caption}**", table, *([block.note] if block.note else [])]


def _header(table: Table) -> list[str]:
    """Markdown has one line of headings: titles of groups go in front of their columns'."""
    over = [title for title, span in table.groups for _ in range(span)]
    if not over:
        return list(table.header)
    first, *rest = table.header
    return [first, *(f"{title}: {name}" for title, name in zip(over, rest, strict=True))]


def _cells(row: Sequence[str]) -> list[str]:
    """A bar in a name would open another column."""
    return [cell.replace("|", "\\|") for cell in row]
