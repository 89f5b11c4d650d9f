"""Spectra read elsewhere and recombined: new ones, never beyond what was there."""

from __future__ import annotations

import torch

from prismask.training.config import DataConfig
from prismask.training.data.crops import SceneBank, draw_plan
from prismask.training.data.cubes import (
    RECOMBINE_NUMBERS,
    SHIFT,
    SPECTRA_NUMBERS,
    WARP_NUMBERS,
    CubeMaker,
    between_bands,
    reading_matrix,
    recombining_matrix,
)

CHANGED, PLAIN, FORWARD, BACKWARD = 0.0, 0.5, 1.0, 0.0
"""Numbers that mean: changed; neither stretched nor shifted; either direction."""


def crops(count: int, bands: int = 11) -> torch.Tensor:
    return torch.rand(count, bands, 5, 6, generator=torch.Generator().manual_seed(1))


def told(stretch: float = PLAIN, direction: float = FORWARD, shift: float = PLAIN) -> torch.Tensor:
    return torch.tensor([[CHANGED, stretch, direction, shift]])


def warped(cube: torch.Tensor, numbers: torch.Tensor, share: float = 1.0) -> torch.Tensor:
    return between_bands(cube, reading_matrix(cube.shape[1], numbers, share))


def test_as_many_are_changed_as_asked_for() -> None:
    cube = crops(10)
    numbers = torch.rand(10, *WARP_NUMBERS, generator=torch.Generator().manual_seed(2))
    numbers[:, 0] = torch.linspace(0, 0.9, 10)
    made = warped(cube, numbers, 0.35)
    assert (made != cube).flatten(1).any(1).tolist() == [True] * 4 + [False] * 6


def test_neither_stretched_nor_shifted_is_the_same() -> None:
    cube = crops(1)
    torch.testing.assert_close(warped(cube, told()), cube)


def test_reversed_is_the_spectrum_from_its_other_end() -> None:
    cube = crops(1)
    torch.testing.assert_close(warped(cube, told(direction=BACKWARD)), cube.flip(1))


def test_a_shift_moves_an_edge_and_the_last_band_goes_on() -> None:
    bands = 11  # a fifth of ten steps: two bands
    cube = torch.zeros(1, bands, 1, 1)
    cube[:, 6:] = 1.0
    made = warped(cube, told(shift=1.0))[0, :, 0, 0]
    assert SHIFT * (bands - 1) == 2
    assert made.tolist() == [0.0] * 4 + [1.0] * 7


def test_a_stretch_reads_a_ramp_at_other_places() -> None:
    cube = torch.linspace(-5, 5, 11)[None, :, None, None]
    made = warped(cube, told(stretch=0.0))[0, :, 0, 0]
    torch.testing.assert_close(made, torch.linspace(-5, 5, 11) / 2**0.5)


def test_every_new_band_is_a_mean_of_two_old_ones() -> None:
    numbers = torch.rand(50, *WARP_NUMBERS, generator=torch.Generator().manual_seed(3))
    matrix = reading_matrix(28, numbers, 1.0)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(50, 28))
    assert int((matrix > 0).sum(-1).max()) <= 2
    assert float(matrix.min()) == 0


def drawn_for_recombining(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(4)
    return (
        torch.rand(count, *RECOMBINE_NUMBERS, generator=numbers),
        torch.randn(count, *SPECTRA_NUMBERS, generator=numbers),
    )


def test_recombined_spectra_are_new_smooth_and_no_brighter() -> None:
    numbers, spectra = drawn_for_recombining(60)
    matrix = recombining_matrix(28, numbers, spectra, 1.0)
    assert float(matrix.min()) >= 0
    assert float(matrix.sum(-1).max()) <= 1 + 1e-5, "white stays within range"
    white = matrix.sum(-1)
    assert float(white.diff(dim=1).abs().max()) < 0.4, "no jump between neighbouring bands"
    assert float(white.std(0).mean()) > 0.1, "every crop has a lamp of its own"
    whole = recombining_matrix(28, numbers.index_fill(1, torch.tensor(1), 1.0), spectra, 1.0)
    assert int(torch.linalg.matrix_rank(whole[0].double(), rtol=1e-5)) <= RECOMBINE_NUMBERS[0] - 2


def test_as_many_are_recombined_as_asked_for_and_by_as_much() -> None:
    numbers, spectra = drawn_for_recombining(10)
    numbers[:, 0] = torch.linspace(0, 0.9, 10)
    changed = (recombining_matrix(11, numbers, spectra, 0.35) != torch.eye(11)).flatten(1).any(1)
    assert changed.tolist() == [True] * 4 + [False] * 6
    numbers[:, 1] = 0.0
    untouched = recombining_matrix(11, numbers, spectra, 1.0)
    torch.testing.assert_close(untouched, torch.eye(11).expand(10, -1, -1))


def test_recombining_goes_on_from_warped_spectra_and_draws_anew_each_step() -> None:
    scenes = torch.rand(2, 7, 24, 24, generator=torch.Generator().manual_seed(5))

    def cubes(step: int, **changes: float) -> torch.Tensor:
        config = DataConfig(crop=(8, 8), **changes)  # type: ignore[arg-type]
        maker = CubeMaker(SceneBank(scenes, (8, 8), 1.0), config, 0, 3, slice(0, 3))
        return maker.make(draw_plan(3, 2, config, torch.Generator().manual_seed(6)), step)

    plain, warp = cubes(0), cubes(0, warp=1.0)
    both, alone = cubes(0, warp=1.0, recombine=1.0), cubes(0, recombine=1.0)
    # The same matrix takes warped to both and plain to alone: it is linear in the bands.
    flat = [cube.transpose(0, 1).flatten(1) for cube in (plain[:1], alone[:1])]
    matrix = flat[1] @ torch.linalg.pinv(flat[0])
    torch.testing.assert_close(
        matrix @ warp[:1].transpose(0, 1).flatten(1),
        both[:1].transpose(0, 1).flatten(1),
        atol=1e-4,
        rtol=1e-3,
    )
    assert not torch.allclose(alone, cubes(1, recombine=1.0))
    torch.testing.assert_close(alone, cubes(0, recombine=1.0))
