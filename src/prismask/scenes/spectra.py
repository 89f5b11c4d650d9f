"""A spectrum with its error band: of a pixel, of a region, or of a material in a library."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import MissingPartError, ShapeError
from prismask.scenes.records import Cube
from prismask.scenes.regions import Part, Where, as_part

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """One value per band, with an error band where one is known."""

    values: Values
    """`(C,)`."""
    wavelengths: Values | None = None
    """Of the bands in nm, ascending."""
    lower: Values | None = None
    """Lower end of the error band, `(C,)`."""
    upper: Values | None = None
    """Upper end of it."""
    name: str = "spectrum"
    """What it is of."""
    pixels: int = 1
    """How many it is the mean of."""
    band_meaning: str | None = field(default=None)
    """What the error band covers, in words."""

    @property
    def bands(self) -> int:
        """Number of spectral bands C."""
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        at = self.wavelengths
        span = "" if at is None else f", {at[0]:.0f}–{at[-1]:.0f} nm"
        return f"<Spectrum {self.name}, {self.bands} bands{span}>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the spectrum and its error band; gives the axes. Needs matplotlib (report)."""
        return draw_spectra([self], ax)


def spectrum_of(cube: Cube, where: Where, y: float | None = None) -> Spectrum:
    """The spectrum at a pixel `(where, y)`, or the mean over a part of the picture.

    The ends of the error band are averaged too: errors of neighbouring pixels go together, so a
    mean over more of them is not taken to be more certain.
    """
    part = as_part(where, y)
    part.check(cube.size)
    values = _mean(part, cube.values)
    lower = upper = meaning = None
    if cube.lower is not None and cube.upper is not None:
        lower, upper = _mean(part, cube.lower), _mean(part, cube.upper)
        meaning = str(cube.attrs.get("interval", "interval"))
    elif cube.std is not None:
        spread = _mean(part, cube.std)
        lower, upper, meaning = values - spread, values + spread, "one standard deviation"
    name = part.name
    return Spectrum(values, cube.wavelengths, lower, upper, name, part.pixels, meaning)


def _mean(part: Part, values: NDArray[Any]) -> Values:
    return np.asarray(part.mean(values), dtype=np.float64)


def spectra_csv(spectra: Sequence[Spectrum]) -> str:
    """One row per band; a column for each spectrum, and for the ends of its error band."""
    first = spectra[0]
    at = first.wavelengths
    columns: list[tuple[str, Any]] = [
        ("band", range(first.bands)) if at is None else ("wavelength_nm", at)
    ]
    for one in spectra:
        if one.bands != first.bands:
            raise ShapeError(f"{one.name} has {one.bands} bands, {first.name} {first.bands}.")
        ends = ((f"{one.name} lower", one.lower), (f"{one.name} upper", one.upper))
        columns += [(one.name, one.values), *(end for end in ends if end[1] is not None)]
    return csv_text(columns)


def csv_text(columns: Sequence[tuple[str, Any]]) -> str:
    """Named columns of equal length as CSV, seven digits a number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in columns])
    for row in zip(*(values for _, values in columns), strict=True):
        writer.writerow([f"{value:.7g}" for value in row])
    return text.getvalue()


def draw_spectra(
    spectra: Sequence[Spectrum], ax: Any = None, beside: Sequence[Spectrum] = ()
) -> Any:
    """Spectra with their error bands in one pair of axes; those `beside` them are dashed."""
    ax = axes_for(ax)
    for one in spectra:
        at = np.arange(one.bands) if one.wavelengths is None else one.wavelengths
        (line,) = ax.plot(at, one.values, label=one.name)
        if one.lower is not None and one.upper is not None:
            label = _band_label(one) if one is spectra[0] else None
            ax.fill_between(
                at, one.lower, one.upper, alpha=0.2, color=line.get_color(), lw=0, label=label
            )
    for one in beside:
        at = np.arange(one.bands) if one.wavelengths is None else one.wavelengths
        # Dark, so that it is seen on the spectrum that it resembles.
        ax.plot(at, one.values, "--", color="0.2", lw=1, label=one.name)
    ax.set_xlabel("wavelength in nm" if spectra[0].wavelengths is not None else "band")
    ax.set_ylabel("fraction of full scale")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _band_label(spectrum: Spectrum) -> str:
    """What is shaded, in short: `90 % interval`."""
    short = (spectrum.band_meaning or "error band").partition(",")[0]
    return f"{short} interval" if short.endswith("%") else short


def axes_for(ax: Any) -> Any:
    """The axes that were given, or new ones."""
    if ax is not None:
        return ax
    check_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def check_matplotlib(otherwise: str = "") -> None:
    """Raise unless plots can be drawn."""
    if find_spec("matplotlib") is None:
        advice = f", or {otherwise}" if otherwise else ""
        raise MissingPartError(
            "matplotlib is needed for plots; install it with `pip install prismask[report]`"
            f"{advice}."
        )
