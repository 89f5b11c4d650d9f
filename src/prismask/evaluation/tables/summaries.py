"""Scores summarised (mean ± std over trials, paired differences), and tables as files.

Trials are taken in one at a time, and nothing grows with their number. What the numbers mean:

- **std** is the standard deviation (n − 1 in the denominator) of the values of single trials. For
  the average over scenes these values are the per-trial means over all scenes. It says how much a
  score changes from mask to mask. The std of *running* means, which some papers print, shrinks
  with every trial and says nothing of the kind.
- **standard error** is std / √n: how well the mean over all masks of the group is known.
- **paired difference** of two methods: both saw the same measurements, so their difference is
  taken trial by trial, and its interval is mean ± t · std / √n with Student's t of n − 1 degrees
  of freedom. It assumes that trials are independent draws and that their differences are not far
  from normal (for a hundred trials that hardly matters). Masks are drawn without replacement,
  which makes the interval slightly too wide. It speaks about masks of the same group and about
  these scenes; it says nothing about other instruments or other scenes.
"""

from __future__ import annotations

import csv
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.errors import DataMissingError, FormatError, MissingPartError
from prismask.evaluation.run.cells import Cell, CellResult, Journal
from prismask.evaluation.run.plan import NOTHING_WRONG, Condition, Plan
from prismask.scenes.atomic import write_beside

if TYPE_CHECKING:
    from pandas import DataFrame

LEVEL = 0.95
"""Probability that an interval is meant to cover."""


@dataclass
class Moments:
    """Mean and standard deviation of numbers that come one by one (Welford's update)."""

    count: int = 0
    """Numbers that were taken."""
    failed: int = 0
    """NaNs that were not: trials without a result."""
    infinite: int = 0
    """How many of the numbers were infinite, such as the PSNR of a perfect band."""
    _mean: float = 0.0
    _squares: float = 0.0
    _beyond: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Moments:
        """The moments of `values`."""
        moments = cls()
        for value in values:
            moments.add(value)
        return moments

    def add(self, value: float) -> None:
        """Take one number; NaN counts as failed."""
        if math.isnan(value):
            self.failed += 1
            return
        self.count += 1
        if math.isinf(value):
            self.infinite += 1
            self._beyond += value
            return
        step = value - self._mean
        self._mean += step / (self.count - self.infinite)
        self._squares += step * (value - self._mean)

    @property
    def mean(self) -> float:
        """Mean; NaN of nothing, and where numbers are infinite in both directions."""
        if self.count == 0:
            return math.nan
        return self._beyond if self.infinite else self._mean

    @property
    def std(self) -> float:
        """Standard deviation with n − 1; NaN below two numbers."""
        if self.count < 2 or self.infinite:
            return math.nan
        return math.sqrt(self._squares / (self.count - 1))

    @property
    def standard_error(self) -> float:
        """std / √n: how well the mean is known."""
        return self.std / math.sqrt(self.count) if self.count else math.nan

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Student's t interval of the mean; NaN below two numbers."""
        if self.count < 2:
            return math.nan, math.nan
        half = student_t(level, self.count - 1) * self.standard_error
        return self.mean - half, self.mean + half


def student_t(level: float, freedom: int) -> float:
    """How many standard errors a two-sided interval of `level` reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def difference(first: float, second: float) -> float:
    """first − second; equal scores differ by nothing, infinite ones too."""
    return 0.0 if first == second else first - second


def scene_average(values: Iterable[float]) -> float:
    """Mean over the scenes of one trial; NaN if one scene has no result.

    Leaving a failed scene out would compare averages over different scenes.
    """
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan


AVERAGE = "average"
"""Stands in the scene column for the mean over all scenes of a trial."""
MOST_FAILURES = 200
"""Failures that are listed one by one; all of them are counted."""


@dataclass(frozen=True)
class SummaryRow:
    """One score over all trials of a group; `evaluation.tables.summaries` says what it means."""

    model: str
    group: str
    scene: str
    """A scene, or `average`: then the values are per-trial means over all scenes."""
    metric: str
    mean: float
    std: float
    """Standard deviation over trials, n − 1."""
    standard_error: float
    trials: int
    """Trials with a result."""
    failed: int
    """Trials without."""
    overlap: str
    fault: str = ""
    size: float = 0.0
    given: str = "nominal"


@dataclass(frozen=True)
class PairedRow:
    """first − second over the trials of a group, with its 95 % interval."""

    first: str
    second: str
    group: str
    scene: str
    metric: str
    mean: float
    std: float
    low: float
    high: float
    trials: int
    failed: int


@dataclass(frozen=True)
class Failure:
    """A model that gave no finite cube."""

    model: str
    group: str
    trial: int
    mask_id: str
    scene: str
    reason: str

    def __str__(self) -> str:
        where = f"scene {self.scene} through mask {self.mask_id} ({self.group} trial {self.trial})"
        return f"{self.model}, {where}: {self.reason}"


@dataclass
class Summary:
    """The scores of a run, summarised."""

    rows: list[SummaryRow] = field(default_factory=list)
    paired: list[PairedRow] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    failed: int = 0
    """How many failures there are in all."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds per sample inside the run, by model: mean over its cells."""
    same_measurements: bool = True
    """Whether all models of every trial saw the same measurements, to the last bit."""

    def find(
        self,
        model: str,
        group: str,
        metric: str,
        scene: str = AVERAGE,
        condition: Condition = NOTHING_WRONG,
    ) -> SummaryRow:
        """The row of one score."""
        wanted = (model, group, metric, scene, *condition)
        for row in self.rows:
            found = (row.model, row.group, row.metric, row.scene, row.fault, row.size, row.given)
            if found == wanted:
                return row
        raise KeyError(wanted)


