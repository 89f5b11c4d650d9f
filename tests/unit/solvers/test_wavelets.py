"""The basis of wavelets and cosines: orthonormal, and the same as PyWavelets' and SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import pywt
import torch
from scipy.fft import dct

from prismask.errors import ConfigError, ShapeError
from prismask.solvers.wavelets import SCALING_FILTERS, CubeBasis, cosine_matrix, wavelet_matrix

LIKE = torch.zeros(1, dtype=torch.float64)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("wavelet", SCALING_FILTERS)
def test_filters_equal_pywavelets(wavelet: str) -> None:
    low = np.array(SCALING_FILTERS[wavelet])
    np.testing.assert_allclose(low, pywt.Wavelet(wavelet).rec_lo, rtol=0, atol=2e-11)
    assert math.isclose(low.sum(), math.sqrt(2), rel_tol=1e-9)


@pytest.mark.parametrize("wavelet", SCALING_FILTERS)
def test_a_level_equals_pywavelets(wavelet: str) -> None:
    signal = random(24)
    ours = (wavelet_matrix(24, wavelet, like=LIKE) @ signal).numpy()
    # Both go around the end; which pixel they begin with, and the details' sign, is a matter of
    # taste. PyWavelets begins half a filter before our place.
    start = len(SCALING_FILTERS[wavelet]) // 2 - 1
    averages, details = pywt.dwt(np.roll(signal.numpy(), -start), wavelet, mode="periodization")
    np.testing.assert_allclose(ours[:12], averages, rtol=0, atol=1e-9)
    sign = np.sign(ours[12] * details[0])
    np.testing.assert_allclose(ours[12:], sign * details, rtol=0, atol=1e-9)


@pytest.mark.parametrize("wavelet", SCALING_FILTERS)
@pytest.mark.parametrize("size", [2, 4, 6, 24, 50])
def test_a_level_is_orthonormal_even_when_it_wraps(wavelet: str, size: int) -> None:
    matrix = wavelet_matrix(size, wavelet, like=LIKE)
    torch.testing.assert_close(
        matrix @ matrix.T, torch.eye(size, dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_vanishing_moments() -> None:
    # sym4 and db4 do not see cubics, away from the place where the end meets the beginning.
    ramp = torch.linspace(-1, 1, 64, dtype=torch.float64) ** 3
    for wavelet in ("db4", "sym4"):
        details = (wavelet_matrix(64, wavelet, like=LIKE) @ ramp)[32:]
        assert details[:28].abs().max() < 1e-9
        assert details.abs().max() > 0.1


def test_cosines_equal_scipy() -> None:
    for size in (1, 5, 28):
        values = random(size)
        want = dct(values.numpy(), norm="ortho")
        np.testing.assert_allclose((cosine_matrix(size, like=LIKE) @ values).numpy(), want, 1e-12)


@pytest.mark.parametrize("size", [(64, 64), (48, 80), (37, 50), (5, 7), (1, 3), (16, 9)])
@pytest.mark.parametrize("wavelet", ["haar", "sym4"])
def test_reconstruction_and_adjointness(size: tuple[int, int], wavelet: str) -> None:
    basis = CubeBasis(size, wavelet)
    cube = random(2, 3, *size)
    coefficients = basis.analysis(cube)
    assert coefficients.shape == (2, 3, *basis.padded_size)
    torch.testing.assert_close(basis.synthesis(coefficients), cube, rtol=0, atol=1e-9)
    torch.testing.assert_close(coefficients.norm(), cube.norm())
    other = random(*coefficients.shape, seed=1)
    left, right = (coefficients * other).sum(), (cube * basis.synthesis(other)).sum()
    torch.testing.assert_close(left, right)
    # The other way around it keeps lengths too, where nothing was padded.
    if basis.padded_size == size:
        torch.testing.assert_close(basis.analysis(basis.synthesis(other)), other)


def test_smooth_cubes_need_few_coefficients() -> None:
    y, x = torch.meshgrid(torch.linspace(0, 1, 64), torch.linspace(0, 1, 64), indexing="ij")
    band = torch.linspace(0, 1, 8)[:, None, None]
    cube = (torch.sin(3 * y + band) + x * band)[None].double()
    sizes = CubeBasis((64, 64)).analysis(cube).abs().flatten().sort(descending=True).values
    assert sizes[: len(sizes) // 50].square().sum() > 0.999 * sizes.square().sum()


def test_a_constant_is_averages_only() -> None:
    basis = CubeBasis((32, 32), levels=2)
    coefficients = basis.analysis(torch.ones(1, 4, 32, 32, dtype=torch.float64))
    averages = basis.is_average(coefficients)
    assert averages.sum() == 64
    torch.testing.assert_close(coefficients[0, 0][averages], torch.full((64,), 8.0).double())
    coefficients[0, 0][averages] = 0
    assert coefficients.abs().max() < 1e-9


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'sym4'"):
        CubeBasis((8, 8), "sim4")
    with pytest.raises(ShapeError, match="expected B×C×8×8"):
        CubeBasis((8, 8)).analysis(torch.zeros(1, 2, 8, 9))
    with pytest.raises(ShapeError, match="coefficients"):
        CubeBasis((9, 9)).synthesis(torch.zeros(1, 2, 9, 9))
