"""The untrained network: any size, all of it used, the same start from the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prismask.solvers.pnp_dip import (
    INPUT_CHANNELS,
    WARM_UP,
    Repeated,
    build_hourglass,
    levels_for,
)

CPU = torch.device("cpu")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [(16, 16), (17, 23), (40, 9), (3, 5)])
def test_any_size_comes_back(size: tuple[int, int]) -> None:
    network, noise = build_hourglass(5, 8, 3, size, seed=0, device=CPU)
    output = network(noise)
    assert noise.shape == (1, INPUT_CHANNELS, *size)
    assert output.shape == (1, 5, *size)
    assert 0 < output.min() < output.max() < 1


def test_gradients_reach_every_parameter() -> None:
    network, noise = build_hourglass(5, 8, 3, (32, 36), seed=0, device=CPU)
    (network(noise) - drawn(1, 5, 32, 36)).square().mean().backward()
    assert len(network.downs) == 3
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_seed_is_a_start_and_nothing_else_is_drawn() -> None:
    torch.manual_seed(3)
    untouched = torch.rand(4)
    torch.manual_seed(3)
    first, noise = build_hourglass(4, 8, 2, (12, 12), seed=7, device=CPU)
    assert torch.equal(torch.rand(4), untouched)
    again, same_noise = build_hourglass(4, 8, 2, (12, 12), seed=7, device=CPU)
    other, other_noise = build_hourglass(4, 8, 2, (12, 12), seed=8, device=CPU)
    assert torch.equal(noise, same_noise)
    assert not torch.equal(noise, other_noise)
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.head[0].weight, other.head[0].weight)


def test_small_images_have_fewer_levels() -> None:
    assert levels_for(4, 256, 256) == 4
    assert levels_for(4, 660, 30) == 3  # 30, 15, 8, 4
    assert levels_for(4, 8, 256) == 1
    assert levels_for(4, 5, 5) == 0
    assert levels_for(0, 256, 256) == 0


def test_it_has_about_the_size_it_should() -> None:
    network, _ = build_hourglass(28, 96, 4, (16, 16), seed=0, device=CPU)
    assert len(network.downs) == 2
    network, _ = build_hourglass(28, 96, 4, (64, 64), seed=0, device=CPU)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert 1.2e6 < parameters < 1.6e6


def test_a_step_is_done_once_a_call() -> None:
    count = torch.zeros(())
    repeat = Repeated(CPU)
    for _ in range(WARM_UP + 3):
        repeat(lambda: count.add_(1))
    assert count == WARM_UP + 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("fits", [True, False], ids=["recorded", "refused"])
def test_a_gpu_does_a_step_once_a_call_too(fits: bool) -> None:
    count, calls = torch.zeros((), device="cuda"), []
    amount = torch.ones((), device="cuda")

    def step() -> None:
        calls.append(1)
        count.add_(amount)
        if not fits and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("no graph can hold this")

    repeat = Repeated(count.device)
    before = torch.cuda.current_stream()
    for call in range(WARM_UP + 4):
        amount.fill_(call)
        repeat(step)
    assert count == sum(range(WARM_UP + 4))
    assert torch.cuda.current_stream() == before
    assert len(calls) == (WARM_UP + 1 if fits else WARM_UP + 5)
