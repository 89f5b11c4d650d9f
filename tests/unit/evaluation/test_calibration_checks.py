"""Is the uncertainty true? Checked on a Gaussian toy, where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from prismask.errors import ConfigError, ShapeError
from prismask.evaluation.analyses.spread import (
    LEVELS,
    Calibration,
    Reliability,
    coverage,
    expected_coverage,
    gaussian_factor,
    mean_curve,
    sparsify,
)

COUNT = 200_000


def toy(seed: int = 0, count: int = COUNT) -> tuple[torch.Tensor, torch.Tensor]:
    """Errors with a known std that varies over two decades."""
    generator = torch.Generator().manual_seed(seed)
    std = 10 ** (2 * torch.rand(count, generator=generator) - 3)
    return std * torch.randn(count, generator=generator), std


def test_gaussian_factor_is_scipys() -> None:
    for level in LEVELS:
        assert gaussian_factor(level) == pytest.approx(scipy.stats.norm.ppf(0.5 + level / 2))
    with pytest.raises(ConfigError):
        gaussian_factor(1.0)


@pytest.mark.parametrize("level", LEVELS)
def test_the_right_std_covers_what_it_says(level: float) -> None:
    error, std = toy()
    assert coverage(error, gaussian_factor(level) * std) == pytest.approx(level, abs=0.004)


@pytest.mark.parametrize("level", LEVELS)
def test_half_the_std_covers_what_half_a_z_covers(level: float) -> None:
    error, std = toy()
    z = scipy.stats.norm.ppf(0.5 + level / 2)
    known = 2 * scipy.stats.norm.cdf(z / 2) - 1
    assert coverage(error, gaussian_factor(level) * std / 2) == pytest.approx(known, abs=0.004)


@pytest.mark.parametrize("draws", [2, 5, 20])
def test_few_draws_cover_less_by_a_known_amount(draws: int) -> None:
    """x ± z·s with s from n draws of the same distribution, around the true mean."""
    samples = np.random.default_rng(0).standard_normal((100_000, draws))
    spread = samples.std(axis=1, ddof=1)
    truth = np.random.default_rng(1).standard_normal(100_000)
    for level in LEVELS:
        found = (np.abs(truth) <= gaussian_factor(level) * spread).mean()
        assert expected_coverage(level, draws) == pytest.approx(found, abs=0.006)
    assert expected_coverage(0.9, 100_000) == pytest.approx(0.9, abs=1e-4)
    assert expected_coverage(0.9, 1) == 0


def test_reliability_lies_on_the_diagonal_when_true() -> None:
    error, std = toy()
    found = Reliability()
    found.add(error[: COUNT // 2], std[: COUNT // 2])  # in two parts, as scenes come
    found.add(error[COUNT // 2 :], std[COUNT // 2 :])
    assert found.ratio == pytest.approx(1.0, abs=0.01)
    record = found.to_record()
    assert len(record["std"]) == 20
    np.testing.assert_allclose(record["error"], record["std"], rtol=0.05)
    assert sum(record["share"]) == pytest.approx(1.0)
    halved = Reliability()
    halved.add(error, std / 2)
    assert halved.ratio == pytest.approx(2.0, abs=0.02)


def test_reliability_of_zeros_and_of_huge_values() -> None:
    found = Reliability()
    found.add(torch.tensor([0.1, 0.2]), torch.zeros(2))
    assert found.ratio == math.inf
    found.add(torch.tensor([500.0]), torch.tensor([1000.0]))
    assert sum(found.to_record()["share"]) == pytest.approx(1.0)


def test_a_true_order_is_nearly_as_good_as_can_be_and_a_random_one_is_chance() -> None:
    error, std = toy()
    true = sparsify(error, std)
    assert 0 < true.relative < 0.25
    assert true.curve[0] == pytest.approx(1.0)
    assert true.curve[-1] < 0.2
    random = sparsify(error, torch.rand(COUNT, generator=torch.Generator().manual_seed(9)))
    assert random.relative == pytest.approx(1.0, abs=0.03)
    assert random.ause == pytest.approx(random.chance, rel=0.03)
    assert sparsify(error, error.abs()).ause == pytest.approx(0.0, abs=1e-9)
    assert sparsify(error, -std).relative > 1.3  # certain where it errs most


def test_order_alone_counts() -> None:
    error, std = toy(count=5000)
    assert sparsify(error, std).curve == sparsify(error, std**2 * 7).curve


def test_equal_uncertainties_are_chance_wherever_the_errors_lie() -> None:
    error = torch.linspace(0, 1, 1000)  # sorted: ties broken by place would look like an oracle
    same = sparsify(error, torch.ones(1000))
    assert same.relative == pytest.approx(1.0)
    assert same.curve == pytest.approx([1.0] * 50)


def test_sparsification_by_hand() -> None:
    found = sparsify(torch.tensor([3.0, 1.0, 2.0, 0.0]), torch.tensor([4.0, 3.0, 2.0, 1.0]), 4)
    whole = math.sqrt(14 / 4)
    assert found.dropped == (0.0, 0.25, 0.5, 0.75)
    expected = [whole, math.sqrt(5 / 3), math.sqrt(4 / 2), 0.0]
    assert found.curve == pytest.approx([value / whole for value in expected])
    oracle = [whole, math.sqrt(5 / 3), math.sqrt(1 / 2), 0.0]
    assert found.oracle == pytest.approx([value / whole for value in oracle])
    assert found.ause == pytest.approx(0.25 * (math.sqrt(2) - math.sqrt(0.5)) / whole)


def test_areas_are_those_of_trapezoids() -> None:
    found = sparsify(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 2.0]), 2)
    whole = math.sqrt(2.5)
    assert found.ause == pytest.approx(0.5 * (2 - 1) / whole / 2)
    assert found.chance == pytest.approx(0.5 * (1 - 1 / whole) / 2)
    assert found.relative > 1


def test_no_error_at_all() -> None:
    perfect = sparsify(torch.zeros(10), torch.rand(10))
    assert math.isnan(perfect.relative)
    assert perfect.ause == 0


def test_mean_of_curves() -> None:
    first, second = sparsify(*toy(1, 1000)), sparsify(*toy(2, 1000))
    mean = mean_curve([first, second])
    assert mean.ause == pytest.approx((first.ause + second.ause) / 2)
    with pytest.raises(ConfigError):
        mean_curve([])


def test_sizes_must_agree() -> None:
    with pytest.raises(ShapeError, match="value by value"):
        coverage(torch.ones(3), torch.ones(4))


def test_everything_together_scene_by_scene() -> None:
    checks = Calibration()
    for number in range(3):
        error, std = toy(number, 8 * 40 * 40)
        factor = 2.0 if number == 2 else 1.0  # one scene is over-confident
        checks.add(f"s{number}", error.reshape(8, 40, 40), std.reshape(8, 40, 40) / factor)
    record = checks.to_record(draws=5)
    ninety = record["coverage"][2]
    assert ninety["nominal"] == 0.9
    assert ninety["expected"] == pytest.approx(expected_coverage(0.9, 5))
    assert ninety["highest_scene"] == pytest.approx(0.9, abs=0.02)
    assert ninety["lowest_scene"] == pytest.approx(2 * scipy.stats.norm.cdf(0.8224) - 1, abs=0.02)
    assert ninety["lowest_scene"] < ninety["observed"] < ninety["highest_scene"]
    assert set(record["scenes"]) == {"s0", "s1", "s2"}
    assert record["scenes"]["s2"]["coverage"]["0.9"] == ninety["lowest_scene"]
    assert 1 < record["error_over_std"] < 2


def test_given_half_widths_take_the_place_of_gaussian_ones() -> None:
    error, std = toy(0, 4 * 30 * 30)
    error, std = error.reshape(4, 30, 30), std.reshape(4, 30, 30)
    checks = Calibration((0.5, 0.9))
    widths = {0.5: torch.full_like(std, 10.0), 0.9: torch.zeros_like(std)}
    checks.add("s", error, std, widths)
    observed = [level["observed"] for level in checks.to_record()["coverage"]]
    assert observed == [1.0, 0.0]
