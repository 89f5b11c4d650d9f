"""The discriminator and its opponent pull in opposite directions, and keep apart."""

from __future__ import annotations

import math

import pytest
import torch

from prismask.optics.camera import CASSI
from prismask.training.adversary import Adversary
from prismask.training.distributed import World
from prismask.training.losses import reconstruction_loss

CAMERA = CASSI.from_step(3, 1.5)
CPU = torch.device("cpu")


def scenes(count: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Smooth scenes, noisy reconstructions, measurements."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(count, 3, 1, 1, generator=generator).expand(-1, -1, 16, 16)
    estimate = truth + 0.3 * torch.randn(truth.shape, generator=generator)
    return truth, estimate, CAMERA.forward(truth, torch.full((1, 1, 16, 16), 0.5))


def test_it_learns_to_tell_scenes_from_reconstructions() -> None:
    adversary = Adversary(3, 1e-3, 0, CPU)
    truth, estimate, measurement = scenes()
    before = float(adversary.objection(estimate, measurement, CAMERA))
    for _ in range(6):
        adversary.learn(estimate, truth, measurement, CAMERA, World())
    assert float(adversary.objection(estimate, measurement, CAMERA)) > before + 0.1
    assert float(adversary.objection(truth, measurement, CAMERA)) < before


def test_an_objection_moves_the_reconstruction_alone() -> None:
    adversary = Adversary(3, 1e-3, 0, CPU)
    _, estimate, measurement = scenes()
    estimate.requires_grad_(True)
    adversary.objection(estimate, measurement, CAMERA).backward()
    assert estimate.grad is not None
    assert estimate.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in adversary.network.parameters())


def test_learning_moves_the_discriminator_alone() -> None:
    adversary = Adversary(3, 1e-3, 0, CPU)
    truth, estimate, measurement = scenes()
    before = [p.detach().clone() for p in adversary.network.parameters()]
    adversary.learn(estimate, truth, measurement, CAMERA, World())
    for parameter, old in zip(adversary.network.parameters(), before, strict=True):
        assert not torch.equal(parameter, old)
        assert parameter.grad is None


def test_one_seed_one_discriminator() -> None:
    state = torch.get_rng_state()
    one, again, other = (Adversary(3, 1e-3, seed, CPU).network for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.judge[0].weight, again.judge[0].weight)
    assert not torch.equal(one.judge[0].weight, other.judge[0].weight)


@pytest.mark.parametrize("kind", ["l2", "rmse", "l1"])
def test_losses_of_a_known_error(kind: str) -> None:
    truth = torch.zeros(2, 3, 4, 5)
    estimate = truth + torch.tensor([0.1, -0.3]).view(2, 1, 1, 1)
    expected = {"l2": (0.01 + 0.09) / 2, "rmse": 0.2, "l1": 0.2}[kind]
    assert float(reconstruction_loss(estimate, truth, kind)) == pytest.approx(expected, rel=1e-4)


def test_the_log_loss_counts_decibels_alike_in_bright_and_dim_samples() -> None:
    truth = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    truth[1] *= 0.1
    worse = truth * torch.tensor([1.1, 1.01])[:, None, None, None]
    both = [float(reconstruction_loss(worse[i : i + 1], truth[i : i + 1], "log")) for i in (0, 1)]
    floor = 1e-5
    assert both == pytest.approx([math.log(0.1**2 + floor), math.log(0.01**2 + floor)], rel=1e-3)
    assert float(reconstruction_loss(worse, truth, "log")) == pytest.approx(sum(both) / 2)
    assert math.isfinite(float(reconstruction_loss(truth, truth, "log")))
    dark = torch.zeros_like(truth)
    assert math.isfinite(float(reconstruction_loss(dark, dark, "log")))
