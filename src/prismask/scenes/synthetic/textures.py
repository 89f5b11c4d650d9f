"""Building blocks of synthetic scenes: spectra like those of paints, and textures. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def edge_spectrum(
    wavelengths: ArrayLike, at: float, width: float, low: float, high: float
) -> Values:
    """A reflectance that climbs from `low` to `high` around `at` nm, as reds and yellows do.

    With `low` above `high` it falls, as blues do. `width` is the scale of the climb in nm.
    """
    position = (np.asarray(wavelengths, dtype=np.float64) - at) / width
    return np.asarray(low + (high - low) * 0.5 * (1 + np.tanh(0.5 * position)))


def bump_spectrum(
    wavelengths: ArrayLike, at: float, width: float, low: float, high: float
) -> Values:
    """A reflectance with one hill at `at` nm, as greens and purples have."""
    position = (np.asarray(wavelengths, dtype=np.float64) - at) / width
    return np.asarray(low + (high - low) * np.exp(-0.5 * position**2))


def planck_light(wavelengths: ArrayLike, kelvin: float) -> Values:
    """Relative power of a black body at `kelvin`, largest value 1 (second radiation constant)."""
    metres = np.asarray(wavelengths, dtype=np.float64) * 1e-9
    power = metres**-5 / np.expm1(1.4387769e-2 / (metres * kelvin))
    return np.asarray(power / power.max())


def smooth_noise(
    generator: np.random.Generator, shape: tuple[int, int], scale: float | tuple[float, float]
) -> Values:
    """Gaussian noise `(H, W)` smoothed over `scale` pixels (or one an axis): mean 0, std 1."""
    across, along = (scale, scale) if isinstance(scale, int | float) else scale
    height, width = shape
    rows = np.fft.fftfreq(height)[:, None] * across
    columns = np.fft.rfftfreq(width)[None, :] * along
    response = np.exp(-2 * np.pi**2 * (rows**2 + columns**2))
    spectrum = np.fft.rfft2(generator.standard_normal(shape)) * response
    field = np.fft.irfft2(spectrum, s=shape)
    spread = field.std()
    return np.asarray((field - field.mean()) / spread if spread > 0 else field * 0)


def layered_noise(
    generator: np.random.Generator, shape: tuple[int, int], coarsest: float, layers: int = 4
) -> Values:
    """Noise with detail at every scale from `coarsest` pixels down, each half as strong: std 1."""
    field = np.zeros(shape)
    for layer in range(layers):
        field += smooth_noise(generator, shape, coarsest / 2**layer) / 2**layer
    return np.asarray(field / max(float(field.std()), 1e-12))


def stripes(
    position: ArrayLike, period: float, duty: float = 0.5, softness: float = 0.05
) -> Values:
    """Bars in [0, 1] along `position`: 1 over `duty` of each period, with edges `softness` wide."""
    phase = np.mod(np.asarray(position, dtype=np.float64) / period, 1.0)
    distance = np.minimum(phase, 1 - phase) - duty / 2
    return np.asarray(np.clip(0.5 - distance / max(softness, 1e-6), 0.0, 1.0))


def weave(y: ArrayLike, x: ArrayLike, period: float) -> tuple[Values, Values]:
    """A plain weave: where the warp lies on top (0 or 1), and the roundness of the threads."""
    rows, columns = np.asarray(y) / period, np.asarray(x) / period
    warp_on_top = (np.floor(rows) + np.floor(columns)) % 2
    across = np.where(warp_on_top == 1, columns, rows) % 1.0
    along = np.where(warp_on_top == 1, rows, columns) % 1.0
    roundness = np.sin(np.pi * across) ** 0.6 * (0.65 + 0.35 * np.sin(np.pi * along))
    return np.asarray(warp_on_top, dtype=np.float64), np.asarray(roundness)
