"""Tables of a test of spectra: long form, summary, and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prismask.evaluation.protocol.spectra import METRICS, feature_title
from prismask.evaluation.run.cells import CellResult
from prismask.evaluation.tables.files import Row, write_parquet, write_table
from prismask.evaluation.tables.markdown import grid
from prismask.evaluation.tables.summaries import Moments
from prismask.scenes.atomic import write_beside

SCORE_COLUMNS = (
    "model", "group", "feature", "size", "trial", "scene", "mask_id", "metric", "value", "seconds",
)  # fmt: skip
SUMMARY_COLUMNS = (
    "model", "group", "feature", "size", "metric", "mean", "std", "trials", "failed",
)  # fmt: skip
SHOWN = ("kept", "position_nm", "found", "psnr_paper", "sam", "inside", "inside_feature")
"""Metrics that the Markdown shows."""
SHARES = ("kept", "found", "inside", "inside_feature", "inside_worst_band")
MEANINGS = (
    "Kept: share of the structure's amplitude in the cube, 100 %: all. Position: error in nm, of "
    "those that were found. Found: share of snapshots in which every line or dip has a peak. "
    "Inside: share of the true values inside the interval, over the cube and at the structure. "
    "Means over trials; each has a mask and a scene of its own."
)


def summary_rows(results: Iterable[CellResult]) -> list[dict[str, Any]]:
    """Mean and spread over trials, by model, group, feature and metric; NaN counts as failed."""
    found: dict[tuple[str, str, str, float, str], Moments] = {}
    for result in results:
        cell = result.cell
        for metric, values in result.values.items():
            key = (cell.model, cell.group, cell.fault, cell.size, metric)
            found.setdefault(key, Moments()).add(values[0])
    names = SUMMARY_COLUMNS[:5]
    return [
        {
            **dict(zip(names, key, strict=True)),
            "mean": of.mean, "std": of.std, "trials": of.count, "failed": of.failed,
        }
        for key, of in found.items()
    ]  # fmt: skip


def write_spectra_tables(
    folder: Path,
    results: Sequence[CellResult],
    rows: Sequence[Mapping[str, Any]],
    text: str,
    trial_scenes: Mapping[str, Sequence[str]],
) -> None:
    """scores.csv and its Parquet twin, summary.csv, summary.md."""
    write_table(folder / "scores.csv", SCORE_COLUMNS, _score_rows(results, trial_scenes))
    write_parquet(folder / "scores.csv")
    listed = (tuple(row[name] for name in SUMMARY_COLUMNS) for row in rows)
    write_table(folder / "summary.csv", SUMMARY_COLUMNS, listed)
    with write_beside(folder / "summary.md", overwrite=True) as beside:
        beside.write_text(text, encoding="utf-8")


def _score_rows(
    results: Iterable[CellResult], trial_scenes: Mapping[str, Sequence[str]]
) -> Iterator[Row]:
    for result in results:
        cell = result.cell
        scene = trial_scenes[cell.group][cell.trial]
        first = (cell.model, cell.group, cell.fault, cell.size, cell.trial, scene, result.mask_id)
        for metric, values in result.values.items():
            yield (*first, metric, values[0], result.seconds)


def summary_text(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """The summary as Markdown: a table for each group."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    parts = ["# Spectra with structure", MEANINGS]
    for group in groups:
        header, lines = cells(rows, group)
        trials = len(record["trial_scenes"][group])
        noise = f", noise of {record['noise']:g}" if record["noise"] else ""
        parts += [
            f"## {group} scenes",
            f"{trials} trials of {record['size']}×{record['size']} pixels{noise}; interval of "
            f"{100 * record['level']:g} %.",
            grid(header, lines),
        ]
    if record["remarks"]:
        parts.append("\n".join(f"- {remark}" for remark in record["remarks"]))
    return "\n\n".join(parts) + "\n"


def cells(rows: Sequence[Mapping[str, Any]], group: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a group's table: a line for each structure and method."""
    means = {
        (row["feature"], row["size"], row["model"], row["metric"]): row["mean"]
        for row in rows
        if row["group"] == group
    }
    shown = list(dict.fromkeys(key[:3] for key in means))
    # Methods of one structure side by side, in the order in which they were named.
    order = list(dict.fromkeys(key[:2] for key in shown))
    shown.sort(key=lambda key: order.index(key[:2]))
    header = ["structure", "method", *(METRICS[metric] for metric in SHOWN)]
    lines = []
    for feature, size, model in shown:
        values = [means.get((feature, size, model, metric), math.nan) for metric in SHOWN]
        texts = [number(metric, v) for metric, v in zip(SHOWN, values, strict=True)]
        lines.append([feature_title(feature, size), model, *texts])
    return header, lines


def number(metric: str, value: float) -> str:
    """A value as tables write it."""
    if math.isnan(value):
        return "–"
    if metric in SHARES:
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if metric == "psnr_paper" else f"{value:.1f}"
