"""The curve of a dispersion: where light of any wavelength lands, from places at a few.

A polynomial in λ suits a grating, one in 1/λ² suits glass, whose index follows Cauchy's series
n = A + B/λ² + C/λ⁴: for BK7 over 54 px, four places then tell the others to a tenth of a pixel,
and a polynomial in λ to 0.7 px. Which of the two it is, the places themselves say: the curve counts
that best foretells one it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.errors import ConfigError, ValuesError

Floats = NDArray[np.float64]

POWERS = (1, -2)
"""Of λ, in which a polynomial is tried: a grating's and a prism's."""
HIGHEST_DEGREE = 4
LEAST_SPREAD_PX = 0.5
"""Movement from end to end below which there is nothing to fit a curve to."""

UNSTEADY_PX = 0.2
"""How far light may seem to go back from one wavelength to the next: places are not exact."""


@dataclass(frozen=True)
class Curve:
    """px(λ) = Σ_k coefficients[k] · λ_nm^(k · power)."""

    coefficients: tuple[float, ...]
    power: int = 1
    """1: a polynomial in λ; −2: in 1/λ²."""

    def __call__(self, nm: ArrayLike) -> Floats:
        """The place of light of `nm`, in pixels."""
        at = np.asarray(nm, dtype=np.float64) ** self.power
        return np.asarray(np.polynomial.Polynomial(self.coefficients)(at))

    def __str__(self) -> str:
        """`-60 +0.2·nm^1 -0.0001·nm^2`."""
        return " ".join(
            f"{c:+.6g}·nm^{k * self.power}" if k else f"{c:.6g}"
            for k, c in enumerate(self.coefficients)
        )


def fit_curve(nm: Floats, px: Floats, degree: int | None = None) -> tuple[Curve, float]:
    """The curve, and how far off it is, at worst, for a place that it does not know.

    degree: of the polynomial; None: the one that best foretells a place it has not seen.
    """
    most = len(nm) - 1
    if degree is not None and not 1 <= degree <= most:
        raise ConfigError(
            f"a polynomial of degree {degree} needs {degree + 1} wavelengths or more, and a "
            f"degree is 1 or more; there are {len(nm)} wavelengths."
        )
    if np.ptp(px) < LEAST_SPREAD_PX:
        raise ValuesError(
            f"the pictures hardly move against each other ({np.ptp(px):.2f} px along that axis). "
            "Are they of different wavelengths, and is it the axis of the dispersion? Hot pixels "
            "and dust stay where they are and may outshine the mask: give a dark picture and a "
            "flat one."
        )
    degrees = [degree] if degree else list(range(1, min(HIGHEST_DEGREE, most - 1) + 1)) or [most]
    misses = {(one, power): _left_out(nm, px, one, power) for power in POWERS for one in degrees}
    # Where too few places are left to tell, all misses are NaN, and the first stays: the plain one.
    best = min(misses, key=lambda which: (misses[which], which[0]))
    curve = _through(nm, px, *best)
    # A line through swapped places would still rise: the places themselves are asked too.
    way = np.sign(px[-1] - px[0])
    steady = np.all(way * np.diff(curve(np.linspace(nm[0], nm[-1], 257))) > 0)
    if not steady or np.any(way * np.diff(px) < -UNSTEADY_PX):
        raise ValuesError(
            "the light does not move on steadily with its wavelength: "
            + ", ".join(f"{w:g} nm at {p:.1f} px" for w, p in zip(nm, px, strict=True))
            + ". Are two pictures swapped?"
        )
    return curve, misses[best]


def _through(nm: Floats, px: Floats, degree: int, power: int) -> Curve:
    found = np.polynomial.Polynomial.fit(nm**power, px, degree).convert().coef
    return Curve(tuple(float(c) for c in found), power)


def _left_out(nm: Floats, px: Floats, degree: int, power: int) -> float:
    """Worst miss of inner places by curves through all others; the ends would be extrapolated."""
    inner = range(1, len(nm) - 1)
    if len(nm) - 1 <= degree or not inner:
        return float("nan")
    misses = []
    for one in inner:
        others = np.arange(len(nm)) != one
        curve = _through(nm[others], px[others], degree, power)
        misses.append(abs(float(curve(nm[one])) - float(px[one])))
    return max(misses)
