"""What a folder holds that a report can speak of, and the few numbers that stand for all of it.

Those are in `headline.json` of a results folder:

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
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.errors import DataMissingError, FormatError
from prismask.evaluation.analyses.training_log import (
    METRICS_FILE,
    GHistory,
    TrainingLog,
    read_training_log,
)
from prismask.evaluation.figures.scores import Scores, headline_figure
from prismask.evaluation.metrics import METRICS
from prismask.evaluation.protocol.splits import GROUP_TEXTS
from prismask.evaluation.report.document import Picture, Section, Table
from prismask.evaluation.run import runs, spectra
from prismask.evaluation.run.runs import RUN
from prismask.evaluation.tables.markdown import ScoreTable
from prismask.evaluation.tables.summaries import read_frame, read_table

if TYPE_CHECKING:
    from pandas import DataFrame

DEEPEST_FOLDER = 4
"""Levels below the given folder that are searched."""
TABLES = ("summary.csv", "paired.csv", "scores.csv")
"""Tables of an evaluation or a stress test that a report reads."""

HEADLINE_FILE = "headline.json"


@dataclass(frozen=True)
class Source:
    """One folder with its record."""

    name: str
    """Its path inside the report's folder."""
    folder: Path
    record: dict[str, Any]

    def frame(self, table: str, columns: Sequence[str] | None = None) -> DataFrame | None:
        """A long table, or some of its columns; None where it was not written."""
        path = self.folder / table
        return read_frame(path, columns) if path.is_file() else None

    @property
    def scores(self) -> ScoreTable | None:
        """Its summary; None where it is not finished."""
        path = self.folder / "summary.csv"
        return ScoreTable(read_table(path)) if path.is_file() else None

    def check_tables(self) -> None:
        """Raise `FormatError` unless every table here can be read to its end."""
        for table in TABLES:
            path = self.folder / table
            if path.is_file():
                deque(read_table(path), maxlen=0)  # row by row: the long table may be large

    @property
    def is_finished(self) -> bool:
        """Whether its tables are complete."""
        return self.record.get("finished") is not None

    def group_title(self, name: str) -> str:
        """What people call a mask group."""
        return GROUP_TEXTS.get(name, name.removeprefix("test_").replace("_", " "))


@dataclass
class Sources:
    """Everything that was found."""

    evaluations: list[Source] = field(default_factory=list)
    stresses: list[Source] = field(default_factory=list)
    spectra: list[Source] = field(default_factory=list)
    """Tests of spectra with structure."""
    analyses: list[Source] = field(default_factory=list)
    trainings: dict[str, TrainingLog] = field(default_factory=dict)
    """Runs of `prismask train`."""
    headline: dict[str, Any] | None = None
    """The few numbers that stand for everything, where the folder names them."""
    problems: list[str] = field(default_factory=list)
    """What was found and could not be read."""

    @property
    def with_kinds(self) -> list[tuple[str, Source]]:
        """Evaluations, tests and analyses, each with the word for it."""
        kinds = {"evaluation": self.evaluations, "stress test": self.stresses}
        kinds["test of spectra"] = self.spectra
        kinds["analysis"] = self.analyses
        return [(kind, source) for kind, sources in kinds.items() for source in sources]

    @property
    def g_histories(self) -> dict[str, GHistory]:
        """How g moved, in the trainings with a mask posterior."""
        histories = {name: one.g_history for name, one in self.trainings.items()}
        return {name: history for name, history in histories.items() if history is not None}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.with_kinds or self.trainings)


def find_sources(folder: str | Path) -> Sources:
    """Look through a folder and the folders in it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataMissingError(f"there is no folder {folder}.")
    found = Sources()
    for path, files in _folders(folder):
        name = str(path.relative_to(folder)) if path != folder else path.resolve().name
        for file, add in READERS.items():
            if file in files:
                try:
                    add(path, name, found)
                except (DataMissingError, FormatError) as error:
                    found.problems.append(str(error))
    if found.is_empty:
        reasons = f" Unreadable: {' '.join(found.problems)}" if found.problems else ""
        raise DataMissingError(
            f"{folder} holds nothing to report: no {RUN.name} of an evaluation or a stress test, "
            f"no {spectra.RECORD.name}, no {runs.ANALYSIS.name}, no {METRICS_FILE}. Make some with "
            f"`prismask evaluate … --out {folder}/evaluation`.{reasons}"
        )
    return found


def _add_run(path: Path, name: str, found: Sources) -> None:
    # A training has a record of the same name.
    if f'"{RUN.format}"' in (path / RUN.name).read_text(encoding="utf-8"):
        source = Source(name, path, RUN.read(path))
        source.check_tables()
        kind = found.stresses if source.record.get("kind") == "stress" else found.evaluations
        kind.append(source)


def _add_spectra(path: Path, name: str, found: Sources) -> None:
    source = Source(name, path, spectra.RECORD.read(path))
    source.check_tables()
    found.spectra.append(source)


def _add_analysis(path: Path, name: str, found: Sources) -> None:
    found.analyses.append(Source(name, path, runs.ANALYSIS.read(path)))


def _add_training(path: Path, name: str, found: Sources) -> None:
    training = read_training_log(path / METRICS_FILE)
    if training.lines:
        found.trainings[name] = training


def _add_headline(path: Path, name: str, found: Sources) -> None:
    found.headline = refreshed(read_headline(path), path)


READERS: dict[str, Callable[[Path, str, Sources], None]] = {
    RUN.name: _add_run,
    spectra.RECORD.name: _add_spectra,
    runs.ANALYSIS.name: _add_analysis,
    METRICS_FILE: _add_training,
    HEADLINE_FILE: _add_headline,
}
"""What is read by the name of its file; one that is damaged does not hide the others."""


def _folders(folder: Path) -> Iterator[tuple[Path, set[str]]]:
    """The folder and those below it, in the order of their names, hidden ones left out."""
    for path, below, files in os.walk(folder):
        here = Path(path)
        depth = len(here.relative_to(folder).parts)
        below[:] = sorted(n for n in below if not n.startswith(".") and depth < DEEPEST_FOLDER)
        yield here, set(files)


WHO = {"ours": "here", "paper": "paper", "peer": "peer"}
"""Who measured a row."""

Record = Mapping[str, Any]


def read_headline(folder: str | Path) -> dict[str, Any]:
    """The record of a folder."""
    path = Path(folder) / HEADLINE_FILE
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
