"""Scenes whose spectra have structure: lines, cosines, pairs of dips and lamps, on smooth ones.

Natural spectra are smooth, and whatever was learned from them may take that for a law. So a known
structure is planted into a scene, and the scene without it is kept beside it: what became of the
structure can then be measured by itself.

    line     light of one wavelength added in patches; the size is its full width at half maximum
    cosine   reflectance modulated along the bands; the size is the period in bands
    dips     two absorption bands, as blood has them; the size is their distance in nm
    laser    the whole scene lit by an even light and a line far narrower than a band
    lamp     the whole scene lit by a CIE lamp (`scenes.colour`), by its name
    smooth   nothing planted, to compare with
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.checks import choose
from prismask.errors import ConfigError, ShapeError
from prismask.scenes.colour import band_edges, lamp_in_bands
from prismask.scenes.records import Array, Cube
from prismask.scenes.synthetic.canvas import smooth_noise

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

KINDS = ("smooth", "line", "cosine", "dips", "laser", "lamp")
LINE_HEIGHT = 0.4
"""Height of a line above a background that reaches 1 − LINE_HEIGHT."""
COSINE_DEPTH = 0.5
"""Amplitude of a cosine, as a share of the reflectance it modulates."""
DIP_DEPTH, DIP_FWHM = 0.6, 14.0
"""Share of the light that a dip absorbs at its centre, and its full width at half maximum in nm."""
LASER_WIDTH, LASER_BACKGROUND = 0.5, 0.25
"""Width of a laser in nm, and the even light beside it, relative to the laser in its band."""
LASERS = (488.0, 515.0, 532.0, 561.0, 589.0, 594.0, 633.0)
"""Wavelengths of common lasers in nm."""
SMOOTHED_OVER = 30.0
"""Standard deviation in nm of what counts as the smooth part of a lamp."""
MARGIN = 25.0
"""Nanometres that features keep from the ends of the spectrum."""
LEAST_BRIGHT = 0.1
"""Share of the brightest pixel that a pixel needs for its structure to count."""
_FWHM = 2 * np.sqrt(2 * np.log(2))


@dataclass(frozen=True)
class Feature:
    """A structure to plant: what it is, and how large."""

    kind: str
    size: float = 0.0
    """nm for lines and dips, bands for cosines."""
    lamp: str = ""
    """Name of a CIE lamp."""

    def __post_init__(self) -> None:
        choose(self.kind, KINDS, "feature")
        if self.kind in ("line", "cosine", "dips") and not self.size > 0:
            raise ConfigError(f"a {self.kind} of size {self.size:g} is none; give more than 0.")

    @property
    def name(self) -> str:
        """What tables call it, without its size."""
        return self.lamp or self.kind


@dataclass(frozen=True, eq=False)
class Planted:
    """A scene with a structure, and the same scene without it."""

    feature: Feature
    values: Array
    """The scene `(C, H, W)`, largest value at most 1."""
    smooth: Array
    """The scene without the structure, in the same light, `(C, H, W)`."""
    where: Flags
    """Pixels `(H, W)` that have the structure."""
    bands: Flags
    """Bands `(C,)` in which it is at least half as strong as where it is strongest."""
    centres: tuple[float, ...] = ()
    """Where its lines or dips lie, in nm."""
    phase: float = 0.0
    """Of a cosine, in radians at the first band."""


def plant(cube: Cube, feature: Feature, generator: np.random.Generator | int = 0) -> Planted:
    """`cube` with a structure in its spectra; its place and pattern come from the generator."""
    if cube.wavelengths is None:
        raise ShapeError("the scene has no wavelengths: where a line would lie is unknown.")
    draw = np.random.default_rng(generator)
    at = np.asarray(cube.wavelengths, dtype=np.float64)
    scene = cube.values / max(float(cube.values.max()), 1e-12)
    if feature.kind in ("laser", "lamp"):
        return _lit(scene, at, feature, draw)
    patches = np.clip(0.5 + smooth_noise(draw, cube.size, max(cube.size) / 12), 0, 1)
    if feature.kind == "smooth":
        everywhere = np.ones(cube.size, dtype=bool)
        return _planted(feature, scene, scene, everywhere, np.zeros(len(at)), ())
    if feature.kind == "line":
        centre = _place(draw, at, 0.0)
        profile = line_in_bands(at, centre, feature.size)
        smooth = (1 - LINE_HEIGHT) * scene
        values = smooth + LINE_HEIGHT * profile[:, None, None] * patches
        return _planted(feature, values, smooth, patches >= 0.5, profile, (centre,))
    where = (patches >= 0.5) & _bright(scene)
    if feature.kind == "cosine":
        phase = float(draw.uniform(0, 2 * np.pi))
        profile = np.cos(2 * np.pi * np.arange(len(at)) / feature.size + phase)
        smooth = scene / (1 + COSINE_DEPTH)
        values = smooth * (1 + COSINE_DEPTH * profile[:, None, None] * patches)
        return _planted(feature, values, smooth, where, profile, (), phase)
    centre = _place(draw, at, feature.size / 2)
    centres = (centre - feature.size / 2, centre + feature.size / 2)
    profile = np.sum([line_in_bands(at, one, DIP_FWHM) for one in centres], axis=0)
    profile = profile / profile.max()
    values = scene * (1 - DIP_DEPTH * profile[:, None, None] * patches)
    return _planted(feature, values, scene, where, profile, centres)


def line_in_bands(wavelengths: ArrayLike, centre: float, fwhm: float) -> Values:
    """A Gaussian line averaged over each band `(C,)`, largest value 1."""
    from math import erf

    low, high = band_edges(wavelengths)
    scale = np.sqrt(2) * fwhm / _FWHM
    held = np.array([
        erf((b - centre) / scale) - erf((a - centre) / scale)
        for a, b in zip(low, high, strict=True)
    ]) / (high - low)  # fmt: skip
    if not held.max() > 0:
        raise ConfigError(f"a line at {centre:g} nm lies outside {low[0]:g}–{high[-1]:g} nm.")
    return np.asarray(held / held.max())


def smoothed(light: ArrayLike, wavelengths: ArrayLike, over: float = SMOOTHED_OVER) -> Values:
    """`light (C,)` averaged with a Gaussian of std `over` nm; the ends use the bands there are."""
    at = np.asarray(wavelengths, dtype=np.float64)
    low, high = band_edges(at)
    weights = np.exp(-0.5 * ((at[:, None] - at) / over) ** 2) * (high - low)
    return np.asarray(weights @ np.asarray(light) / weights.sum(1))


def _lit(scene: Array, at: Values, feature: Feature, draw: np.random.Generator) -> Planted:
    """The whole scene in the light of a lamp; without its lines, in that of its smooth part."""
    if feature.kind == "lamp":
        light = lamp_in_bands(feature.lamp, at)
    else:
        fitting = [one for one in LASERS if at[0] < one < at[-1]] or [float(at[len(at) // 2])]
        line = line_in_bands(at, float(draw.choice(fitting)), LASER_WIDTH)
        light = (LASER_BACKGROUND + line) / (LASER_BACKGROUND + 1)
    even = smoothed(light, at)
    values, smooth = scene * light[:, None, None], scene * even[:, None, None]
    peak = max(float(values.max()), 1e-12)
    profile = light - even
    centre = (float(at[int(profile.argmax())]),)
    return _planted(feature, values / peak, smooth / peak, _bright(scene), profile, centre)


def _planted(
    feature: Feature,
    values: NDArray[np.floating],
    smooth: NDArray[np.floating],
    where: Flags,
    profile: Values,
    centres: Sequence[float],
    phase: float = 0.0,
) -> Planted:
    # A cosine's troughs belong to it as its crests do; of a lamp, its lines are what is looked at.
    strength = np.abs(profile) if feature.kind == "cosine" else profile
    strongest = float(strength.max())
    bands = (strength >= 0.5 * strongest) & (strongest > 0)
    with_it, without = np.asarray(values, np.float32), np.asarray(smooth, np.float32)
    return Planted(feature, with_it, without, where, bands, tuple(centres), phase)


def _bright(scene: Array) -> Flags:
    level = scene.mean(0)
    return np.asarray(level >= LEAST_BRIGHT * level.max())


def _place(draw: np.random.Generator, at: Values, room: float) -> float:
    """A wavelength that keeps its distance from both ends of the spectrum, where they allow it."""
    low, high = at[0] + MARGIN + room, at[-1] - MARGIN - room
    middle = float(at[0] + at[-1]) / 2
    return float(draw.uniform(low, high)) if low < high else middle
