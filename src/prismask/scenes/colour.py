"""What a cube looks like: spectra to sRGB.

A pixel's spectrum is weighted with the CIE 1931 2° observer by the trapezoid rule on the cube's
own wavelengths, so uneven bands count by their width. The XYZ of the light that lit the scene is
found through the same bands and moved to the white of sRGB (Bradford adaptation). This one step
does two things: a white object looks white under any light, and a camera that sees only
450–650 nm does not paint everything yellow for the violet it never saw.
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.checks import check_finite, check_shape
from prismask.errors import ConfigError, ValuesError
from prismask.scenes.records import Cube
from prismask.scenes.standards import EQUAL_ENERGY, illuminant_at, observer_at
from prismask.wording import told_in_python

Values = NDArray[np.float64]
Illuminant = str | ArrayLike
Exposure = float | Literal["auto"]

XYZ_TO_LINEAR_SRGB = np.array(
    [
        [3.2406255, -1.5372080, -0.4986286],
        [-0.9689307, 1.8757561, 0.0415175],
        [0.0557101, -0.2040211, 1.0569959],
    ]
)
"""IEC 61966-2-1 (amendment 1), for XYZ relative to D65 with Y = 1 for white."""

SRGB_WHITE_XYZ = np.array([0.9505, 1.0, 1.0890])
"""D65 as sRGB defines it."""

BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
"""XYZ to the sharpened cone space in which the white is moved."""

AUTO_PERCENTILE = 99.5
AUTO_LEVEL = 0.9
LEAST_CONE_SHARE = 0.05
VISIBLE_NM = (380.0, 780.0)

_log = logging.getLogger(__name__)


@told_in_python
def to_srgb(
    cube: Cube, illuminant: Illuminant | None = None, exposure: Exposure = "auto"
) -> NDArray[np.uint8]:
    """The cube `(C, H, W)` as an sRGB picture `(H, W, 3)`, 8 bits a channel.

    `illuminant` is the light in the scene, whose white is shown neutral: a CIE name such as
    `"D65"`, an array with one value a band, or None for `cube.attrs["illuminant"]` and, where
    that is missing, equal energy (right for reflectances).

    `exposure` multiplies the linear light: 1 shows a perfect white reflector under a light of
    value 1 as full white. `"auto"` is `auto_exposure`; give two pictures the same number when
    they are to be compared. Colours outside sRGB are clipped channel by channel.
    """
    linear = to_linear_srgb(cube, illuminant)
    factor = _exposure_of(linear) if exposure == "auto" else float(exposure)
    if not np.isfinite(factor) or factor <= 0:
        raise ConfigError(f"exposure is {exposure!r}; it is 'auto' or a number above 0.")
    return np.asarray(np.round(255 * encode_srgb(linear * factor)), dtype=np.uint8)


@told_in_python
def auto_exposure(cube: Cube, illuminant: Illuminant | None = None) -> float:
    """The exposure that puts the 99.5th percentile of the brightest channel at 0.9 (linear).

    The half percent above it (highlights, hot pixels) may clip; a black cube gets 1.
    """
    return _exposure_of(to_linear_srgb(cube, illuminant))


def to_linear_srgb(cube: Cube, illuminant: Illuminant | None = None) -> Values:
    """The cube as linear sRGB `(H, W, 3)`, not exposed and not clipped."""
    matrix = srgb_matrix(_wavelengths_of(cube), _light_of(cube, illuminant))
    return np.asarray(np.tensordot(cube.values, matrix, axes=([0], [1])), dtype=np.float64)


def srgb_matrix(wavelengths: ArrayLike, illuminant: Illuminant = EQUAL_ENERGY) -> Values:
    """`(3, C)`: a spectrum `(C,)` times this is linear sRGB, with the light itself at (1, 1, 1).

    Where the bands miss a whole region of the spectrum (a camera for red light only) no white
    can be made of them; then only the brightness is fitted and the colours are left alone.
    """
    at = np.asarray(wavelengths, dtype=np.float64)
    weights = observer_at(at) * trapezoid_widths(at)
    light = _light_values(illuminant, at)
    white = weights @ light
    if white[1] <= 0:
        raise ValuesError(
            f"wavelengths run from {at[0]:g} to {at[-1]:g} nm: the eye sees only "
            f"{VISIBLE_NM[0]:g} to {VISIBLE_NM[1]:g} nm. Render a single band instead."
        )
    weights, white = weights / white[1], white / white[1]
    cones, wanted = BRADFORD @ white, BRADFORD @ SRGB_WHITE_XYZ
    if np.any(cones < LEAST_CONE_SHARE * wanted):
        _log.info("bands from %g to %g nm make no white; colours are not adapted", at[0], at[-1])
        return np.asarray(XYZ_TO_LINEAR_SRGB @ weights)
    adaptation = np.linalg.inv(BRADFORD) @ np.diag(wanted / cones) @ BRADFORD
    return np.asarray(XYZ_TO_LINEAR_SRGB @ adaptation @ weights)


def wavelength_to_rgb(wavelengths: ArrayLike) -> Values:
    """A display colour in [0, 1] for each wavelength `(...)` in nm, `(..., 3)`.

    No screen can show a pure spectral colour; this is the nearest it has, channel by channel, at
    full brightness, fading towards the ends of the visible range. Beyond it the colour is grey.
    """
    at = np.asarray(wavelengths, dtype=np.float64)
    linear = np.clip(XYZ_TO_LINEAR_SRGB @ observer_at(at.ravel()), 0.0, None)
    brightest = linear.max(axis=0)
    fade = np.interp(at.ravel(), [380, 430, 660, 780], [0.25, 1.0, 1.0, 0.25])
    seen = (brightest > 0) & (at.ravel() >= VISIBLE_NM[0]) & (at.ravel() <= VISIBLE_NM[1])
    hue = np.where(seen, linear * fade / np.where(brightest > 0, brightest, 1.0), 0.2)
    return encode_srgb(hue).T.reshape(*at.shape, 3)


def band_image(values: ArrayLike, wavelength: float, white: float | None = None) -> Values:
    """One band `(H, W)` as a picture in its own colour, `(H, W, 3)` in [0, 1].

    `white` is the value shown at full brightness; None takes the band's 99.5th percentile.
    """
    band = np.asarray(values, dtype=np.float64)
    check_shape(band, ("H", "W"), "band")
    check_finite(band, "band")
    top = float(np.percentile(band, AUTO_PERCENTILE)) if white is None else float(white)
    level = encode_srgb(band / top) if top > 0 else np.zeros_like(band)
    return np.asarray(level[..., None] * wavelength_to_rgb(wavelength))


def trapezoid_widths(wavelengths: ArrayLike) -> Values:
    """The width in nm that each sample stands for: half the way to both of its neighbours."""
    at = np.asarray(wavelengths, dtype=np.float64)
    if at.size == 1:
        return np.ones(1)
    gaps = np.diff(at)
    return np.asarray(0.5 * (np.concatenate([gaps, [0.0]]) + np.concatenate([[0.0], gaps])))


def encode_srgb(linear: ArrayLike) -> Values:
    """Linear light to sRGB code values in [0, 1], clipped (IEC 61966-2-1)."""
    light = np.clip(np.asarray(linear, dtype=np.float64), 0.0, 1.0)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def _exposure_of(linear: Values) -> float:
    level = float(np.percentile(linear.max(axis=-1), AUTO_PERCENTILE))
    return AUTO_LEVEL / level if level > 0 else 1.0


def _wavelengths_of(cube: Cube) -> Values:
    if cube.wavelengths is None:
        raise ValuesError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown, so its colours are "
            "too. Give --wavelengths in nm."
        )
    return cube.wavelengths


def _light_of(cube: Cube, illuminant: Illuminant | None) -> Illuminant:
    if illuminant is not None:
        return illuminant
    noted = cube.attrs.get("illuminant")
    return noted if isinstance(noted, str) and noted else EQUAL_ENERGY


def _light_values(illuminant: Illuminant, wavelengths: Values) -> Values:
    if isinstance(illuminant, str):
        return illuminant_at(illuminant, wavelengths)
    light = np.asarray(illuminant, dtype=np.float64)
    check_shape(light, (wavelengths.size,), "illuminant")
    check_finite(light, "illuminant")
    if light.min() < 0 or light.max() <= 0:
        raise ValuesError("illuminant holds negative values or no light at all.")
    return light
