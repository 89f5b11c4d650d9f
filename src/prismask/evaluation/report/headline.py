"""The few numbers that stand for everything: `headline.json` of a results folder.

    columns   name → what the masks of that column are
    notes     mark → what limits the cells that carry it
    rows      method, who (`ours`, `paper`, `peer`), training, metric, scores, source, command

`scores` gives a cell by column. A cell of ours names its `table` (a summary.csv, relative to the
folder), `model` and `group`, and its numbers are read from there by `refreshed`; a published one
has `mean` and, where it was printed, `std`, or a `text` where a number alone would mislead. A
`note` is a mark, such as (a), that `notes` explains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismask.errors import DataMissingError, FormatError
from prismask.evaluation.figures.scores import Scores, headline_figure
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.report.document import Picture, Section, Table
from prismask.evaluation.tables.files import read_table
from prismask.evaluation.tables.scores import ScoreTable

NAME = "headline.json"
WHO = {"ours": "here", "paper": "paper", "peer": "peer"}
"""Who measured a row."""

Record = Mapping[str, Any]


def read_headline(folder: str | Path) -> dict[str, Any]:
    """The record of a folder."""
    path = Path(folder) / NAME
    if not path.is_file():
        raise DataMissingError(f"there is no {path}.")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}.") from error
    for number, row in enumerate(record.get("rows", [])):
        unknown = row["scores"].keys() - record["columns"].keys()
        if row["who"] not in WHO or row["metric"] not in METRICS or unknown:
            raise FormatError(
                f"{path}, row {number + 1} ({row.get('method')}): who is one of {', '.join(WHO)}, "
                f"metric one of {', '.join(METRICS)}, and scores have the columns "
                f"{', '.join(record['columns'])}."
            )
    return dict(record)


def refreshed(record: Record, folder: str | Path) -> dict[str, Any]:
    """The same record with the numbers of every cell that names a table read from it anew."""
    tables: dict[str, ScoreTable] = {}
    rows = []
    for row in record["rows"]:
        scores = {}
        for column, cell in row["scores"].items():
            if "table" in cell:
                path = cell["table"]
                if path not in tables:
                    tables[path] = ScoreTable(read_table(Path(folder) / path))
                cell = {**cell, **_numbers(tables[path], cell, row["metric"])}
            scores[column] = cell
        rows.append({**row, "scores": scores})
    return {**record, "rows": rows}


def _numbers(table: ScoreTable, cell: Record, metric: str) -> dict[str, Any]:
    found = table.find(cell["model"], cell["group"], metric)
    if found is None:
        raise FormatError(
            f"{cell['table']} has no {metric} of {cell['model']!r} in {cell['group']!r}; its "
            f"models: {', '.join(table.models)}."
        )
    digits = METRICS[metric].digits
    std = {} if found["trials"] < 2 else {"std": round(found["std"], digits)}
    return {"mean": round(found["mean"], digits), **std, "masks": found["trials"]}


def cell_text(cell: Record | None, metric: str) -> str:
    """`34.60 ± 0.09`, with its note; empty where nothing was measured."""
    if cell is None:
        return ""
    digits = METRICS[metric].digits
    text = cell.get("text") or f"{cell['mean']:.{digits}f}"
    if "std" in cell:
        text += f" ± {cell['std']:.{digits}f}"
    return f"{text} {cell['note']}" if cell.get("note") else text


def headline_table(record: Record) -> Table:
    """Ours, the paper's and peers' numbers, each with its convention."""
    columns = record["columns"]
    rows = [
        [
            row["method"],
            row["training"],
            *(cell_text(row["scores"].get(column), row["metric"]) for column in columns),
            row.get("convention") or METRICS[row["metric"]].label.removeprefix("PSNR "),
            WHO[row["who"]],
        ]
        for row in record["rows"]
    ]
    header = ["method", "training", *columns.values(), "PSNR", "by"]
    notes = " ".join(f"{mark} {text}" for mark, text in record["notes"].items())
    return Table(record["caption"], header, rows, note=notes)


def headline_picture(record: Record) -> Picture:
    """The same as a figure: one panel per PSNR convention, texts left out."""
    panels: dict[str, list[Scores]] = {}
    for row in record["rows"]:
        cells = {c: cell for c, cell in row["scores"].items() if "mean" in cell}
        if cells:
            panels.setdefault(METRICS[row["metric"]].label, []).append(
                Scores(
                    row["method"] + ("" if row["who"] == "ours" else f" ({WHO[row['who']]})"),
                    [record["columns"][column] for column in cells],
                    [cell["mean"] for cell in cells.values()],
                    [cell.get("std", 0.0) for cell in cells.values()],
                    published=row["who"] != "ours",
                )
            )
    return Picture(
        "headline",
        headline_figure(panels, list(record["columns"].values())),
        f"{record['caption']} Hollow: as published elsewhere.",
        "Dots: the PSNR of every method for each kind of mask, one panel per convention",
    )


def headline_sections(record: Record | None) -> list[Section]:
    """Picture and table, where the folder has a headline."""
    if record is None:
        return []
    return [Section("Headline", [headline_picture(record), headline_table(record)])]