def summarise(plan: Plan, journal: Journal) -> Summary:
    """Read the journal once, trial by trial, and keep moments only."""
    summary = Summary()
    times = {model: Moments() for model in plan.work.contenders}
    for name, group in plan.work.groups.items():
        for condition in plan.conditions[name]:
            tally = Tally(plan.work.contenders, plan.work.scenes.names, plan.work.metrics)
            for trial in range(len(group)):
                results = {
                    model: journal.read(Cell(model, name, trial, *condition))
                    for model in plan.work.contenders
                }
                tally.add({model: result.values for model, result in results.items()})
                _note(summary, results)
                for model, result in results.items():
                    times[model].add(result.seconds)
            verdicts = {model: plan.verdicts[model, name] for model in plan.work.contenders}
            for shown in plan.shown_as(name, condition):
                summary.rows += tally.rows(name, verdicts, shown)
            if plan.kind == "evaluation":
                summary.paired += tally.paired_rows(name)
    summary.seconds = {model: moments.mean for model, moments in times.items()}
    return summary


def _note(summary: Summary, results: Mapping[str, CellResult]) -> None:
    if len({result.measurement_id for result in results.values()}) > 1:
        summary.same_measurements = False
    for result in results.values():
        for scene, reason in result.failed.items():
            summary.failed += 1
            if len(summary.failures) < MOST_FAILURES:
                cell = result.cell
                summary.failures.append(
                    Failure(cell.model, cell.group, cell.trial, result.mask_id, scene, reason)
                )


