"""Drawings of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prismask.evaluation.analyses.training_log import TrainingCourse
from prismask.evaluation.figures.series import DOTS, WIDTH, series, wrapped
from prismask.evaluation.figures.style import figure_png, styled


def course_figure(courses: Mapping[str, TrainingCourse]) -> bytes:
    """Validation scores against minutes as PNG, a row for runs that lie in the same folder."""
    rows: dict[str, dict[str, TrainingCourse]] = {}
    for name, course in courses.items():
        folder, _, label = name.rpartition("/")
        rows.setdefault(folder, {})[label] = course
    kinds = list(dict.fromkeys(kind for course in courses.values() for kind in course.scores))
    with styled() as figure_class:
        figure = figure_class(figsize=(WIDTH, 0.4 + 2.4 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(kinds), sharey="row", squeeze=False)
        for axes_row, (folder, runs) in zip(panels, rows.items(), strict=True):
            for axes, kind in zip(axes_row, kinds, strict=True):
                _draw(axes, kind, runs)
            axes_row[0].set_ylabel(f"{folder or 'runs'}\nPSNR paper, dB")
            axes_row[0].legend(loc="lower right", fontsize=7)
        for axes in panels.flat:
            axes.set_xlabel("minutes of training")
        return figure_png(figure, DOTS)


def _draw(axes: Any, kind: str, runs: Mapping[str, TrainingCourse]) -> None:
    if not any(kind in course.scores for course in runs.values()):
        axes.set_axis_off()
        return
    axes.set_title(wrapped(kind, 30), loc="left", fontsize=9)
    for number, (label, course) in enumerate(runs.items()):
        colour, marker = series(number)
        if kind in course.scores:
            axes.plot(course.checked, course.scores[kind], color=colour, marker=marker,
                      markersize=3, linewidth=1.2, label=label)  # fmt: skip
    axes.grid(axis="y", color="#e4e7ee", linewidth=0.8)
    axes.set_xlim(left=0)
