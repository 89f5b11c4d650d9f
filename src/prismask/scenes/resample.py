"""Spectral resampling: a cube at other wavelengths, by a method one can name.

Every method is a matrix of non-negative weights whose rows sum to 1, applied along the bands.

- `linear`: straight lines between neighbouring bands.
- `nearest`: the band whose centre is nearest (the shorter wavelength when two are equally near).
- `gaussian`: the straight-line spectrum seen through Gaussian bands of a given width at half
  maximum; for a width going to 0 this is `linear`.

Error bars: the errors of neighbouring bands of a reconstruction go together, and how much is not
known. Standard deviations are therefore averaged with the same weights, which is exact when the
errors go together entirely and too large otherwise, never too small. Interval ends likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prismask.checks import choose
from prismask.errors import ConfigError, ValuesError
from prismask.scenes.records import Array, Cube, check_wavelengths

Method = Literal["linear", "nearest", "gaussian"]
Extrapolate = Literal["error", "hold"]
METHODS = ("linear", "nearest", "gaussian")
SAME_NM = 0.5
"""Wavelengths that differ by less are taken for the same band."""
_SAMPLES = 61
_REACH = 3.0
"""Standard deviations of a Gaussian band that are looked at, to either side."""
_FWHM_PER_STD = 2.0 * float(np.sqrt(2.0 * np.log(2.0)))


def resample(
    cube: Cube,
    wavelengths: Sequence[float] | NDArray[np.float64],
    method: Method = "linear",
    extrapolate: Extrapolate = "error",
    fwhm: float | None = None,
) -> Cube:
    """The cube at `wavelengths` in nm, ascending.

    Wavelengths outside the cube's own are an error; `extrapolate="hold"` repeats the outermost
    band there. `fwhm` in nm is the width of `gaussian` bands; by default each is as wide as the
    target bands are apart.
    """
    if cube.wavelengths is None:
        raise ValuesError(
            "the cube's wavelengths are not known, so it cannot be resampled. Give them when "
            "loading: load_cube(path, wavelengths=…)."
        )
    target = check_wavelengths(wavelengths, len(wavelengths))
    weights = resampling_weights(cube.wavelengths, target, method, extrapolate, fwhm)
    if np.array_equal(cube.wavelengths, target) and method != "gaussian":
        return cube
    values = _apply(weights, cube.values)
    return Cube(
        values,
        target,
        None if cube.std is None else _apply(weights, cube.std),
        # Where an end is the value itself, rounding must not put it on the other side.
        None if cube.lower is None else np.minimum(_apply(weights, cube.lower), values),
        None if cube.upper is None else np.maximum(_apply(weights, cube.upper), values),
        {**cube.attrs, "resampled": method},
    )


def check_same_bands(estimate: Cube, truth: Cube) -> None:
    """Raise where two cubes have other wavelengths; nothing is said where one has none."""
    first, second = estimate.wavelengths, truth.wavelengths
    if first is None or second is None or first.shape != second.shape:
        return
    furthest = int(abs(first - second).argmax())
    if abs(first[furthest] - second[furthest]) > SAME_NM:
        raise ValuesError(
            f"band {furthest} lies at {first[furthest]:g} nm in the estimate and at "
            f"{second[furthest]:g} nm in the truth. Resample one of them first "
            "(prismask.scenes.resample)."
        )


def resampling_weights(
    source: NDArray[np.float64],
    target: NDArray[np.float64],
    method: Method = "linear",
    extrapolate: Extrapolate = "error",
    fwhm: float | None = None,
) -> NDArray[np.float64]:
    """The matrix `(C_target, C_source)` that resamples spectra; rows sum to 1."""
    choose(method, METHODS, "resampling method")
    choose(extrapolate, ("error", "hold"), "way to extrapolate")
    if extrapolate == "error":
        _check_inside(source, target)
    if method == "nearest":
        distance = np.abs(target[:, None] - source[None, :])
        weights: NDArray[np.float64] = np.eye(len(source))[distance.argmin(1)]
        return weights
    if method == "linear":
        return _linear(source, target)
    return _gaussian(source, target, fwhm)


def _linear(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hat functions of the source bands at the target; beyond the ends the end is held."""
    if len(source) == 1:
        return np.ones((len(target), 1))
    inside = np.clip(target, source[0], source[-1])
    left = np.clip(np.searchsorted(source, inside, side="right") - 1, 0, len(source) - 2)
    share = (inside - source[left]) / (source[left + 1] - source[left])
    weights = np.zeros((len(target), len(source)))
    rows = np.arange(len(target))
    weights[rows, left] = 1 - share
    weights[rows, left + 1] = share
    return weights


def _gaussian(
    source: NDArray[np.float64], target: NDArray[np.float64], fwhm: float | None
) -> NDArray[np.float64]:
    if fwhm is not None and not fwhm > 0:
        raise ConfigError(f"fwhm is {fwhm:g} nm; a band has a positive width.")
    if fwhm is None and len(target) == 1:
        raise ConfigError("one target band does not tell how wide it is: give fwhm in nm.")
    widths = np.full(len(target), fwhm) if fwhm is not None else np.gradient(target)
    weights = np.empty((len(target), len(source)))
    steps = np.linspace(-_REACH, _REACH, _SAMPLES)
    shape = np.exp(-0.5 * steps**2)
    for row, (centre, width) in enumerate(zip(target, widths, strict=True)):
        places = centre + steps * width / _FWHM_PER_STD
        seen = (places >= source[0]) & (places <= source[-1])
        # A band that hangs over the end of the known spectrum is judged by what is known of it.
        seen = seen if seen.any() else np.ones_like(seen)
        weights[row] = shape[seen] @ _linear(source, places[seen]) / shape[seen].sum()
    return weights


def _check_inside(source: NDArray[np.float64], target: NDArray[np.float64]) -> None:
    below, above = float(source[0] - target[0]), float(target[-1] - source[-1])
    if max(below, above) <= 0:
        return
    sides = []
    if below > 0:
        sides.append(f"{below:.4g} nm below its first band")
    if above > 0:
        sides.append(f"{above:.4g} nm above its last band")
    raise ValuesError(
        f"the cube covers {source[0]:g}–{source[-1]:g} nm; {target[0]:g}–{target[-1]:g} nm reach "
        f"{' and '.join(sides)}. Choose wavelengths inside, or repeat the outermost bands with "
        'extrapolate="hold".'
    )


def _apply(weights: NDArray[np.float64], values: Array) -> Array:
    flat = weights.astype(np.float32) @ values.reshape(values.shape[0], -1)
    return flat.reshape(len(weights), *values.shape[1:])
