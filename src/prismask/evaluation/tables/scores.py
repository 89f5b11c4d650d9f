"""Scores in words: titles, values with their spread, and the tables that they fill.

The summary.md of a run and the report show the same tables; here is what stands in them. A table
is a header and rows of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prismask.evaluation.metrics import METRICS
from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    MISMATCH_GIVEN,
    RECALIBRATION,
    RECALIBRATION_GIVEN,
)
from prismask.evaluation.protocol.overlap import VERDICT_TEXTS
from prismask.evaluation.run.plan import NOTHING_WRONG, Condition
from prismask.evaluation.tables.summaries import AVERAGE, Summary

Record = Mapping[str, Any]
"""What `run.json` says of a run."""
Cells = tuple[list[str], list[list[str]]]
"""Header and rows."""

FIXED_SCALE = ("psnr_mst", "psnr_dgsmp", "psnr_unit", "ssim", "ssim_valid", "rmse")
"""Metrics that feel a scene's absolute brightness."""
FIXED_CASES = {MISMATCH: MISMATCH_GIVEN, RECALIBRATION: RECALIBRATION_GIVEN}
"""Faults of one size, with the masks that a model is given, in order."""
PAIRED_HEADER = ("difference", "metric", "mean", "95 % interval")


def metric_title(name: str, marked: bool = False) -> str:
    """`PSNR paper [dB] ↑`: label, unit, direction."""
    metric = METRICS[name]
    unit = f" [{metric.unit}]" if metric.unit else ""
    arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
    return f"{metric.label}{unit}{arrow}{' ‡' if marked else ''}"


def headline_metrics(metrics: Sequence[str]) -> list[str]:
    """The first PSNR and the first SSIM, or else the first metric of all."""
    found = [
        next((name for name in metrics if name.startswith(start)), None)
        for start in ("psnr", "ssim")
    ]
    return [name for name in found if name is not None] or list(metrics[:1])


def marked_metrics(record: Record) -> tuple[str, ...]:
    """Metrics that need a mark, because the brightness of some scenes is estimated."""
    if not record.get("estimated_peaks"):
        return ()
    return tuple(name for name in record["metrics"] if name in FIXED_SCALE)


def spread_text(metric: str, mean: float, std: float, error: float | None = None) -> str:
    """`33.02 ± 0.11 (0.01)`."""
    digits = METRICS[metric].digits
    if math.isnan(mean):
        return "no result"
    text = f"{mean:.{digits}f}"
    if not math.isnan(std):
        text += f" ± {std:.{digits}f}"
        if error is not None:
            text += f" ({error:.{digits + 1}f})"
    return text


class ScoreTable:
    """The rows of a summary, to be asked for one score at a time."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        listed = list(rows)
        self._rows = {
            (r["model"], r["group"], r["metric"], r["scene"], _condition(r)): r for r in listed
        }
        self.models = list(dict.fromkeys(r["model"] for r in listed))
        self.scenes = [s for s in dict.fromkeys(r["scene"] for r in listed) if s != AVERAGE]
        self.metrics = list(dict.fromkeys(r["metric"] for r in listed))

    @classmethod
    def of(cls, summary: Summary) -> ScoreTable:
        """The scores of a run that has just been summarised."""
        return cls(asdict(row) for row in summary.rows)

    def conditions(self, group: str, fault: str) -> list[Condition]:
        """All sizes of a fault that were tried in a group, in order, with the mask given."""
        return sorted({c for _, of, _, _, c in self._rows if (of, c[0]) == (group, fault)})

    def find(
        self,
        model: str,
        group: str,
        metric: str,
        scene: str = AVERAGE,
        condition: Condition = NOTHING_WRONG,
    ) -> Mapping[str, Any] | None:
        """One row; None where there is none."""
        return self._rows.get((model, group, metric, scene, condition))

    def text(
        self,
        model: str,
        group: str,
        metric: str,
        scene: str = AVERAGE,
        condition: Condition = NOTHING_WRONG,
        with_error: bool = False,
    ) -> str:
        """`33.02 ± 0.11 (0.011) [2 of 100 failed]`."""
        row = self.find(model, group, metric, scene, condition)
        if row is None or (METRICS[metric].of_interval and not row["trials"]):
            return "–"
        error = row["standard_error"] if with_error else None
        failed = row["failed"]
        lost = f" [{failed} of {failed + row['trials']} failed]" if failed else ""
        return spread_text(metric, row["mean"], row["std"], error) + lost


def _condition(row: Mapping[str, Any]) -> Condition:
    fault, size, given = NOTHING_WRONG
    return row.get("fault", fault), row.get("size", size), row.get("given", given)


# --- tables --------------------------------------------------------------------------------------


def average_cells(record: Record, scores: ScoreTable, group: str) -> Cells:
    """Average over scenes of every model and metric, with the standard error."""
    marked = marked_metrics(record)
    rows = [
        [
            named(record, model, group),
            *(scores.text(model, group, metric, with_error=True) for metric in scores.metrics),
        ]
        for model in record["models"]
    ]
    return ["model", *(metric_title(m, m in marked) for m in scores.metrics)], rows


def named(record: Record, model: str, group: str) -> str:
    """Models that need a word beside their scores carry a dagger."""
    return f"{model} †" if record["groups"][group]["overlap"].get(model) else model


def verdicts(record: Record, group: str) -> list[str]:
    """What a dagger in this group means, model by model."""
    return [
        f"† {model}: {VERDICT_TEXTS[verdict]}."
        for model, verdict in record["groups"][group]["overlap"].items()
        if verdict
    ]


def paired_cells(row: Any) -> list[str]:
    """Names, metric, mean and interval of a paired difference (a `PairedRow` or the like)."""
    digits = METRICS[row.metric].digits + 1
    interval = f"{row.low:+.{digits}f} … {row.high:+.{digits}f}"
    if math.isnan(row.low):
        interval = "one trial has none" if row.trials < 2 else "not finite"
    mean = "–" if math.isnan(row.mean) else f"{row.mean:+.{digits}f}"
    return [f"{row.first} − {row.second}", metric_title(row.metric), mean, interval]


def fault_cells(scores: ScoreTable, group: str, metric: str) -> Iterator[tuple[str, Cells]]:
    """Every fault that was tried in a group: models below each other, its sizes side by side.

    Of the faults of one size the masks given stand side by side instead.
    """
    for fault in FAULT_KINDS:
        conditions = scores.conditions(group, fault)
        yield fault, _cells(scores, group, metric, {f"{c[1]:g}": c for c in conditions})
    for fault, order in FIXED_CASES.items():
        given = {c[2]: c for c in scores.conditions(group, fault)}
        yield fault, _cells(scores, group, metric, {g: given[g] for g in order if g in given})


def _cells(
    scores: ScoreTable, group: str, metric: str, conditions: Mapping[str, Condition]
) -> Cells:
    rows = [
        [model, *(scores.text(model, group, metric, condition=c) for c in conditions.values())]
        for model in scores.models
    ]
    return ["model", *conditions], rows if conditions else []
