"""Spectra read elsewhere: shifted, stretched, reversed, never beyond what was there."""

from __future__ import annotations

import torch

from prismask.training.data.cubes import SHIFT, WARP_NUMBERS, read_elsewhere, reading_matrix

CHANGED, PLAIN, FORWARD, BACKWARD = 0.0, 0.5, 1.0, 0.0
"""Numbers that mean: changed; neither stretched nor shifted; either direction."""


def crops(count: int, bands: int = 11) -> torch.Tensor:
    return torch.rand(count, bands, 5, 6, generator=torch.Generator().manual_seed(1))


def told(stretch: float = PLAIN, direction: float = FORWARD, shift: float = PLAIN) -> torch.Tensor:
    return torch.tensor([[CHANGED, stretch, direction, shift]])


def test_as_many_are_changed_as_asked_for() -> None:
    cube = crops(10)
    numbers = torch.rand(10, *WARP_NUMBERS, generator=torch.Generator().manual_seed(2))
    numbers[:, 0] = torch.linspace(0, 0.9, 10)
    made = read_elsewhere(cube, numbers, 0.35)
    assert (made != cube).flatten(1).any(1).tolist() == [True] * 4 + [False] * 6


def test_neither_stretched_nor_shifted_is_the_same() -> None:
    cube = crops(1)
    torch.testing.assert_close(read_elsewhere(cube, told(), 1.0), cube)


def test_reversed_is_the_spectrum_from_its_other_end() -> None:
    cube = crops(1)
    torch.testing.assert_close(read_elsewhere(cube, told(direction=BACKWARD), 1.0), cube.flip(1))


def test_a_shift_moves_an_edge_and_the_last_band_goes_on() -> None:
    bands = 11  # a fifth of ten steps: two bands
    cube = torch.zeros(1, bands, 1, 1)
    cube[:, 6:] = 1.0
    made = read_elsewhere(cube, told(shift=1.0), 1.0)[0, :, 0, 0]
    assert SHIFT * (bands - 1) == 2
    assert made.tolist() == [0.0] * 4 + [1.0] * 7


def test_a_stretch_reads_a_ramp_at_other_places() -> None:
    cube = torch.linspace(-5, 5, 11)[None, :, None, None]
    made = read_elsewhere(cube, told(stretch=0.0), 1.0)[0, :, 0, 0]
    torch.testing.assert_close(made, torch.linspace(-5, 5, 11) / 2**0.5)


def test_every_new_band_is_a_mean_of_two_old_ones() -> None:
    numbers = torch.rand(50, *WARP_NUMBERS, generator=torch.Generator().manual_seed(3))
    matrix = reading_matrix(28, numbers, 1.0)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(50, 28))
    assert int((matrix > 0).sum(-1).max()) <= 2
    assert float(matrix.min()) == 0
