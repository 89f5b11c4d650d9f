"""Spectral correlation and even blocks: planted structures come back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from prismask.errors import ShapeError, ValuesError
from prismask.evaluation.analyses.scene import (
    Block,
    block_correlations,
    correlation_distance,
    curve_correlation,
    density_curve,
    mean_correlation,
    spectral_correlation,
    uniform_blocks,
)


def random_cube(seed: int = 0, bands: int = 6, side: int = 48) -> torch.Tensor:
    return torch.rand(bands, side, side, generator=torch.Generator().manual_seed(seed))


# --- correlation matrices ------------------------------------------------------------------------


def test_matrix_is_numpys() -> None:
    cube = random_cube()
    expected = np.corrcoef(cube.flatten(1).double().numpy())
    np.testing.assert_allclose(spectral_correlation(cube).numpy(), expected, atol=1e-12)


def test_planted_correlation() -> None:
    """b = r·a + √(1 − r²)·c with a ⊥ c has correlation r with a, exactly."""
    noise = torch.randn(2, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    noise -= noise.mean(1, keepdim=True)
    a = noise[0] / noise[0].norm()
    c = noise[1] - (noise[1] @ a) * a
    c /= c.norm()
    cube = torch.stack([a, 0.3 * a + math.sqrt(1 - 0.09) * c, -a]).reshape(3, 20, 50)
    matrix = spectral_correlation(cube)
    assert float(matrix[0, 1]) == pytest.approx(0.3, abs=1e-12)
    assert float(matrix[0, 2]) == pytest.approx(-1.0, abs=1e-12)


def test_matrix_does_not_feel_gain_and_offset_of_a_band() -> None:
    cube = random_cube()
    gains = torch.linspace(0.5, 3, 6)[:, None, None]
    changed = cube * gains + torch.linspace(0, 1, 6)[:, None, None]
    torch.testing.assert_close(
        spectral_correlation(cube), spectral_correlation(changed), atol=1e-5, rtol=0
    )


def test_a_constant_band_goes_together_with_nothing() -> None:
    cube = random_cube()
    cube[2] = 0.1  # no binary fraction: its mean differs from it in the last bit
    matrix = spectral_correlation(cube)
    assert matrix[2].tolist() == [0, 0, 1, 0, 0, 0]
    assert bool(torch.isfinite(matrix).all())


def test_distance() -> None:
    one, zero = torch.ones(4, 4), torch.eye(4)
    assert correlation_distance(one, one) == 0
    # All pairs differ by 1, the diagonal does not count.
    assert correlation_distance(one, zero) == pytest.approx(1.0)
    spot = torch.ones(4, 4)
    spot[0, 1] = spot[1, 0] = 0.4
    assert correlation_distance(one, spot) == pytest.approx(math.sqrt(2 * 0.36 / 12))


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (4, 4, 4)])
def test_distance_refuses_what_is_no_matrix(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        correlation_distance(torch.ones(shape), torch.ones(shape))


def test_nan_is_refused() -> None:
    cube = random_cube()
    cube[1, 2, 3] = math.nan
    with pytest.raises(ValuesError, match="NaN"):
        spectral_correlation(cube)


# --- even blocks ---------------------------------------------------------------------------------


def coloured(side: int = 64, bands: int = 4) -> torch.Tensor:
    """A rough scene: strong texture around a coloured mean."""
    spectrum = torch.linspace(0.3, 0.7, bands)[:, None, None]
    return spectrum * (0.5 + random_cube(3, bands, side))


def test_planted_even_blocks_are_found_in_order() -> None:
    cube = coloured()
    spectrum = torch.linspace(0.3, 0.7, 4)[:, None, None]
    wobble = torch.rand(4, 16, 16, generator=torch.Generator().manual_seed(5)) - 0.5
    planted = [(16, 32), (48, 0), (0, 48)]
    for size, (row, column) in zip((0.01, 0.02, 0.05), planted, strict=True):
        cube[:, row : row + 16, column : column + 16] = spectrum * (1 + size * wobble)
    found = uniform_blocks(cube)
    assert [(block.row, block.column) for block in found[:3]] == planted
    assert len(found) == 5
    assert [b.unevenness for b in found] == sorted(b.unevenness for b in found)
    box = cube[:, 16:32, 32:48].double()
    expected = float(box.var((1, 2), correction=0).mean().sqrt() / box.mean())
    assert found[0].unevenness == pytest.approx(expected, rel=1e-6)


def test_dark_and_grey_blocks_are_left_out() -> None:
    cube = coloured()
    cube[:, :16, :16] = torch.linspace(0.003, 0.007, 4)[:, None, None]  # even, but dark
    cube[:, :16, 16:32] = 0.5  # even, but grey
    found = {(block.row, block.column) for block in uniform_blocks(cube, count=16)}
    assert (0, 0) not in found
    assert (0, 16) not in found
    assert len(found) == 14


def test_far_edges_are_not_used_and_small_scenes_are_refused() -> None:
    found = uniform_blocks(coloured(side=40), count=99)
    assert max(max(block.row, block.column) for block in found) == 16
    with pytest.raises(ShapeError, match="16×16"):
        uniform_blocks(torch.rand(4, 15, 40))


def test_black_scene_has_no_blocks() -> None:
    assert uniform_blocks(torch.zeros(4, 32, 32)) == []


def test_density_curve_sums_to_one() -> None:
    block = Block(16, 0, 16, 0.0)
    cube = random_cube()
    curve = density_curve(cube, block)
    assert float(curve.sum()) == pytest.approx(1.0)
    expected = cube[:, 16:32, :16].double().mean((1, 2))
    torch.testing.assert_close(curve * expected.sum(), expected)
    assert density_curve(torch.zeros(6, 48, 48), block).tolist() == [0] * 6


def test_curve_correlation_is_numpys_and_does_not_feel_scale() -> None:
    first, second = torch.rand(2, 9, generator=torch.Generator().manual_seed(2))
    expected = np.corrcoef(first.numpy(), second.numpy())[0, 1]
    assert curve_correlation(first, second) == pytest.approx(expected, abs=1e-6)
    assert curve_correlation(first, 7 * first + 2) == pytest.approx(1.0)
    assert curve_correlation(first, -first) == pytest.approx(-1.0)
    assert math.isnan(curve_correlation(first, torch.full((9,), 0.1)))


def test_blocks_compare_estimate_with_truth() -> None:
    truth = coloured()
    blocks = uniform_blocks(truth)
    assert block_correlations(2 * truth, truth, blocks) == pytest.approx([1.0] * 5)
    assert block_correlations(1 - truth, truth, blocks) == pytest.approx([-1.0] * 5)
    assert mean_correlation([1.0, math.nan, 0.5]) == 0.75
    assert math.isnan(mean_correlation([]))
