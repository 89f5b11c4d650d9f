"""Spectral libraries: known materials, and which of them each pixel resembles.

Read are ENVI spectral libraries (.sli with its header), tables (CSV: wavelengths in the first
column, one column per material) and the text files of ECOSTRESS, one material each. Spectra are
compared at the bands of the cube, interpolated linearly between the library's own wavelengths.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import check_finite
from prismask.errors import PrismaskWarning, ShapeError, ValuesError
from prismask.scenes.records import Cube
from prismask.scenes.spectra import Spectrum, Values, axes_for

MOST_NM_BEYOND = 1.0
"""How far a band may lie beyond a library's spectrum that still covers it."""
NOTHING = -1
"""Number of the material in pixels that are none of them."""


@dataclass(frozen=True, eq=False, repr=False)
class SpectralLibrary:
    """Spectra of known materials; each may have wavelengths of its own."""

    spectra: tuple[Spectrum, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.spectra:
            raise ValuesError(f"{self.source or 'the library'} holds no spectra.")

    @property
    def names(self) -> list[str]:
        """Names of the materials."""
        return [one.name for one in self.spectra]

    def __len__(self) -> int:
        return len(self.spectra)

    def __iter__(self) -> Iterator[Spectrum]:
        return iter(self.spectra)

    def __getitem__(self, which: int | str) -> Spectrum:
        return self.spectra[self.names.index(which) if isinstance(which, str) else which]

    def __repr__(self) -> str:
        some = ", ".join(self.names[:3]) + (" …" if len(self) > 3 else "")
        return f"<SpectralLibrary of {len(self)} spectra: {some}>"

    def at(self, wavelengths: Values) -> SpectralLibrary:
        """The spectra that cover `wavelengths` in nm, at these; a warning names the others."""
        kept, left_out = [], []
        for one in self.spectra:
            values = _at(one, wavelengths)
            if values is None:
                left_out.append(one.name)
            else:
                kept.append(Spectrum(values, wavelengths, name=one.name))
        span = f"{wavelengths[0]:g} to {wavelengths[-1]:g} nm"
        if not kept:
            raise ValuesError(
                f"no spectrum of {self.source or 'the library'} covers the cube's bands from "
                f"{span}. Are its wavelengths in the unit it says?"
            )
        if left_out:
            more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
            text = f"{', '.join(left_out[:3])}{more} do not cover {span}, and are left out."
            warnings.warn(text, PrismaskWarning, stacklevel=3)
        return SpectralLibrary(tuple(kept), self.source)


@dataclass(frozen=True, eq=False, repr=False)
class MaterialMap:
    """Which material each pixel resembles most."""

    names: list[str]
    """Of the materials."""
    index: NDArray[np.int64]
    """Number of the material `(H, W)`; −1 where none is near enough."""
    angle: NDArray[np.float64]
    """Angle in degrees to the nearest material, `(H, W)`."""

    def __repr__(self) -> str:
        height, width = self.index.shape
        return f"<MaterialMap {height}×{width} of {len(self.names)} materials>"

    def shares(self) -> dict[str, float]:
        """The share of the pixels that each material has, the most frequent first."""
        found = {name: float((self.index == k).mean()) for k, name in enumerate(self.names)}
        listed = sorted(found.items(), key=lambda item: -item[1])
        return {name: share for name, share in listed if share > 0}

    def plot(self, ax: Any = None) -> Any:
        """Draw the map with a legend; gives the axes. Needs matplotlib (extra: report)."""
        ax = axes_for(ax)
        from matplotlib import colormaps
        from matplotlib.patches import Patch

        # Ten strong colours, then their ten pale ones; they begin again after that.
        order = np.array([*range(0, 20, 2), *range(1, 20, 2)])
        colours = colormaps["tab20"](order[np.arange(len(self.names)) % 20])
        nothing = np.array([[0.9, 0.9, 0.9, 1.0]])
        ax.imshow(np.concatenate([colours, nothing])[self.index], interpolation="nearest")
        shown = list(self.shares())[:20]
        handles = [Patch(color=colours[self.names.index(name)], label=name) for name in shown]
        ax.set(xlabel="x in pixels", ylabel="y in pixels")
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        return ax


def angles_to(cube: Cube, spectra: Any) -> NDArray[np.float64]:
    """Angles in degrees between the pixels and spectra; see `Cube.angle_to`."""
    wanted = _spectra_for(cube, spectra)
    pixels = _directions(cube.values.reshape(cube.bands, -1).astype(np.float64), axis=0)
    others = _directions(np.atleast_2d(wanted), axis=1)
    angles = np.stack([_angle(other, pixels) for other in others]).reshape(-1, *cube.size)
    return angles if wanted.ndim == 2 else angles[0]


def nearest_materials(cube: Cube, library: Any, limit: float | None = None) -> MaterialMap:
    """The nearest material of each pixel; see `Cube.nearest_material`."""
    from prismask.scenes.library_files import load_library

    if not isinstance(library, SpectralLibrary):
        library = load_library(library)
    ready = library.at(_wavelengths(cube))
    angles = angles_to(cube, ready)
    index, angle = angles.argmin(axis=0), angles.min(axis=0)
    if limit is not None:
        index = np.where(angle <= limit, index, NOTHING)
    return MaterialMap(ready.names, index.astype(np.int64), angle)


def ranked(spectrum: Spectrum, library: SpectralLibrary) -> list[tuple[str, float]]:
    """The materials with their angle in degrees to one spectrum, the nearest first."""
    here = _directions(spectrum.values[:, None], axis=0)
    found = []
    for one in library:
        (angle,) = _angle(_directions(one.values, axis=0), here)
        found.append((one.name, float(angle)))
    return sorted(found, key=lambda pair: pair[1])


def scaled_to(material: Spectrum, spectrum: Spectrum) -> tuple[Spectrum, float]:
    """A material at the brightness of a spectrum, and the factor: angles ignore brightness."""
    length = float(np.linalg.norm(material.values))
    factor = float(np.linalg.norm(spectrum.values)) / length if length > 0 else 1.0
    return replace(material, values=material.values * factor), factor


def _spectra_for(cube: Cube, spectra: Any) -> Values:
    """Spectra `(C,)` or `(N, C)` at the cube's bands."""
    if isinstance(spectra, Spectrum) and spectra.wavelengths is not None:
        if cube.wavelengths is None or np.array_equal(spectra.wavelengths, cube.wavelengths):
            wanted = spectra.values
        else:
            wanted = SpectralLibrary((spectra,)).at(cube.wavelengths)[0].values
    elif isinstance(spectra, SpectralLibrary):
        is_ready = all(one.wavelengths is cube.wavelengths for one in spectra)
        ready = spectra if is_ready else spectra.at(_wavelengths(cube))
        wanted = np.stack([one.values for one in ready])
    else:
        wanted = np.asarray(spectra, dtype=np.float64)
    if wanted.ndim not in (1, 2) or wanted.shape[-1] != cube.bands:
        raise ShapeError(
            f"spectra are {'×'.join(map(str, wanted.shape))}; this cube has {cube.bands} bands, so "
            f"one is {cube.bands} numbers long, and several are N×{cube.bands}."
        )
    check_finite(wanted, "spectra")
    return wanted


def _wavelengths(cube: Cube) -> Values:
    if cube.wavelengths is None:
        raise ValuesError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown, so no library can be "
            "compared with it. Give them: load_cube(path, wavelengths=[…])."
        )
    return cube.wavelengths


