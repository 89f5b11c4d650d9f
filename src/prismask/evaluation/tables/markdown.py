"""A run in Markdown: every number beside its convention, its spread and what limits it.

`evaluation_text` is the summary.md of an evaluation, `stress_text` that of a stress test; both
are made from the finished record (`run.json`) and the summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prismask.evaluation.metrics import METRICS
from prismask.evaluation.protocol.conditions import FAULT_KINDS, MISMATCH, RECALIBRATION
from prismask.evaluation.tables.scores import (
    PAIRED_HEADER,
    Record,
    ScoreTable,
    average_cells,
    fault_cells,
    headline_metrics,
    marked_metrics,
    metric_title,
    named,
    paired_cells,
    verdicts,
)
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
    MISMATCH: "moved by 1.5 px and 1.0 px, turned 0.3°; the model is given",
    RECALIBRATION: "measured through this mask; the model is given",
}


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
