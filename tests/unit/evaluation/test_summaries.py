"""Numbers over trials against NumPy, SciPy and planted truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from prismask.evaluation.tables.summaries import (
    Moments,
    difference,
    scene_average,
    student_t,
)

numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50)


@given(numbers)
def test_moments_are_those_of_numpy(values: list[float]) -> None:
    found = Moments.of(values)
    scale = max(1.0, max(abs(v) for v in values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9 * scale)
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-7 * scale)
    assert found.standard_error == pytest.approx(found.std / math.sqrt(len(values)), nan_ok=True)


def test_small_spread_on_a_large_mean_is_not_lost() -> None:
    values = 1e9 + np.array([0.0, 1e-3, 2e-3])
    assert Moments.of(values).std == pytest.approx(1e-3, rel=1e-3)


def test_a_planted_std_comes_back_and_a_running_mean_would_hide_it() -> None:
    planted = 0.15
    values = 30 + planted * np.random.default_rng(0).standard_normal(4000)
    found = Moments.of(values)
    assert found.std == pytest.approx(planted, rel=0.05)
    running = np.cumsum(values) / np.arange(1, len(values) + 1)
    assert np.std(running) < planted / 5


def test_interval_is_that_of_scipy() -> None:
    generator = np.random.default_rng(1)
    first = generator.normal(30, 1, 25)
    second = first - generator.normal(0.3, 0.2, 25)
    found = Moments.of(map(difference, first, second))
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.interval() == pytest.approx((expected.low, expected.high))


def test_interval_on_known_data() -> None:
    # t for 4 degrees of freedom is 2.776445; std of 1…5 is √2.5.
    low, high = Moments.of(map(difference, [2, 4, 6, 8, 10], [1, 2, 3, 4, 5])).interval()
    half = 2.776445 * math.sqrt(2.5) / math.sqrt(5)
    assert (low, high) == pytest.approx((3 - half, 3 + half), abs=1e-5)


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(1000):
        low, high = Moments.of(generator.normal(1.0, 2.0, 8)).interval()
        hits += low <= 1.0 <= high
    assert 0.93 < hits / 1000 < 0.97


@pytest.mark.parametrize("freedom", [1, 4, 99])
def test_student(freedom: int) -> None:
    assert student_t(0.95, freedom) == pytest.approx(stats.t.ppf(0.975, freedom))


def test_what_failed_is_counted_and_left_out() -> None:
    found = Moments.of([1.0, math.nan, 3.0])
    assert (found.count, found.failed, found.mean) == (2, 1, 2.0)
    assert math.isnan(Moments().mean)
    assert math.isnan(Moments.of([1.0]).std)
    assert all(math.isnan(end) for end in Moments.of([1.0]).interval())


def test_a_perfect_score_makes_the_mean_infinite() -> None:
    found = Moments.of([30.0, math.inf, 31.0])
    assert found.mean == math.inf
    assert math.isnan(found.std)
    assert Moments.of([1.0, -math.inf]).mean == -math.inf
    assert math.isnan(Moments.of([math.inf, -math.inf]).mean)


def test_who_is_perfect_wins_a_pair_and_two_who_are_draw() -> None:
    perfect, other = [math.inf, math.inf], [30.0, 31.0]
    assert Moments.of(map(difference, perfect, other)).mean == math.inf
    assert Moments.of(map(difference, other, perfect)).mean == -math.inf
    level = Moments.of(map(difference, perfect, perfect))
    assert (level.mean, level.count, level.failed) == (0.0, 2, 0)


def test_average_of_a_trial_needs_all_its_scenes() -> None:
    assert scene_average([1.0, 2.0, 6.0]) == 3.0
    assert math.isnan(scene_average([1.0, math.nan]))
