"""A loss over all stages of a network."""

from __future__ import annotations

import pytest
import torch

from prismask.training.losses import mask_loss, reconstruction_loss, stage_weights, staged_loss


def squared(estimate: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return reconstruction_loss(estimate, truth, "l2")


def test_weights_grow_to_the_end_and_sum_to_one() -> None:
    assert stage_weights(3, 0.5) == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert stage_weights(3, 0.0) == [0, 0, 1]
    assert stage_weights(1, 0.7) == [1]


def test_every_stage_counts_by_its_weight() -> None:
    truth = torch.zeros(2, 3, 4, 4)
    cubes = (truth + 1, truth + 2, truth)
    assert float(staged_loss(cubes, truth, squared, 0.5)) == pytest.approx(1 / 7 + 2 / 7 * 4)
    assert float(staged_loss(cubes, truth, squared, 0.0)) == 0


def test_a_mask_left_as_told_costs_one_and_the_true_one_nothing() -> None:
    true = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    told = true + 0.2
    assert float(mask_loss([told], told, true, 0.7)) == pytest.approx(1, abs=0.02)
    assert float(mask_loss([true], told, true, 0.7)) == 0
    half = float(mask_loss([(told + true) / 2], told, true, 0.7))
    assert half == pytest.approx(0.25, abs=0.01)
    assert float(mask_loss([told, true], told, true, 0.5)) == pytest.approx(1 / 3, abs=0.01)


def test_a_right_mask_is_better_left_alone() -> None:
    true = torch.full((1, 1, 8, 8), 0.5)
    assert float(mask_loss([true], true, true, 0.7)) == 0
    assert float(mask_loss([true + 0.02], true, true, 0.7)) == pytest.approx(1, abs=1e-4)
