"""A report as one HTML file with its pictures inside, for a desk or a phone, light or dark."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from string import Template

from prismask.evaluation.report.blocks import Block, Listing, Page, Picture, Section, Table, Text

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1f2430;
  --faint: #5a6172; --line: #d9dde5; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #14171d; --card: #1d222b; --ink: #e8eaf0;
  --faint: #a5acbb; --line: #343b48; --accent: #56b4e9; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0.5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 0.6rem; padding-top: 0.6rem;
  border-top: 1px solid var(--line); overflow-wrap: anywhere; }
p, li { max-width: 46rem; }
a { color: var(--accent); }
nav ul { columns: 17rem; padding-left: 1.2rem; font-size: 0.95rem; }
figure { margin: 1.2rem 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 0.75rem; }
.scroll { overflow-x: auto; }
figure img { display: block; width: auto; max-width: 100%; height: auto; margin: 0 auto;
  border-radius: 4px; background: #fff; }
figcaption { color: var(--faint); font-size: 0.9rem; margin-top: 0.6rem; max-width: 56rem; }
figcaption b, .caption b { color: var(--ink); }
.table { margin: 1.2rem 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; min-width: 100%; font-size: 0.88rem; }
.caption { margin: 0; color: var(--faint); padding: 0.6rem 0.7rem; font-size: 0.9rem;
  max-width: 56rem; }
th, td { padding: 0.34rem 0.7rem; border-top: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { font-weight: 600; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--card);
  min-width: 7rem; max-width: 15rem; white-space: normal; }
.words { text-align: left; white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
thead th { color: var(--faint); vertical-align: bottom; }
thead th.over { text-align: center; border-left: 1px solid var(--line); }
.note { color: var(--faint); font-size: 0.88rem; margin: -0.6rem 0 1.2rem; }
code { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; font-size: 0.88em;
  overflow-wrap: anywhere; }
@media (max-width: 44rem) { figure img { max-width: none; width: 44rem; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p>$lead</p>
<nav aria-label="Contents"><ul>$contents</ul></nav>
$sections
</main>
</body>
</html>
""")

WORDS_CLASS = ' class="words"'
WORDS = 28
"""Letters from which a cell is read as words rather than as a number."""


def html_page(page: Page) -> str:
    """The page as HTML that needs no other file and no network."""
    contents, sections = [], []
    number = _Counter()
    for place, section in enumerate(page.sections, start=1):
        anchor = f"part-{place}"
        contents.append(f'<li><a href="#{anchor}">{_inline(section.title)}</a></li>')
        sections.append(_section(section, anchor, number))
    return PAGE.substitute(
        title=escape(page.title),
        lead=_inline(page.lead),
        contents="".join(contents),
        sections="\n".join(sections),
    )


def data_address(png: bytes) -> str:
    """A PNG as the text that an `img` takes in place of an address."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


class _Counter:
    """Numbers of figures and tables."""

    def __init__(self) -> None:
        self.figures = self.tables = 0


def _section(section: Section, anchor: str, number: _Counter) -> str:
    blocks = "\n".join(_block(block, number) for block in section.blocks)
    return f'<section id="{anchor}">\n<h2>{_inline(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block, number: _Counter) -> str:
    if isinstance(block, Text):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Listing):
        return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in block.items)}</ul>"
    if isinstance(block, Picture):
        number.figures += 1
        return (
            f'<figure><div class="scroll"><img src="{data_address(block.png)}" '
            f'alt="{escape(block.alt)}"></div><figcaption><b>Figure {number.figures}.</b> '
            f"{_inline(block.caption)}</figcaption></figure>"
        )
    number.tables += 1
    return _table(block, number.tables)


def _table(table: Table, number: int) -> str:
    wordy = _wordy_columns(table)
    head = "".join(
        f'<th scope="col"{WORDS_CLASS if place in wordy else ""}>{_inline(name)}</th>'
        for place, name in enumerate(table.header)
    )
    over = ""
    if table.groups:
        spans = "".join(
            f'<th class="over" colspan="{span}" scope="colgroup">{_inline(title)}</th>'
            for title, span in table.groups
        )
        over = f"<tr><th></th>{spans}</tr>"
    rows = "".join(f"<tr>{_cells(row, wordy)}</tr>" for row in table.rows)
    note = f'<p class="note">{_inline(table.note)}</p>' if table.note else ""
    # The caption stays where it is while a wide table is moved sideways below it.
    return (
        f'<div class="table"><p class="caption" id="table-{number}"><b>Table {number}.</b> '
        f'{_inline(table.caption)}</p><div class="scroll"><table aria-labelledby="table-{number}">'
        f"<thead>{over}<tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></div>{note}"
    )


def _wordy_columns(table: Table) -> set[int]:
    """Columns that hold sentences or lists: they read from the left and may be broken."""
    return {
        place
        for place in range(1, len(table.header))
        if any(len(row[place]) >= WORDS and not _is_number(row[place]) for row in table.rows)
    }


def _cells(row: Sequence[str], wordy: set[int]) -> str:
    cells = [f'<th scope="row">{_inline(row[0])}</th>']
    for place, cell in enumerate(row[1:], start=1):
        cells.append(f"<td{WORDS_CLASS if place in wordy else ''}>{_inline(cell)}</td>")
    return "".join(cells)


def _is_number(cell: str) -> bool:
    return bool(re.match(r"[+\-−–]?[\d.]", cell))


def _inline(text: str) -> str:
    """Escaped, with `code` and **bold**."""
    safe = escape(text)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe)
