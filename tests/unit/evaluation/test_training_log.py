"""The course of a training, from what it wrote down."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from prismask.errors import DataMissingError, FormatError
from prismask.evaluation.analyses.training_log import read_lines, read_training_log
from prismask.evaluation.figures.training import course_figure, draw_curves
from prismask.evaluation.report.models import training_sections
from prismask.evaluation.report.sources import find_sources

STEP = {"event": "step", "step": 20, "seconds": 30.0, "phase": "plain", "loss": 0.1}
CHECKS = [
    {"event": "validation", "step": 20, "seconds": 60.0, "psnr_seen": 20.0, "score": 20.0},
    {"event": "validation", "step": 40, "seconds": 120.0, "psnr_seen": None, "psnr_noisy": 19.0},
]


def write(folder: Path, *lines: dict[str, object], batch: int | None = 32) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if batch is not None:
        (folder / "run.json").write_text(json.dumps({"batch": batch}), encoding="utf-8")
    return path


def test_a_course(tmp_path: Path) -> None:
    course = read_training_log(write(tmp_path, STEP, *CHECKS))
    assert (course.minutes, course.steps, course.samples) == (2.0, 40, 1280)
    assert course.checked == (1.0, 2.0)
    assert list(course.scores) == ["seen masks", "fabricated masks, with noise"]
    assert course.scores["seen masks"][0] == 20.0
    assert math.isnan(course.scores["seen masks"][1])
    assert math.isnan(course.scores["fabricated masks, with noise"][0])


def test_what_is_not_known(tmp_path: Path) -> None:
    course = read_training_log(write(tmp_path / "a", STEP, batch=None))
    assert (course.samples, course.checked, course.scores) == (None, (), {})
    assert not read_training_log(write(tmp_path / "b")).lines
    with pytest.raises(DataMissingError, match="there is no"):
        read_lines(tmp_path / "none.jsonl")
    torn = write(tmp_path / "c", STEP)
    torn.write_text(torn.read_text() + '{"event": "st', encoding="utf-8")
    assert read_lines(torn) == [STEP]
    torn.write_text('{"event": "st\n' + json.dumps(STEP), encoding="utf-8")
    with pytest.raises(FormatError, match="line 1 is not JSON"):
        read_lines(torn)


def test_trainings_with_and_without_g_are_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path / "runs" / "ensemble", STEP, *CHECKS)
    write(tmp_path / "runs" / "short", STEP)
    with_g = {**STEP, "g_min": 0.01, "g_mean": 0.02, "g_max": 0.03}
    write(tmp_path / "gst", with_g, *CHECKS)
    found = find_sources(tmp_path)
    assert sorted(found.trainings) == ["gst", "runs/ensemble", "runs/short"]
    assert list(found.g_histories) == ["gst"]
    curves, g = training_sections(found)
    assert (curves.title, g.title) == ("Training curves", "g during training")
    drawn = {name: course for name, course in found.trainings.items() if course.checked}
    assert course_figure(drawn).startswith(b"\x89PNG")


@pytest.mark.parametrize("loss", [0.1, -3.0])
def test_curves_of_a_run_that_was_killed_in_the_middle_of_a_line(
    tmp_path: Path, loss: float
) -> None:
    """A logarithmic loss below zero is drawn as well."""
    pytest.importorskip("matplotlib")
    with_g = {**STEP, "g_min": 0.01, "g_mean": 0.02, "g_max": 0.03, "loss": loss}
    path = write(tmp_path, with_g, {**with_g, "phase": "phi", "seconds": 50.0}, *CHECKS)
    path.write_text(path.read_text() + '{"event": "st', encoding="utf-8")
    draw_curves(path, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
