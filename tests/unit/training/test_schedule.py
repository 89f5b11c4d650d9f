"""The order of phases and the learning rates of the paper."""

from __future__ import annotations

import pytest

from prismask.training.config import ScheduleConfig
from prismask.training.state import (
    phase_of_epoch,
    rate_factor,
    share_of_newest,
    steps_per_epoch,
)


def test_paper_order() -> None:
    paper = ScheduleConfig()
    phases = [phase_of_epoch(epoch, paper) for epoch in range(36)]
    assert phases[:20] == ["warmup"] * 20
    assert phases[20:36] == (["theta"] * 5 + ["phi"] * 3) * 2


def test_other_modes_have_one_phase() -> None:
    for mode in ("joint", "plain"):
        assert {phase_of_epoch(e, ScheduleConfig(mode=mode)) for e in range(40)} == {mode}


def test_rates_halve_or_follow_the_clock() -> None:
    paper = ScheduleConfig()
    assert [rate_factor(e, None, paper) for e in (0, 49, 50, 149)] == [1, 1, 0.5, 0.25]
    assert rate_factor(0, 0.0, paper) == 1
    assert rate_factor(0, 0.5, paper) == pytest.approx(0.5)
    assert 0 < rate_factor(0, 1.2, paper) < 0.01
    assert steps_per_epoch(ScheduleConfig(batch=16, epoch_crops=1000)) == 63


def test_held_rates_fall_at_the_end_alone() -> None:
    held = ScheduleConfig(hold=0.75)
    assert [rate_factor(0, progress, held) for progress in (0.0, 0.4, 0.75)] == [1, 1, 1]
    assert rate_factor(0, 0.875, held) == pytest.approx(0.5)
    assert 0 < rate_factor(0, 1.0, held) < 0.01


def test_the_average_forgets_the_start() -> None:
    """The first weights are random: after a few steps little of them is left in the average."""
    left = 1.0
    for step in range(20):
        left *= 1 - share_of_newest(step, 0.999)
    assert left < 1e-3
    assert share_of_newest(100_000, 0.999) == pytest.approx(0.001)
    assert share_of_newest(0, 0.0) == 1.0, "without a memory it is the newest alone"