def _at(one: Spectrum, wavelengths: Values) -> Values | None:
    at = one.wavelengths
    if at is None:
        return one.values if len(one.values) == len(wavelengths) else None
    if wavelengths[0] < at[0] - MOST_NM_BEYOND or wavelengths[-1] > at[-1] + MOST_NM_BEYOND:
        return None
    return np.interp(wavelengths, at, one.values)


def _directions(spectra: Values, axis: int) -> Values:
    """Spectra of length 1; those of zeros stay zeros."""
    length = np.linalg.norm(spectra, axis=axis, keepdims=True)
    return np.asarray(spectra / np.where(length > 0, length, 1.0))


def _angle(one: Values, pixels: Values) -> Values:
    """Degrees between a direction `(C,)` and directions `(C, N)`, `(N,)`.

    Beside a spectrum of zeros 90°, between two of them 0°, as in the metric SAM.
    """
    if not one.any():
        return np.where(pixels.any(axis=0), 90.0, 0.0)
    # Twice the angle of chord against sum (Kahan) stays exact where arccos is noise.
    chord = np.linalg.norm(pixels - one[:, None], axis=0)
    total = np.linalg.norm(pixels + one[:, None], axis=0)
    return np.where(pixels.any(axis=0), np.degrees(2 * np.arctan2(chord, total)), 90.0)


def as_library(spectra: Sequence[Spectrum], source: str) -> SpectralLibrary:
    """A library of spectra, with names that occur twice told apart by a number."""
    seen: dict[str, int] = {}
    told = []
    for one in spectra:
        seen[one.name] = seen.get(one.name, 0) + 1
        name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
        told.append(Spectrum(one.values, one.wavelengths, name=name))
    return SpectralLibrary(tuple(told), Path(source).name if source else "")
