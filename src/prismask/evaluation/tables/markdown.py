"""Scores in words: the tables of a report, and a run in Markdown.

A table is a header and rows of cells: titles, values with their spread. The summary.md of a run and
the report show the same tables, every number beside its convention, its spread and what limits it.

`evaluation_text` is the summary.md of an evaluation, `stress_text` that of a stress test; both
are made from the finished record (`run.json`) and the summary.
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
from prismask.evaluation.protocol.splits import VERDICT_TEXTS
from prismask.evaluation.run.plan import NOTHING_WRONG, Condition
from prismask.evaluation.tables.summaries import AVERAGE, Summary

KAIST_NOTE = (
    "KAIST scenes: nine of the ten brightness maxima are estimates, about ±3 %. Metrics with a "
    "fixed scale, marked ‡, can be off by about 0.26 dB (RMSE by 3 %) per scene; PSNR paper and "
    "the comparison of methods are hardly affected."
)
MEANING = (
    "mean ± standard deviation over trials (standard error); for the average over scenes the "
    "deviation is that of the per-trial means"
)
PAIRED_MEANING = (
    "Difference trial by trial on identical measurements, 95 % interval by Student's t. It assumes "
    "independent draws of masks; it holds for masks of this group and these scenes, not for other "
    "instruments."
)
LISTED_FAILURES = 20
"""Failures that a summary names one by one."""
FAULT_WORDS = {name: kind.text for name, kind in FAULT_KINDS.items()} | {
    MISMATCH: "moved by 1.5 px and 1.0 px and turned by 0.3°; the model is given the … mask",
    RECALIBRATION: "two real calibrations of one aperture; the model is given the … mask",
}
"""What each fault is."""


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, all others to the right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    text = []
    for number, line in enumerate(lines):
        cells = [
            word.ljust(width) if k == 0 else word.rjust(width)
            for k, (word, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append(f"| {' | '.join(cells)} |")
        if number == 0:
            rule = [
                "-" * (width + 2) if k == 0 else "-" * (width + 1) + ":"
                for k, width in enumerate(widths)
            ]
            text.append(f"|{'|'.join(rule)}|")
    return "\n".join(text)


def evaluation_text(record: Record, summary: Summary) -> str:
    """The whole summary of an evaluation."""
    height, width = record["size"]
    bands = len(record["camera"]["camera_offsets_px"])
    scores = ScoreTable.of(summary)
    parts = [
        f"# Evaluation: {record['protocol']}",
        f"{_counted(len(record['scenes']), 'scene')} of {bands}×{height}×{width}, "
        f"seed {record['seed']}, measurement noise {record['noise']:g}. Numbers are {MEANING}.",
    ]
    for name in record["groups"]:
        parts += _group_parts(record, summary, scores, name)
    parts += ["## Models", model_grid(record), *_notes(record, summary)]
    conventions = [f"- {metric_title(m)}: {METRICS[m].convention}" for m in record["metrics"]]
    parts += ["## Conventions", "\n".join(conventions)]
    return "\n\n".join(parts) + "\n"


def stress_text(record: Record, summary: Summary) -> str:
    """The whole summary of a stress test: one table per fault, models beside sizes."""
    metric = headline_metrics(record["metrics"])[0]
    scores = ScoreTable.of(summary)
    parts = [
        "# Stress test",
        f"{metric_title(metric)}, mean ± standard deviation over trials of the average over "
        f"{_counted(len(record['scenes']), 'scene')}. The light goes through a camera with one "
        "fault; the model is given the nominal mask and dispersion.",
    ]
    for name, group in record["groups"].items():
        tables = [
            text
            for fault, (header, rows) in fault_cells(scores, name, metric)
            if rows
            for text in (f"**{fault}**: {FAULT_WORDS[fault]}", grid(header, rows))
        ]
        if tables:
            title = f"## {group['text']}, {_counted(record['trials'][name], 'trial')}"
            parts += [title, *verdicts(record, name), *tables]
    parts += _notes(record, summary)
    return "\n\n".join(parts) + "\n"


def _group_parts(record: Record, summary: Summary, scores: ScoreTable, name: str) -> list[str]:
    """Averages, scenes and pairs of one group."""
    models, marked = tuple(record["models"]), marked_metrics(record)
    headline = headline_metrics(record["metrics"])
    parts = [
        f"## {record['groups'][name]['text']}",
        f"Average over scenes, {_counted(record['trials'][name], 'trial')}, one mask each:",
        grid(*average_cells(record, scores, name)),
        *verdicts(record, name),
    ]
    for metric in headline:
        rows = [
            [scene, *(scores.text(model, name, metric, scene) for model in models)]
            for scene in (*record["scenes"], AVERAGE)
        ]
        header = ["scene", *(named(record, model, name) for model in models)]
        parts += [f"{metric_title(metric, metric in marked)} by scene:", grid(header, rows)]
    pairs = [
        paired_cells(row)
        for row in summary.paired
        if (row.group, row.scene) == (name, AVERAGE) and row.metric in headline
    ]
    return [*parts, PAIRED_MEANING, grid(PAIRED_HEADER, pairs)] if pairs else parts


def model_grid(record: Record) -> str:
    """Kind, training masks, precision and cost of each model."""
    rows = []
    for label, facts in record["models"].items():
        cost = record["costs"].get(label, {})
        seconds = cost.get("seconds_per_sample")
        rows.append(
            [
                label,
                facts["kind"] + (" weights, seeded" if facts["kind"] == "untrained" else ""),
                facts["trained_on"],
                facts["precision"] if _is_network(facts) else "–",
                "–" if seconds is None else f"{seconds:.4g}",
                scaled_text(cost.get("parameters"), 1e6, 3),
                scaled_text(cost.get("multiply_adds"), 1e9, 2),
                scaled_text(cost.get("peak_memory_bytes"), 2**30, 2),
            ]
        )
    header = [
        "model", "what", "trained on masks", "precision", "s per sample", "parameters [M]",
        "multiply-adds [G]", "peak memory [GiB]",
    ]  # fmt: skip
    return grid(header, rows)


def scaled_text(value: float | None, unit: float, digits: int) -> str:
    """A large number in units of `unit`; a dash where it is not known."""
    return "–" if value is None else f"{value / unit:.{digits}f}"


def _is_network(facts: Mapping[str, Any]) -> bool:
    # Records of older evaluations do not say it; there a kind stands for it.
    return bool(facts.get("network", facts["kind"] in ("weights", "untrained")))


def _notes(record: Record, summary: Summary) -> list[str]:
    """A section with everything a reader of the scores should know."""
    lines = []
    if summary.failed:
        lines.append(
            f"**{summary.failed} reconstructions failed**; they are NaN in the table and left out "
            "of means, and a trial with a failed scene is left out of the averages."
        )
        lines += [str(failure) for failure in summary.failures[:LISTED_FAILURES]]
        if summary.failed > LISTED_FAILURES:
            lines.append(f"… and {summary.failed - LISTED_FAILURES} more, NaN in scores.csv.")
    if not summary.same_measurements:
        lines.append(
            "Measurements of the same trial differed in their last bits between models: cells were "
            "computed on different kinds of machines."
        )
    if marked_metrics(record):
        lines.append(KAIST_NOTE)
    lines += record["remarks"]
    return ["## Notes", "\n".join(f"- {line}" for line in lines)] if lines else []


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


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
    """The rows of a summary, to look up one score at a time."""

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
