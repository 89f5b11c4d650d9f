"""Repainting: new spectra, same places; nothing where nothing is asked for."""

from __future__ import annotations

import math

import torch

from prismask.training.data.cubes import REPAINT_NUMBERS, repaint


def crops(count: int = 3) -> torch.Tensor:
    return torch.rand(count, 4, 6, 8, generator=torch.Generator().manual_seed(1)) + 0.1


def test_no_lamp_changes_nothing() -> None:
    cube = crops()
    assert torch.equal(repaint(cube, torch.zeros(3, *REPAINT_NUMBERS)), cube)


def test_two_equal_lamps_are_one_gain_over_the_spectrum() -> None:
    cube = crops()
    one = torch.randn(3, 1, 3, generator=torch.Generator().manual_seed(2))
    gain = repaint(cube, one.expand(3, *REPAINT_NUMBERS)) / cube
    torch.testing.assert_close(gain, gain[:, :, :1, :1].expand_as(gain))
    place = (torch.arange(4) + 0.5) / 4
    orders = torch.arange(1, 4)[:, None]
    wanted = torch.exp(one[:, 0] @ torch.cos(math.pi * orders * place))
    torch.testing.assert_close(gain[:, :, 0, 0], wanted)


def test_lamps_are_mixed_by_the_brightness_opposite() -> None:
    cube = crops(1)
    cube[..., 5, 7] = 0  # dark here: the corner opposite sees the second lamp alone
    coefficients = torch.zeros(1, *REPAINT_NUMBERS)
    coefficients[0, 0] = torch.tensor([0.5, 0.0, 0.0])
    painted = repaint(cube, coefficients)
    torch.testing.assert_close(painted[..., 0, 0], cube[..., 0, 0])
    assert not torch.allclose(painted[..., 3, 3], cube[..., 3, 3])


def test_a_dark_crop_stays_dark_and_finite() -> None:
    painted = repaint(torch.zeros(1, 4, 6, 8), torch.ones(1, *REPAINT_NUMBERS))
    assert torch.equal(painted, torch.zeros(1, 4, 6, 8))
