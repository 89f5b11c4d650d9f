"""Muon against a plain NumPy transcription, who takes what, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from prismask.errors import ConfigError
from prismask.models.registry import create_model, list_models
from prismask.training.config import OptimizerConfig
from prismask.training.optimizers import (
    Muon,
    Optimisers,
    adam,
    hidden_matrices,
    theta_optimisers,
)

SHAPES = [(6, 4, 3, 3), (4, 6, 1, 1), (5, 5), (6, 4, 3, 3), (40, 3, 3, 3)]


def reference_step(
    weight: np.ndarray[Any, Any],
    gradient: np.ndarray[Any, Any],
    momentum: np.ndarray[Any, Any],
    rate: float,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Muon by singular values: the quintic, five times, on each of them."""
    momentum = 0.95 * momentum + 0.05 * gradient
    ahead = (0.05 * gradient + 0.95 * momentum).reshape(len(weight), -1)
    left, values, right = np.linalg.svd(ahead, full_matrices=False)
    values = values / np.sqrt((values**2).sum())
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    step = (left * values) @ right
    scale = max(1.0, step.shape[0] / step.shape[1]) ** 0.5
    return weight - rate * scale * step.reshape(weight.shape), momentum


def test_muon_equals_its_transcription_by_singular_values() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in SHAPES
    ]
    expected = [(w.detach().numpy().copy(), np.zeros(w.shape)) for w in weights]
    muon = Muon(weights, lr=0.03)
    for _ in range(4):
        for index, weight in enumerate(weights):
            weight.grad = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            expected[index] = reference_step(
                expected[index][0], weight.grad.numpy(), expected[index][1], 0.03
            )
        muon.step()
        for weight, (wanted, _) in zip(weights, expected, strict=True):
            np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_a_weight_learns_the_same_alone_and_in_a_stack() -> None:
    generator = torch.Generator().manual_seed(1)
    stack = [nn.Parameter(torch.randn(6, 4, 3, 3, generator=generator)) for _ in range(3)]
    alone = nn.Parameter(stack[1].detach().clone())
    for weight in stack:
        weight.grad = torch.randn(weight.shape, generator=generator)
    assert stack[1].grad is not None
    alone.grad = stack[1].grad.clone()
    Muon(stack, lr=0.1).step()
    Muon([alone], lr=0.1).step()
    assert torch.allclose(stack[1], alone, atol=1e-6)


def test_the_layout_of_a_kernel_makes_no_difference() -> None:
    generator = torch.Generator().manual_seed(2)
    plain = nn.Parameter(torch.randn(8, 6, 3, 3, generator=generator))
    other = nn.Parameter(plain.detach().clone().to(memory_format=torch.channels_last))
    gradient = torch.randn(plain.shape, generator=generator)
    for weight in (plain, other):
        weight.grad = torch.empty_like(weight).copy_(gradient)
        Muon([weight], lr=0.1).step()
    assert torch.allclose(plain, other, atol=1e-6)
    assert other.is_contiguous(memory_format=torch.channels_last)


def test_a_rate_may_lie_on_the_device() -> None:
    generator = torch.Generator().manual_seed(3)
    weights = [nn.Parameter(torch.randn(5, 4, generator=generator)) for _ in range(2)]
    weights[1].data.copy_(weights[0].data)
    gradient = torch.randn(5, 4, generator=generator)
    for weight, rate in zip(weights, (0.02, torch.tensor(0.02)), strict=True):
        weight.grad = gradient.clone()
        Muon([weight], lr=rate).step()
    assert torch.allclose(weights[0], weights[1])


def test_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(7,\) is neither.*AdamW"):
        Muon([nn.Parameter(torch.zeros(7))], lr=0.1)


def test_a_network_without_hidden_matrices_is_refused() -> None:
    class Thin(nn.Module):
        io_layers = ("*",)

        def __init__(self) -> None:
            super().__init__()
            self.only = nn.Conv2d(3, 3, 3)

    with pytest.raises(ConfigError, match="no hidden matrices in Thin"):
        theta_optimisers(Thin(), OptimizerConfig(kind="muon"), 1e-3, on_device=False)


@pytest.mark.parametrize("name", [name for name in list_models() if not name.endswith("+")])
def test_every_parameter_of_every_network_has_one_optimiser(name: str) -> None:
    backbone = create_model(name, bands=8, seed=0).backbone
    optimisers = theta_optimisers(backbone, OptimizerConfig(kind="muon"), 1e-3, on_device=False)
    assert len(optimisers.parameters) == len(list(backbone.parameters()))
    assert {id(p) for p in optimisers.parameters} == {id(p) for p in backbone.parameters()}
    by_muon = sum(p.numel() for p in optimisers.parts[0].param_groups[0]["params"])
    assert by_muon > 0.5 * sum(p.numel() for p in backbone.parameters()), "most of it is hidden"


def test_heads_tails_and_depthwise_kernels_are_not_hidden() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Conv2d(3, 8, 3)
            self.body = nn.Conv2d(8, 8, 3)
            self.gate = nn.Conv2d(8, 8, 7, groups=8)
            self.tail = nn.Conv2d(8, 3, 3)

    assert hidden_matrices(Net()) == ["body.weight"]


def test_rates_are_scaled_together_and_in_place_where_they_lie_on_the_device() -> None:
    weight = nn.Parameter(torch.zeros(3, 3))
    bias = nn.Parameter(torch.zeros(3))
    on_device = torch.tensor(0.004)
    both = Optimisers([(Muon([weight], on_device), 0.004), (adam([bias], 1e-3, False), 1e-3)])
    both.set_rates(0.5)
    assert float(on_device) == pytest.approx(0.002)
    assert both.rate == pytest.approx(5e-4)
    assert [id(p) for p in both.clipped] == [id(bias)]
