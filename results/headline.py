#!/usr/bin/env python
"""The first table of results/README.md and its picture, from headline.json and the raw tables.

    python results/headline.py

Numbers of ours are read anew from the summary.csv that each cell names; published ones stay as
they are. A new row is written by hand into headline.json, without its numbers, and this is run
again. `headline.json`, the table between the two marks in README.md, and `headline.png` are
written.
"""

from __future__ import annotations

import json
from pathlib import Path

from prismask.evaluation.report.sources import (
    HEADLINE_FILE,
    headline_picture,
    headline_table,
    read_headline,
    refreshed,
)
from prismask.evaluation.tables.markdown import grid

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- headline: made by results/headline.py -->", "<!-- end of headline -->"


def readme_with(text: str, table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> None:
    record = refreshed(read_headline(HERE), HERE)
    table = headline_table(record)
    shown = f"{grid(table.header, table.rows)}\n\n{table.caption} {table.note}"
    (HERE / HEADLINE_FILE).write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    readme = HERE / "README.md"
    text = readme_with(readme.read_text(encoding="utf-8"), shown)
    readme.write_text(text, encoding="utf-8")
    (HERE / "headline.png").write_bytes(headline_picture(record).png)
    print(f"{HEADLINE_FILE}, headline.png, README.md")


if __name__ == "__main__":
    main()
