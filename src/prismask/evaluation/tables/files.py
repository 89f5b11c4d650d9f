"""Tables on the disk: long form, one value per line, written as they are read.

`scores.csv` of an evaluation has the columns

    model, protocol, group, trial, mask_id, scene, metric, value, seconds, overlap

and that of a stress test also `fault, size, given`. `value` is NaN where the model gave no finite
cube. `seconds` is the time of the cell divided by its scenes: the same in all rows of a cell, and
the only column that two equal runs do not share. `overlap` is empty where training and test share
nothing, else `same mask`, `overlap` or `unknown`. Numbers are written so that reading them gives
the same bits.
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask.errors import DataMissingError, FormatError, MissingPartError
from prismask.evaluation.run.cells import CellResult, Journal
from prismask.evaluation.run.plan import Condition, Plan
from prismask.scenes.atomic import write_beside

if TYPE_CHECKING:
    from pandas import DataFrame

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
    for model in plan.work.contenders:
        for cell in plan.cells_of(model):
            yield from _cell_rows(plan, journal.read(cell))


def _cell_rows(plan: Plan, result: CellResult) -> Iterator[Row]:
    cell = result.cell
    verdict = plan.verdicts[cell.model, cell.group]
    condition = (cell.fault, cell.size, cell.given)
    for shown in plan.shown_as(cell.group, condition):
        yield from _shown_rows(plan, result, verdict, shown)


def _shown_rows(
    plan: Plan, result: CellResult, verdict: str, condition: Condition
) -> Iterator[Row]:
    cell = result.cell
    for index, scene in enumerate(plan.work.scenes.names):
        for metric in plan.work.metrics:
            row = (
                cell.model, plan.protocol, cell.group, cell.trial, result.mask_id, scene, metric,
                result.values[metric][index], result.seconds, verdict,
            )  # fmt: skip
            yield row if plan.kind == "evaluation" else (*row, *condition)


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
