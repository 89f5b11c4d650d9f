"""Scores in short: mean ± std over trials per scene and on average, and paired differences."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

from prismask.evaluation.run.cells import Cell, CellResult
from prismask.evaluation.run.journal import Journal
from prismask.evaluation.run.plan import NOTHING_WRONG, Condition, Plan
from prismask.evaluation.tables.statistics import Moments, difference, scene_average

AVERAGE = "average"
"""Stands in the scene column for the mean over all scenes of a trial."""
MOST_FAILURES = 200
"""Failures that are listed one by one; all of them are counted."""


@dataclass(frozen=True)
class SummaryRow:
    """One score over all trials of a group; `evaluation.tables.statistics` says what it means."""

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
    """A run in short."""

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
        self.pairs = tuple(itertools.combinations(self.models, 2))
        keys = list(itertools.product(self.scenes, self.metrics))
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
