"""Spectral resampling: laws of the weights, known spectra, error bars, the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from prismask.errors import ConfigError, ValuesError
from prismask.scenes.records import Cube
from prismask.scenes.resample import METHODS, Method, resample, resampling_weights

GRID = np.arange(400.0, 701.0, 10.0)


def cube_of(spectrum: NDArray[np.float64], wavelengths: NDArray[np.float64] = GRID) -> Cube:
    return Cube(np.tile(spectrum[:, None, None], (1, 2, 3)), wavelengths)


grids = st.lists(st.integers(4000, 7000), min_size=2, max_size=9, unique=True).map(
    lambda tenths: np.array(sorted(tenths)) / 10.0
)


@given(source=grids, target=grids, method=st.sampled_from(METHODS))
def test_weights_are_averages(
    source: NDArray[np.float64], target: NDArray[np.float64], method: Method
) -> None:
    weights = resampling_weights(source, target, method, "hold")
    assert weights.shape == (len(target), len(source))
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)


@given(source=grids, share=st.lists(st.floats(0, 1), min_size=1, max_size=6, unique=True))
def test_linear_is_numpys_interpolation(source: NDArray[np.float64], share: list[float]) -> None:
    target = np.unique(source[0] + np.array(share) * (source[-1] - source[0]))
    spectrum = np.sin(source)
    found = resampling_weights(source, target, "linear", "hold") @ spectrum
    np.testing.assert_allclose(found, np.interp(target, source, spectrum), atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_flat_spectra_stay_flat(method: Method) -> None:
    found = resample(cube_of(np.full(31, 0.7)), [455.5, 500, 633], method)
    np.testing.assert_allclose(found.values, 0.7, rtol=1e-6)
    assert found.attrs["resampled"] == method


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_own_wavelengths_change_nothing(method: Method) -> None:
    cube = cube_of(np.random.default_rng(0).random(31))
    assert resample(cube, GRID, method) is cube
    assert np.array_equal(resample(cube, GRID[3:9], method).values, cube.values[3:9])


def test_nearest_takes_the_nearest() -> None:
    found = resample(cube_of(GRID / 1000), [404.9, 405.0, 405.1, 700.0], "nearest")
    np.testing.assert_allclose(found.values[:, 0, 0], [0.4, 0.4, 0.41, 0.7], rtol=1e-6)


def test_gaussian_bands_of_no_width_are_linear() -> None:
    target = np.array([433.0, 512.5, 699.0])
    narrow = resampling_weights(GRID, target, "gaussian", fwhm=1e-6)
    np.testing.assert_allclose(narrow, resampling_weights(GRID, target), atol=1e-6)


def test_gaussian_bands_blur_a_gaussian_line_as_they_should() -> None:
    # Two Gaussians convolved: the variances add.
    fine = np.arange(400.0, 700.1, 1.0)
    line = np.exp(-0.5 * ((fine - 550) / 12) ** 2)
    std = 20 / 2.3548
    found = resampling_weights(fine, np.array([540.0, 550.0, 575.0]), "gaussian", fwhm=20.0) @ line
    width = np.hypot(12, std)
    expected = 12 / width * np.exp(-0.5 * ((np.array([540, 550, 575]) - 550) / width) ** 2)
    np.testing.assert_allclose(found, expected, rtol=4e-3)


def test_error_bars_go_along() -> None:
    generator = np.random.default_rng(0)
    values, std = generator.random((2, 31, 2, 3))
    cube = Cube(values, GRID, std, values - 2 * std, values + 2 * std)
    found = resample(cube, [455.0, 600.0])
    assert found.std is not None
    assert found.lower is not None
    assert found.upper is not None
    np.testing.assert_allclose(found.std[0], (std[5] + std[6]) / 2, rtol=1e-5)
    np.testing.assert_allclose(found.std[1], std[20], rtol=1e-5)
    np.testing.assert_allclose(found.upper - found.lower, 4 * found.std, rtol=1e-4)
    # Never smaller than what any correlation between the bands could give.
    independent = np.sqrt(std[5] ** 2 + std[6] ** 2) / 2
    assert (found.std[0] >= independent - 1e-6).all()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([390.0, 500.0], "reach 10 nm below its first band"),
        ([500.0, 712.5], "reach 12.5 nm above its last band"),
        ([399.0, 701.0], "1 nm below its first band and 1 nm above"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_extrapolation_is_an_error(target: list[float], message: str, method: Method) -> None:
    with pytest.raises(ValuesError, match=message) as caught:
        resample(cube_of(GRID / 1000), target, method)
    assert 'extrapolate="hold"' in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_holding_repeats_the_ends(method: Method) -> None:
    found = resample(cube_of(GRID / 1000), [300.0, 301.0, 800.0], method, "hold", fwhm=5.0)
    np.testing.assert_allclose(found.values[:, 0, 0], [0.4, 0.4, 0.7], rtol=1e-6)


def test_faults() -> None:
    cube = cube_of(GRID / 1000)
    with pytest.raises(ValuesError, match=r"load_cube\(path, wavelengths=…\)"):
        resample(Cube(np.ones((3, 2, 2))), [500.0])
    with pytest.raises(ConfigError, match="Did you mean 'linear'"):
        resample(cube, [500.0], "linaer")
    with pytest.raises(ConfigError, match="way to extrapolate"):
        resample(cube, [500.0], extrapolate="guess")
    with pytest.raises(ConfigError, match="give fwhm"):
        resample(cube, [500.0], "gaussian")
    with pytest.raises(ConfigError, match="positive width"):
        resample(cube, [500.0], "gaussian", fwhm=-1.0)
    with pytest.raises(ValuesError, match="not ascending"):
        resample(cube, [500.0, 450.0])


def test_a_single_band_can_only_be_held() -> None:
    cube = Cube(np.full((1, 2, 2), 0.3), [500.0])
    assert resample(cube, [450.0, 550.0], extrapolate="hold").values.shape == (2, 2, 2)
