"""Trainings on the report: how validation went, how far they came, what g did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prismask.evaluation.figures.training import course_figure, g_history_figure
from prismask.evaluation.report.document import Block, Picture, Section, Table
from prismask.evaluation.report.sources import Sources


def training_sections(found: Sources) -> list[Section]:
    """What the runs in the folder wrote down."""
    return [*_courses(found), *_histories(found)]


def _courses(found: Sources) -> list[Section]:
    if not found.trainings:
        return []
    kinds = dict.fromkeys(kind for course in found.trainings.values() for kind in course.scores)
    rows = []
    for name, course in found.trainings.items():
        samples = "–" if course.samples is None else f"{course.samples:,}"
        last = [_last(course.scores.get(kind, ())) for kind in kinds]
        rows.append([name, f"{course.minutes:.1f}", f"{course.steps:,}", samples, *last])
    over = [("", 3), *([("last validation, PSNR paper [dB]", len(kinds))] if kinds else [])]
    table = Table("How far trainings went. Scores of different validation sets do not compare.",
                  ["run", "minutes", "steps", "samples", *kinds],
                  rows, over)  # fmt: skip
    drawn = {name: course for name, course in found.trainings.items() if len(course.checked) > 1}
    blocks: list[Block] = [table]
    if drawn:
        text = "Validation during training."
        blocks.insert(0, Picture("training-curves", course_figure(drawn), text,
                                 "Validation score against minutes of training"))  # fmt: skip
    return [Section("Training curves", blocks)]


def _last(scores: tuple[float, ...]) -> str:
    return f"{scores[-1]:.2f}" if scores and math.isfinite(scores[-1]) else "–"


def _histories(found: Sources) -> list[Section]:
    if not found.g_histories:
        return []
    records = {name: history.to_record() for name, history in found.g_histories.items()}
    picture = history_picture("training", records)
    rows = [
        [name, *(f"{record['numbers'][key]:.4g}" for key in
                 ("first_min", "first_mean", "first_max", "last_min", "last_mean", "last_max",
                  "range_ratio"))]
        for name, record in records.items()
    ]  # fmt: skip
    over = [("first step with g", 3), ("last step", 3), ("", 1)]
    header = ["run", *(("least g", "mean g", "largest g") * 2), "range, last / first"]
    return [Section("g during training", [picture, Table("Range of g.", header, rows, over)])]


def history_picture(name: str, histories: Mapping[str, Any]) -> Picture:
    """The range of g during training; validations without a result are counted."""
    lost = [
        f"{sum(score is None or not math.isfinite(score) for score in history['validation'])} of "
        f"{len(history['validation'])} validations of {label} were not finite"
        for label, history in histories.items()
        if any(score is None or not math.isfinite(score) for score in history["validation"])
    ]
    return Picture(
        name,
        g_history_figure(histories),
        "g over the pixels of a mask during training, from least to largest, and the validation "
        "score." + (f" **{'; '.join(lost)}.**" if lost else ""),
        "The range of g against minutes of training",
    )
