"""A run in Markdown: every number beside its convention, its spread and what to mind about it.

`evaluation_text` is the summary of an evaluation, `stress_text` that of a stress test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
from prismask.evaluation.run.plan import Condition, Plan
from prismask.evaluation.tables.summaries import AVERAGE, Summary, SummaryRow

Record = Mapping[str, Any]
"""What `run.json` says of a run."""

FIXED_SCALE = ("psnr_mst", "psnr_dgsmp", "psnr_unit", "ssim", "ssim_valid", "rmse")
"""Metrics that feel a scene's absolute brightness."""
KAIST_NOTE = (
    "KAIST scenes: nine of the ten brightness maxima are estimates, about ±3 %. Metrics with a "
    "fixed scale, marked ‡, can be off by about 0.26 dB (RMSE by 3 %) a scene; PSNR paper and the "
    "comparison of methods hardly feel it."
)
MEANING = (
    "mean ± standard deviation over trials (standard error); on average over scenes the deviation "
    "is that of the per-trial means"
)
PAIRED_MEANING = (
    "Difference trial by trial on identical measurements, 95 % interval by Student's t. It assumes "
    "independent draws of masks; it speaks about masks of this group and these scenes, not about "
    "other instruments."
)


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


def metric_title(name: str, marked: bool = False) -> str:
    """`PSNR paper [dB] ↑`: label, unit, direction."""
    metric = METRICS[name]
    unit = f" [{metric.unit}]" if metric.unit else ""
    arrow = "↑" if metric.higher_is_better else "↓"
    return f"{metric.label}{unit} {arrow}{' ‡' if marked else ''}"


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


def evaluation_text(record: Record, summary: Summary) -> str:
    """The whole summary of an evaluation, from its finished record (`run.json`)."""
    height, width = record["size"]
    bands = len(record["camera"]["camera_offsets_px"])
    parts = [
        f"# Evaluation: {record['protocol']}",
        f"{len(record['scenes'])} scenes of {bands}×{height}×{width}, seed {record['seed']}, "
        f"measurement noise {record['noise']:g}. Numbers are {MEANING}.",
    ]
    for name in record["groups"]:
        parts += group_parts(record, summary, name)
    parts += ["## Models", model_grid(record)]
    remarks = remark_lines(record, summary)
    if remarks:
        parts += ["## To mind", "\n".join(f"- {line}" for line in remarks)]
    conventions = [f"- {metric_title(m)}: {METRICS[m].convention}" for m in record["metrics"]]
    parts += ["## Conventions", "\n".join(conventions)]
    return "\n\n".join(parts) + "\n"


def group_parts(record: Record, summary: Summary, name: str) -> list[str]:
    """Headline, averages, scenes and pairs of one group."""
    models, metrics = tuple(record["models"]), record["metrics"]
    marks = _marked(record)
    count = record["trials"][name]
    trials = f"{count} trial{'s' if count > 1 else ''}, one mask each"
    average_rows = [
        [
            _named(record, model, name),
            *(_score(summary, model, name, metric, AVERAGE, True) for metric in metrics),
        ]
        for model in models
    ]
    parts = [
        f"## {record['groups'][name]['text']}",
        f"Average over scenes, {trials}:",
        grid(["model", *(metric_title(m, m in marks) for m in metrics)], average_rows),
        *verdict_lines(record, name),
    ]
    for metric in headline_metrics(metrics):
        rows = [
            [scene, *(_score(summary, model, name, metric, scene, False) for model in models)]
            for scene in (*record["scenes"], AVERAGE)
        ]
        header = ["scene", *(_named(record, model, name) for model in models)]
        parts += [f"{metric_title(metric, metric in marks)} by scene:", grid(header, rows)]
    pairs = [
        paired_cells(row)
        for row in summary.paired
        if (row.group, row.scene) == (name, AVERAGE) and row.metric in headline_metrics(metrics)
    ]
    if pairs:
        parts += [PAIRED_MEANING, grid(["difference", "metric", "mean", "95 % interval"], pairs)]
    return parts


def headline_metrics(metrics: Sequence[str]) -> list[str]:
    """The first PSNR and the first SSIM, or else the first metric of all."""
    found = [
        next((name for name in metrics if name.startswith(start)), None)
        for start in ("psnr", "ssim")
    ]
    return [name for name in found if name is not None] or list(metrics[:1])


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
                _large(cost.get("parameters"), 1e6, 3),
                _large(cost.get("multiply_adds"), 1e9, 2),
                _large(cost.get("peak_memory_bytes"), 2**30, 2),
            ]
        )
    header = [
        "model", "what", "trained on masks", "precision", "s per sample", "parameters [M]",
        "multiply-adds [G]", "peak memory [GiB]",
    ]  # fmt: skip
    return grid(header, rows)


def _is_network(facts: Mapping[str, Any]) -> bool:
    # Records of older evaluations do not say it; there a kind stands for it.
    return bool(facts.get("network", facts["kind"] in ("weights", "untrained")))


