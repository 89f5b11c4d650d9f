"""Tasks in several processes: errors, deaths, and a run that is left early."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from small_tasks import Doing, number_of

from prismask.errors import FormatError, WorkerLostError
from prismask.parallel.workers import Workers, run_tasks

pytestmark = pytest.mark.slow


def test_deaths_and_errors_take_only_their_own_task(tmp_path: Path) -> None:
    tasks = ["fine-1", "once-2", "bad-3", "die-4", "fine-5"]
    outcomes = {one.task: one for one in run_tasks(iter(tasks), Doing(tmp_path), Workers(2))}
    assert sorted(outcomes) == sorted(tasks)
    assert isinstance(outcomes.pop("bad-3").error, FormatError)
    lost = outcomes.pop("die-4").error
    assert isinstance(lost, WorkerLostError)
    assert "the worker process died" in str(lost)
    for task, one in outcomes.items():
        assert one.error is None
        assert number_of(one.result) == task[-1]


def test_leaving_early_interrupts_what_is_running(tmp_path: Path) -> None:
    tasks = ["fine-1", "long-2", "long-3", "long-4", "long-5"]
    outcomes = run_tasks(tasks, Doing(tmp_path), Workers(2))
    assert number_of(next(outcomes).result) == "1"
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.02)
    left = time.monotonic()
    outcomes.close()
    assert time.monotonic() - left < 30, "the tasks would take minutes"
    assert list(tmp_path.iterdir()) == [], "a task was killed before it could clear up"
