"""A stress test in Markdown: one table a fault, models beside sizes."""

from __future__ import annotations

from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    MISMATCH_GIVEN,
    RECALIBRATION,
    RECALIBRATION_GIVEN,
)
from prismask.evaluation.run.plan import Condition, Plan
from prismask.evaluation.tables.markdown import (
    Record,
    grid,
    headline_metrics,
    metric_title,
    remark_lines,
    spread_text,
    verdict_lines,
)
from prismask.evaluation.tables.summaries import AVERAGE, Summary


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
        tables = _tables(plan, summary, metric, name)
        if tables:
            parts += [f"## {group.text}, {trials}", *verdict_lines(record, name), *tables]
    remarks = remark_lines(record, summary)
    if remarks:
        parts += ["## To mind", "\n".join(f"- {line}" for line in remarks)]
    return "\n\n".join(parts) + "\n"


def _tables(plan: Plan, summary: Summary, metric: str, group: str) -> list[str]:
    shown = [c for condition in plan.conditions[group] for c in plan.shown_as(group, condition)]
    parts: list[str] = []
    for fault, kind in FAULT_KINDS.items():
        found = sorted(condition for condition in shown if condition[0] == fault)
        if found:
            titles = [f"{size:g}" for _, size, _ in found]
            parts += [f"**{fault}**: {kind.text}"]
            parts += [_table(plan, summary, metric, group, found, titles)]
    for fault, words, order in (
        (MISMATCH, "moved by 1.5 px and 1.0 px, turned 0.3°; the model is given", MISMATCH_GIVEN),
        (RECALIBRATION, "measured through this mask; the model is given", RECALIBRATION_GIVEN),
    ):  # fmt: skip
        found = [condition for condition in shown if condition[0] == fault]
        if found:
            found.sort(key=lambda condition: order.index(condition[2]))
            titles = [given for _, _, given in found]
            parts += [f"**{fault}**: {words}"]
            parts += [_table(plan, summary, metric, group, found, titles)]
    return parts


def _table(
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