def remark_lines(record: Record, summary: Summary) -> list[str]:
    """Everything a reader of the scores should know."""
    lines = []
    if summary.failed:
        lines.append(
            f"**{summary.failed} reconstructions failed**; they are NaN in the table and left out "
            "of means, and a trial with a failed scene is left out of the averages."
        )
        lines += [str(failure) for failure in summary.failures[:20]]
        if summary.failed > 20:
            lines.append(f"… and {summary.failed - 20} more, NaN in scores.csv.")
    if not summary.same_measurements:
        lines.append(
            "Measurements of the same trial differed in their last bits between models: cells were "
            "computed on different kinds of machines."
        )
    if _marked(record):
        lines.append(KAIST_NOTE)
    return lines + list(record["remarks"])


def _marked(record: Record) -> tuple[str, ...]:
    if not record["estimated_peaks"]:
        return ()
    return tuple(name for name in record["metrics"] if name in FIXED_SCALE)


def _named(record: Record, model: str, group: str) -> str:
    """Models that need a word beside their scores carry a dagger."""
    return f"{model} †" if record["groups"][group]["overlap"][model] else model


def verdict_lines(record: Record, group: str) -> list[str]:
    """What a dagger in this group means, model by model."""
    return [
        f"† {model}: {VERDICT_TEXTS[verdict]}."
        for model, verdict in record["groups"][group]["overlap"].items()
        if verdict
    ]


def _score(
    summary: Summary, model: str, group: str, metric: str, scene: str, with_error: bool
) -> str:
    row = summary.find(model, group, metric, scene)
    text = spread_text(metric, row.mean, row.std, row.standard_error if with_error else None)
    return text + failed_text(row)


def failed_text(row: SummaryRow) -> str:
    """` [2 of 100 failed]`, where some did."""
    return f" [{row.failed} of {row.failed + row.trials} failed]" if row.failed else ""


def paired_cells(row: Any) -> list[str]:
    """Names, metric, mean and interval of a paired difference (a `PairedRow` or the like)."""
    digits = METRICS[row.metric].digits + 1
    interval = f"{row.low:+.{digits}f} … {row.high:+.{digits}f}"
    if math.isnan(row.low):
        interval = "one trial has none" if row.trials < 2 else "not finite"
    mean = "–" if math.isnan(row.mean) else f"{row.mean:+.{digits}f}"
    return [f"{row.first} − {row.second}", metric_title(row.metric), mean, interval]


def _large(value: float | None, unit: float, digits: int) -> str:
    return "–" if value is None else f"{value / unit:.{digits}f}"


# --- stress tests --------------------------------------------------------------------------------


def stress_text(plan: Plan, record: Record, summary: Summary) -> str:
    """The whole summary of a stress test, with its finished record."""
    metric = headline_metrics(plan.work.metrics)[0]
    count = len(plan.work.scenes.names)
    parts = [
        "# Stress test",
        f"{metric_title(metric)}, mean ± standard deviation over trials of the average over "
        f"{count} scene{'s' if count > 1 else ''}. The light goes through a camera with one fault; "
        "the model is given the nominal mask and dispersion.",
    ]
    for name, group in plan.work.groups.items():
        trials = f"{len(group)} trial{'s' if len(group) > 1 else ''}"
        tables = _stress_tables(plan, summary, metric, name)
        if tables:
            parts += [f"## {group.text}, {trials}", *verdict_lines(record, name), *tables]
    remarks = remark_lines(record, summary)
    if remarks:
        parts += ["## To mind", "\n".join(f"- {line}" for line in remarks)]
    return "\n\n".join(parts) + "\n"


def _stress_tables(plan: Plan, summary: Summary, metric: str, group: str) -> list[str]:
    shown = [c for condition in plan.conditions[group] for c in plan.shown_as(group, condition)]
    parts: list[str] = []
    for fault, kind in FAULT_KINDS.items():
        found = sorted(condition for condition in shown if condition[0] == fault)
        if found:
            titles = [f"{size:g}" for _, size, _ in found]
            parts += [f"**{fault}**: {kind.text}"]
            parts += [_stress_table(plan, summary, metric, group, found, titles)]
    for fault, words, order in (
        (MISMATCH, "moved by 1.5 px and 1.0 px, turned 0.3°; the model is given", MISMATCH_GIVEN),
        (RECALIBRATION, "measured through this mask; the model is given", RECALIBRATION_GIVEN),
    ):  # fmt: skip
        found = [condition for condition in shown if condition[0] == fault]
        if found:
            found.sort(key=lambda condition: order.index(condition[2]))
            titles = [given for _, _, given in found]
            parts += [f"**{fault}**: {words}"]
            parts += [_stress_table(plan, summary, metric, group, found, titles)]
    return parts


def _stress_table(
    plan: Plan,
    summary: Summary,
    metric: str,
    group: str,
    conditions: list[Condition],
    titles: list[str],
) -> str:
    rows = []
    for model in plan.work.contenders:
        scores = [summary.find(model, group, metric, AVERAGE, found) for found in conditions]
        rows.append([model, *(spread_text(metric, row.mean, row.std) for row in scores)])
    return grid(["model", *titles], rows)
