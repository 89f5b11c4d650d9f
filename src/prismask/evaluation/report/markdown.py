"""A report as Markdown: tables for a paper, and figures where they were written as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prismask.evaluation.report.blocks import Block, Listing, Page, Picture, Table, Text
from prismask.evaluation.tables.markdown import grid


def markdown_page(page: Page, files: Mapping[str, str] | None = None) -> str:
    """The page as Markdown; `files` gives the path of each picture that was written."""
    parts = [f"# {page.title}", page.lead]
    for section in page.sections:
        parts.append(f"## {section.title}")
        for block in section.blocks:
            parts += _block(block, files or {})
    return "\n\n".join(parts) + "\n"


def _block(block: Block, files: Mapping[str, str]) -> list[str]:
    if isinstance(block, Text):
        return [block.text]
    if isinstance(block, Listing):
        return ["\n".join(f"- {item}" for item in block.items)]
    if isinstance(block, Picture):
        # Without a file there is nothing to point to: the HTML page holds the picture.
        return (
            [f"![{block.alt}]({files[block.name]})", block.caption] if block.name in files else []
        )
    return [f"**{_plain(block.caption)}**", grid(_cells(_header(block)), map(_cells, block.rows)),
            *([block.note] if block.note else [])]  # fmt: skip


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


def _plain(text: str) -> str:
    return text.replace("**", "")
