"""Shrinking singular values: against NumPy's decomposition and a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from prismask.solvers.desci import (
    minimise_weighted_nuclear_norm,
    shrink_singular_values,
    weighted_shrinkage,
)


def thresholded(given: Tensor, weight: float | Tensor) -> Tensor:
    """argmin_Z ½ ‖Z − X‖² + weight · ‖Z‖_*; weight: one number, or one a matrix."""
    weights = torch.as_tensor(weight, dtype=given.dtype).unsqueeze(-1)
    return shrink_singular_values(given, lambda s: (s - weights).clamp_min(0))


def matrices(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("shape", [(7, 12, 5), (7, 5, 12), (3, 2, 6, 6), (9, 1), (1, 9)])
def test_thresholding_equals_numpy(shape: tuple[int, ...]) -> None:
    given = matrices(*shape)
    u, s, vt = np.linalg.svd(given.numpy(), full_matrices=False)
    want = (u * np.maximum(s - 1.5, 0)[..., None, :]) @ vt
    np.testing.assert_allclose(thresholded(given, 1.5).numpy(), want, atol=1e-10)


def test_each_matrix_may_have_its_own_threshold() -> None:
    given = matrices(4, 8, 5)
    weights = torch.tensor([0.0, 0.5, 2.0, 100.0], dtype=torch.float64)
    together = thresholded(given, weights)
    for one, weight, found in zip(given, weights, together, strict=True):
        torch.testing.assert_close(found, thresholded(one, float(weight)))
    torch.testing.assert_close(together[0], given[0])
    assert not together[3].any()


def test_thresholding_minimises_what_it_says() -> None:
    given, weight = matrices(8, 5), 0.8

    def objective(z: Tensor) -> float:
        nuclear = torch.linalg.matrix_norm(z, "nuc")
        return float(0.5 * (z - given).square().sum() + weight * nuclear)

    best = thresholded(given, weight)
    for seed in range(20):
        away = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        assert objective(best) < objective(best + 0.05 * away)


def test_the_weighted_step_equals_a_plain_loop() -> None:
    given, noises, strength = 3 * matrices(4, 10, 6), [0.1, 0.5, 0.9, 1.3], 0.7
    found = minimise_weighted_nuclear_norm(
        given, torch.tensor(noises, dtype=torch.float64), strength
    )
    for one, noise, got in zip(given.numpy(), noises, found.numpy(), strict=True):
        u, s, vt = np.linalg.svd(one, full_matrices=False)
        power = 10 * noise**2
        kept = []
        for value in s:
            clean = math.sqrt(max(value**2 - power, 0))
            kept.append(max(value - strength * power / (clean + 1e-3 * math.sqrt(power)), 0))
        np.testing.assert_allclose(got, u @ np.diag(kept) @ vt, atol=1e-6)


def test_strong_values_lose_less_than_weak_ones() -> None:
    values = torch.tensor([0.5, 2.0, 4.0, 50.0])
    kept = weighted_shrinkage(values, torch.tensor(1.0), 1.0)
    lost = values - kept
    assert kept[0] == 0
    assert lost[1] > lost[2] > lost[3]
    assert torch.equal(weighted_shrinkage(values, torch.tensor(0.0), 1.0), values)


def test_it_removes_noise_from_a_low_rank_matrix() -> None:
    truth = matrices(20, 60, 2) @ matrices(20, 2, 12)
    generator = torch.Generator().manual_seed(9)
    noisy = truth + 0.3 * torch.randn(truth.shape, dtype=torch.float64, generator=generator)
    found = minimise_weighted_nuclear_norm(noisy, 0.3, 1.0)
    assert (found - truth).square().mean() < 0.4 * (noisy - truth).square().mean()
    assert (torch.linalg.matrix_rank(found, rtol=1e-6) <= 4).all()


def test_zeros_stay_zeros_in_single_precision() -> None:
    nothing = torch.zeros(3, 6, 4)
    assert torch.equal(minimise_weighted_nuclear_norm(nothing, 0.0), nothing)
    assert torch.equal(minimise_weighted_nuclear_norm(nothing, 0.1), nothing)
    given = matrices(3, 6, 4, dtype=torch.float32)
    torch.testing.assert_close(shrink_singular_values(given, lambda s: s), given)
