"""The stress tests of a report: curves against the size of a fault, and the two fixed cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prismask.evaluation.figures.scores import FaultPanel, Scores, stress_figure
from prismask.evaluation.protocol.conditions import (
    FAULT_KINDS,
    MISMATCH,
    MISMATCH_GIVEN,
    RECALIBRATION,
    RECALIBRATION_GIVEN,
)
from prismask.evaluation.protocol.overlap import VERDICT_TEXTS
from prismask.evaluation.report.document import Block, Listing, Picture, Section, Table, Text
from prismask.evaluation.report.sources import Source
from prismask.evaluation.tables.markdown import headline_metrics, metric_title, spread_text
from prismask.evaluation.tables.summaries import AVERAGE

Row = Mapping[str, Any]
Place = tuple[str, str, float, str]
"""Group, fault, size, mask given."""


def stress_sections(source: Source) -> list[Section]:
    """What one stress test has to say."""
    title = f"Stress: cameras that are not what they are told ({source.name})"
    rows = source.rows("summary.csv")
    if not rows:
        return [
            Section(title, [Text("This stress test is not finished: `--resume` completes it.")])
        ]
    metric = headline_metrics(source.record["metrics"])[0]
    table = _Stress(rows, metric)
    blocks: list[Block] = [
        Text(
            "The light goes through a camera with one fault; the model is given the nominal mask "
            f"and dispersion. {metric_title(metric)}, average over scenes "
            f"({len(source.record['scenes'])} here), mean ± std over masks. The dotted line marks "
            "the size at which nothing is wrong; all panels share one scale."
        )
    ]
    for group in source.record["groups"]:
        blocks += _group_blocks(source, table, group)
    if source.record.get("remarks"):
        blocks.append(Listing(source.record["remarks"]))
    return [Section(title, blocks)]


class _Stress:
    """Average rows of one metric, by place and model."""

    def __init__(self, rows: Sequence[Row], metric: str) -> None:
        self.metric = metric
        self.models = list(dict.fromkeys(row["model"] for row in rows))
        self._rows: dict[tuple[Place, str], Row] = {
            ((row["group"], row["fault"], row["size"], row["given"]), row["model"]): row
            for row in rows
            if row["metric"] == metric and row["scene"] == AVERAGE
        }

    def conditions(self, group: str, fault: str) -> list[tuple[float, str]]:
        """Sizes and masks given of a fault, in order."""
        places = [place for place, _ in self._rows if place[:2] == (group, fault)]
        return sorted({(size, given) for _, _, size, given in places})

    def find(self, place: Place, model: str) -> Row | None:
        """One row; None where there is none."""
        return self._rows.get((place, model))

    def text(self, place: Place, model: str) -> str:
        """`33.02 ± 0.11`."""
        row = self.find(place, model)
        return "–" if row is None else spread_text(self.metric, row["mean"], row["std"])


def _group_blocks(source: Source, table: _Stress, group: str) -> list[Block]:
    blocks: list[Block] = []
    title = source.group_title(group)
    panels = [
        _panel(table, group, fault) for fault in FAULT_KINDS if table.conditions(group, fault)
    ]
    if panels:
        blocks.append(
            Picture(
                f"stress-{source.name}-{group}",
                stress_figure(panels, metric_title(table.metric)),
                f"Masks: {title}. {metric_title(table.metric)} against the size of one fault that "
                "the model does not know about; bars are one standard deviation over masks.",
                "Small panels, one a fault: the score of every model falls as the fault grows",
            )
        )
        blocks += [_curve_table(table, group, fault, title) for fault in FAULT_KINDS
                   if table.conditions(group, fault)]  # fmt: skip
    for fault, order, words in (
        (MISMATCH, MISMATCH_GIVEN, "moved by 1.5 px and 1.0 px and turned by 0.3°"),
        (RECALIBRATION, RECALIBRATION_GIVEN, "two real calibrations of one aperture"),
    ):
        places = {
            given: (group, fault, size, given) for size, given in table.conditions(group, fault)
        }
        if places:
            given = [name for name in order if name in places]
            rows = [[m, *(table.text(places[name], m) for name in given)] for m in table.models]
            caption = f"{fault.capitalize()} ({title}): {words}; the model is given the … mask."
            blocks.append(
                Table(f"{caption} {metric_title(table.metric)}.", ["model", *given], rows,
                      note=_verdicts(source, group))
            )  # fmt: skip
    return blocks


def _panel(table: _Stress, group: str, fault: str) -> FaultPanel:
    kind = FAULT_KINDS[fault]
    curves = []
    for model in table.models:
        found = [
            (size, row)
            for size, given in table.conditions(group, fault)
            if (row := table.find((group, fault, size, given), model)) is not None
            and math.isfinite(row["mean"])
        ]
        if found:
            means, stds = [row["mean"] for _, row in found], [row["std"] for _, row in found]
            curves.append(Scores(model, [size for size, _ in found], means, stds))
    return FaultPanel(fault, kind.text, kind.neutral, curves)


def _curve_table(table: _Stress, group: str, fault: str, title: str) -> Table:
    conditions = table.conditions(group, fault)
    rows = [
        [model, *(table.text((group, fault, size, given), model) for size, given in conditions)]
        for model in table.models
    ]
    caption = f"{fault.replace('_', ' ').capitalize()} ({title}): {FAULT_KINDS[fault].text}."
    return Table(f"{caption} {metric_title(table.metric)}.",
                 ["model", *(f"{size:g}" for size, _ in conditions)], rows)  # fmt: skip


def _verdicts(source: Source, group: str) -> str:
    found = source.record["groups"][group]["overlap"]
    return " ".join(f"† {model}: {VERDICT_TEXTS[v]}." for model, v in found.items() if v)