class Tally:
    """Moments of every model, scene and metric, and of every pair of models."""

    def __init__(
        self, models: Iterable[str], scenes: Sequence[str], metrics: Sequence[str]
    ) -> None:
        self.models, self.scenes, self.metrics = tuple(models), (*scenes, AVERAGE), tuple(metrics)
        self.pairs = tuple(combinations(self.models, 2))
        keys = list(product(self.scenes, self.metrics))
        self.single = {(model, *p): Moments() for model in self.models for p in keys}
        self.paired = {(pair, *p): Moments() for pair in self.pairs for p in keys}

    def add(self, values: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Take one trial: model → metric → value of each scene."""
        for metric in self.metrics:
            columns = {
                model: [*scores[metric], scene_average(scores[metric])]
                for model, scores in values.items()
            }
            for model, column in columns.items():
                for scene, value in zip(self.scenes, column, strict=True):
                    self.single[model, scene, metric].add(value)
            for pair in self.pairs:
                for scene, one, other in zip(
                    self.scenes, columns[pair[0]], columns[pair[1]], strict=True
                ):
                    self.paired[pair, scene, metric].add(difference(one, other))

    def rows(
        self, group: str, verdicts: Mapping[str, str], condition: Condition = NOTHING_WRONG
    ) -> Iterator[SummaryRow]:
        """Scores of single models."""
        for (model, scene, metric), found in self.single.items():
            yield SummaryRow(
                model, group, scene, metric, found.mean, found.std, found.standard_error,
                found.count, found.failed, verdicts[model], *condition,
            )  # fmt: skip

    def paired_rows(self, group: str) -> Iterator[PairedRow]:
        """Differences of pairs."""
        for ((first, second), scene, metric), found in self.paired.items():
            yield PairedRow(
                first, second, group, scene, metric, found.mean, found.std, *found.interval(),
                found.count, found.failed,
            )  # fmt: skip


def plain_rows(rows: list[Any]) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]:
    """Columns and rows of a list of records, for a table."""
    if not rows:
        return (), iter(())
    return tuple(f.name for f in fields(rows[0])), (astuple(row) for row in rows)


# --- tables on the disk: long form, one value per line, written as they are read ------------------
#
# `scores.csv` of an evaluation has the columns
#
#     model, protocol, group, trial, mask_id, scene, metric, value, seconds, overlap
#
# and that of a stress test also `fault, size, given`. `value` is NaN where the model gave no finite
# cube. `seconds` is the time of the cell divided by its scenes: the same in all rows of a cell, and
# the only column that two equal runs do not share. `overlap` is empty where training and test share
# nothing, else `same mask`, `overlap` or `unknown`. Numbers are written so that reading them gives
# the same bits.


log = logging.getLogger(__name__)

COLUMNS = (
    "model", "protocol", "group", "trial", "mask_id", "scene", "metric", "value", "seconds",
    "overlap",
)  # fmt: skip
STRESS_COLUMNS = (*COLUMNS, "fault", "size", "given")
_NUMBERS: dict[str, Any] = {
    "trial": int, "trials": int, "failed": int, "value": float, "seconds": float, "size": float,
    "mean": float, "std": float, "standard_error": float, "low": float, "high": float,
}  # fmt: skip
AGAIN = "Give the run's command again with `--resume`: it writes its tables again."

Row = tuple[Any, ...]


def score_rows(plan: Plan, journal: Journal) -> Iterator[Row]:
    """The rows of `scores.csv`: by model, group, condition, trial, scene and metric."""
    for cell in (cell for model in plan.work.contenders for cell in plan.cells_of(model)):
        result, verdict = journal.read(cell), plan.verdicts[cell.model, cell.group]
        shown_as = plan.shown_as(cell.group, (cell.fault, cell.size, cell.given))
        scenes = enumerate(plan.work.scenes.names)
        for shown, (index, scene), metric in product(shown_as, scenes, plan.work.metrics):
            row = (
                cell.model, plan.protocol, cell.group, cell.trial, result.mask_id, scene, metric,
                result.values[metric][index], result.seconds, verdict,
            )  # fmt: skip
            yield row if plan.kind == "evaluation" else (*row, *shown)


def columns_of(plan: Plan) -> tuple[str, ...]:
    """The columns of the plan's `scores.csv`."""
    return COLUMNS if plan.kind == "evaluation" else STRESS_COLUMNS


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a CSV, whole or not at all, one row in memory at a time."""
    with (
        write_beside(path, overwrite=True) as beside,
        beside.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([repr(value) if isinstance(value, float) else value for value in row])


def write_parquet(table: Path) -> Path | None:
    """The same table as Parquet beside the CSV, where pyarrow is installed."""
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        log.debug("pyarrow is not installed; %s has no Parquet twin", table)
        return None
    target = table.with_suffix(".parquet")
    types = {
        name: pyarrow.int64() if kind is int else pyarrow.float64()
        for name, kind in _NUMBERS.items()
    }
    options = pyarrow.csv.ConvertOptions(
        column_types=types | {"mask_id": pyarrow.string(), "overlap": pyarrow.string()},
        null_values=[], strings_can_be_null=False,
    )  # fmt: skip
    with write_beside(target, overwrite=True) as beside, pyarrow.csv.open_csv(
        table, convert_options=options
    ) as batches, pyarrow.parquet.ParquetWriter(beside, batches.schema) as writer:  # fmt: skip
        for batch in batches:
            writer.write_batch(batch)
    return target


def read_scores(folder: Path) -> Iterator[dict[str, Any]]:
    """The long table of a run, from `scores.csv` or, where only that is kept, its Parquet twin."""
    twin = folder / "scores.parquet"
    if (folder / "scores.csv").is_file() or not twin.is_file():
        yield from read_table(folder / "scores.csv")
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPartError(
            f"{twin} is a Parquet file, and pyarrow is not installed. pip install 'prismask[table]'"
        ) from error
    try:
        for batch in pyarrow.parquet.ParquetFile(twin).iter_batches():
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(f"{twin} cannot be read: {error}.") from error


def read_table(path: str | Path) -> Iterator[dict[str, Any]]:
    """Rows of a table of ours as dictionaries, numbers as numbers."""
    path = Path(path)
    if not path.is_file():
        raise DataMissingError(
            f"{path} is missing. Was the run finished? `--resume` completes it and writes its "
            "tables."
        )
    _check_end(path)
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        try:
            for row in lines:
                yield _typed(row)
        except (TypeError, ValueError, csv.Error) as error:
            raise FormatError(f"{path}, line {lines.line_num}: {error}. {AGAIN}") from error


def read_frame(path: str | Path, columns: Sequence[str] | None = None) -> DataFrame:
    """A table of ours, or some of its columns, as a pandas frame: the same values as `read_table`.

    For long tables; whether every line is whole is what `read_table` finds out.
    """
    import pandas

    # Everything as text first: names such as "NA" are names, and floats keep their last bit.
    text = pandas.read_csv(path, usecols=columns, dtype=str, keep_default_na=False)
    return text.astype({name: kind for name, kind in _NUMBERS.items() if name in text})


def _check_end(path: Path) -> None:
    """Raise where the last line has no end: half a number would still be one."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read() != b"\n":
            raise FormatError(f"{path} is cut short: its last line has no end. {AGAIN}")


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    if None in row or None in row.values():
        raise ValueError("it has more or fewer fields than the first line names")
    return {name: _NUMBERS.get(name, str)(value) for name, value in row.items()}
