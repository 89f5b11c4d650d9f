"""The order of phases and the learning rates of the paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prismask.models.registry import create_model
from prismask.training import loop
from prismask.training.config import ScheduleConfig, TrainConfig, with_changes
from prismask.training.state import (
    new_state,
    phase_of_epoch,
    rate_factor,
    set_rates,
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


def test_all_that_learns_slows_down_together() -> None:
    """The backbone, the mask posterior and the discriminator, in the first steps and the last."""
    config = with_changes(TrainConfig(), loss={"adversarial": 0.1}, optimizer={"ramp_steps": 4})
    model = create_model("srn", bands=4, mask_posterior="gst", seed=0, width=8, blocks=1)
    state = new_state(model, config)
    assert state.phi is not None
    assert state.adversary is not None
    parts = (state.theta, state.phi, state.adversary.optimiser)
    full = [one.rate for one in parts]
    for step, factor, share in ((0, 1.0, 0.25), (1, 1.0, 0.5), (9, 0.1, 0.1)):
        state.step = step
        set_rates(state, config, factor)
        assert [one.rate for one in parts] == pytest.approx([share * rate for rate in full])


def test_speed_and_pauses_count_from_this_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)
    monkeypatch.setattr(loop, "agree", lambda seconds, *_: seconds)
    config = with_changes(TrainConfig(), schedule={"batch": 4, "budget": "100s"})
    run: Any = SimpleNamespace(config=config, world=None, device=None, stop_after=3.0)
    state: Any = SimpleNamespace(seconds=50.0, step=1000)
    clock = loop.Clock(state, run)
    now, state.step = 102.0, 1010
    assert clock.progress(10) == pytest.approx(0.52), "of the budget, with what was used before"
    assert clock.rate() == pytest.approx(10 * 4 / 2)
    assert not clock.should_pause()
    now = 103.5
    clock.progress(10)
    assert clock.should_pause()


def test_the_average_forgets_the_start() -> None:
    """The first weights are random: after a few steps little of them is left in the average."""
    left = 1.0
    for step in range(20):
        left *= 1 - share_of_newest(step, 0.999)
    assert left < 1e-3
    assert share_of_newest(100_000, 0.999) == pytest.approx(0.001)
    assert share_of_newest(0, 0.0) == 1.0, "without a memory it is the newest alone"
