"""Figures of trainings: the curves of one run, validation of several, and what g did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismask.evaluation.analyses.training_log import TrainingLog, minutes_of, read_training_log
from prismask.evaluation.figures.style import (
    DOTS,
    GRID,
    WIDTH,
    figure_png,
    legend_above,
    series,
    styled,
    wrapped,
)
from prismask.scenes.atomic import write_beside

OWN_PHASE = {"phi": "φ steps"}
"""Phases whose loss is drawn apart; all others train θ."""


def draw_curves(metrics: Path, picture: Path) -> None:
    """Write the curves of the run that wrote `metrics`; nothing where it made no step."""
    found = read_training_log(metrics)
    if found.step_lines:
        with write_beside(picture, overwrite=True) as beside:
            beside.write_bytes(run_figure(found))


def run_figure(found: TrainingLog) -> bytes:
    """Loss, validation scores and the range of g of one run against minutes, as PNG."""
    history = found.g_history
    rows = 2 if history is None else 3
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.3 + 2.4 * rows), layout="constrained")
        panels = figure.subplots(rows, 1, sharex=True)
        _draw_loss(panels[0], found)
        for number, (kind, scores) in enumerate(found.scores.items()):
            colour, marker = series(number)
            panels[1].plot(found.checked, scores, color=colour, marker=marker, markersize=3,
                           linewidth=1.2, label=kind)  # fmt: skip
        panels[1].set_ylabel("validation PSNR paper, dB")
        panels[1].grid(axis="y", color=GRID, linewidth=0.8)
        # Above: with five kinds of scores there is no free corner.
        legend_above(figure, panels[1], columns=3)
        if history is not None:
            _draw_g(panels[2], {"range and mean": history.to_record()})
            panels[2].legend()
        panels[-1].set_xlabel("minutes of training")
        return figure_png(figure, DOTS)


def _draw_loss(axes: Any, found: TrainingLog) -> None:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for line in found.step_lines:
        by_name.setdefault(OWN_PHASE.get(str(line.get("phase")), "θ steps"), []).append(line)
    for number, (name, lines) in enumerate(sorted(by_name.items())):
        axes.plot([minutes_of(line) for line in lines], [line["loss"] for line in lines], ".",
                  markersize=2, color=series(number)[0], label=name)  # fmt: skip
    # A loss that is itself a logarithm may be negative.
    if all(line["loss"] > 0 for line in found.step_lines):
        axes.set_yscale("log")
    axes.set_ylabel("loss ℓ")
    axes.legend(markerscale=4)


def _draw_g(axes: Any, histories: Mapping[str, Mapping[str, Any]]) -> None:
    """The mean of g and its range over a mask's pixels, with a scale that shows both."""
    for number, (label, history) in enumerate(histories.items()):
        colour, _ = series(number)
        axes.fill_between(history["minutes"], history["low"], history["high"], color=colour,
                          alpha=0.22, linewidth=0)  # fmt: skip
        axes.plot(history["minutes"], history["mean"], color=colour, linewidth=1.2, label=label)
    axes.set_ylabel("g over a mask's pixels")
    lowest = min(min(history["low"]) for history in histories.values())
    highest = max(max(history["high"]) for history in histories.values())
    if lowest > 0 and highest / lowest > 30:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)


def g_history_figure(histories: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The range of g during training, with the validation score below, as PNG.

    histories: records of `GHistory` by label.
    """
    with_scores = any(history["validation"] for history in histories.values())
    rows = 2 if with_scores else 1
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.6 + 2.2 * rows), layout="constrained")
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        named = {f"{label}: mean, least to largest": one for label, one in histories.items()}
        _draw_g(panels[0], named)
        if with_scores:
            for number, history in enumerate(histories.values()):
                colour, marker = series(number)
                panels[1].plot(history["validation_minutes"], history["validation"], color=colour,
                               marker=marker, markersize=3, linewidth=1.2)  # fmt: skip
            panels[1].set_ylabel(wrapped("validation PSNR paper, dB", 18))
            panels[1].grid(axis="y", color=GRID, linewidth=0.8)
        panels[-1].set_xlabel("minutes of training")
        panels[-1].set_xlim(left=0)
        legend_above(figure, panels[0], columns=2)
        return figure_png(figure, DOTS)


def course_figure(courses: Mapping[str, TrainingLog]) -> bytes:
    """Validation scores against minutes as PNG, a row for runs that lie in the same folder."""
    rows: dict[str, dict[str, TrainingLog]] = {}
    for name, course in courses.items():
        folder, _, label = name.rpartition("/")
        rows.setdefault(folder, {})[label] = course
    kinds = list(dict.fromkeys(kind for course in courses.values() for kind in course.scores))
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.4 + 2.4 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(kinds), sharey="row", squeeze=False)
        for axes_row, (folder, runs) in zip(panels, rows.items(), strict=True):
            for axes, kind in zip(axes_row, kinds, strict=True):
                _draw_scores(axes, kind, runs)
            axes_row[0].set_ylabel(f"{folder or 'runs'}\nPSNR paper, dB")
            axes_row[0].legend(loc="lower right", fontsize=7)
        for axes in panels.flat:
            axes.set_xlabel("minutes of training")
        return figure_png(figure, DOTS)


def _draw_scores(axes: Any, kind: str, runs: Mapping[str, TrainingLog]) -> None:
    if not any(kind in course.scores for course in runs.values()):
        axes.set_axis_off()
        return
    axes.set_title(wrapped(kind, 30), loc="left", fontsize=9)
    for number, (label, course) in enumerate(runs.items()):
        colour, marker = series(number)
        if kind in course.scores:
            axes.plot(course.checked, course.scores[kind], color=colour, marker=marker,
                      markersize=3, linewidth=1.2, label=label)  # fmt: skip
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_xlim(left=0)
