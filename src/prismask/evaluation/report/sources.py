"""What a folder holds that a report can speak of."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.errors import DataMissingError, FormatError
from prismask.evaluation.analyses import store
from prismask.evaluation.analyses.training_log import (
    METRICS,
    GHistory,
    TrainingLog,
    read_training_log,
)
from prismask.evaluation.protocol.scenarios import GROUP_TEXTS
from prismask.evaluation.report import headline
from prismask.evaluation.run import spectra
from prismask.evaluation.run.runs import FORMAT, RECORD, read_record, read_run
from prismask.evaluation.tables.files import read_frame, read_table
from prismask.evaluation.tables.scores import ScoreTable

if TYPE_CHECKING:
    from pandas import DataFrame

DEEPEST_FOLDER = 4
"""Levels below the given folder that are searched."""
TABLES = ("summary.csv", "paired.csv", "scores.csv")
"""Tables of an evaluation or a stress test that a report reads."""


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
            f"{folder} holds nothing to report: no {RECORD} of an evaluation or a stress test, no "
            f"{spectra.RECORD}, no {store.RECORD}, no {METRICS}. Make some with "
            f"`prismask evaluate … --out {folder}/evaluation`.{reasons}"
        )
    return found


def _add_run(path: Path, name: str, found: Sources) -> None:
    # A training has a record of the same name.
    if f'"{FORMAT}"' in (path / RECORD).read_text(encoding="utf-8"):
        source = Source(name, path, read_run(path))
        source.check_tables()
        kind = found.stresses if source.record.get("kind") == "stress" else found.evaluations
        kind.append(source)


def _add_spectra(path: Path, name: str, found: Sources) -> None:
    record = read_record(path, spectra.RECORD, spectra.FORMAT, "test of spectra")
    source = Source(name, path, record)
    source.check_tables()
    found.spectra.append(source)


def _add_analysis(path: Path, name: str, found: Sources) -> None:
    found.analyses.append(Source(name, path, store.read_analysis(path)))


def _add_training(path: Path, name: str, found: Sources) -> None:
    training = read_training_log(path / METRICS)
    if training.lines:
        found.trainings[name] = training


def _add_headline(path: Path, name: str, found: Sources) -> None:
    found.headline = headline.refreshed(headline.read_headline(path), path)


READERS: dict[str, Callable[[Path, str, Sources], None]] = {
    RECORD: _add_run,
    spectra.RECORD: _add_spectra,
    store.RECORD: _add_analysis,
    METRICS: _add_training,
    headline.NAME: _add_headline,
}
"""What is read by the name of its file; one that is damaged does not hide the others."""


def _folders(folder: Path) -> Iterator[tuple[Path, set[str]]]:
    """The folder and those below it, in the order of their names, hidden ones left out."""
    for path, below, files in os.walk(folder):
        here = Path(path)
        depth = len(here.relative_to(folder).parts)
        below[:] = sorted(n for n in below if not n.startswith(".") and depth < DEEPEST_FOLDER)
        yield here, set(files)
