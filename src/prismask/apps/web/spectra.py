"""Spectra of pixels and regions, with their error bands."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.apps.web.results import Result
from prismask.errors import ConfigError

MOST_REGIONS = 64


@dataclass(frozen=True)
class Region:
    """Pixels `left … right`, `top … bottom`, both ends included."""

    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def parse(cls, text: str) -> Region:
        """`"left,top,right,bottom"`."""
        try:
            left, top, right, bottom = (int(part) for part in text.split(","))
        except ValueError:
            raise ConfigError(
                f"a region is {text[:60]!r}; it is left,top,right,bottom in whole pixels."
            ) from None
        return cls(left, top, right, bottom)

    def check(self, result: Result) -> None:
        """Raise unless it lies on the cube and is the right way round."""
        height, width = result.cube.size
        inside = 0 <= self.left <= self.right < width and 0 <= self.top <= self.bottom < height
        if not inside:
            raise ConfigError(
                f"the region {self.left},{self.top},{self.right},{self.bottom} does not lie on "
                f"the cube: x runs from 0 to {width - 1}, y from 0 to {height - 1}."
            )

    @property
    def pixels(self) -> int:
        """How many there are."""
        return (self.right - self.left + 1) * (self.bottom - self.top + 1)

    def mean(self, values: NDArray[Any]) -> list[float]:
        """The mean over the region of each band of `(C, H, W)`."""
        part = values[:, self.top : self.bottom + 1, self.left : self.right + 1]
        return [float(value) for value in part.mean(axis=(1, 2), dtype=np.float64)]


def spectrum(result: Result, region: Region) -> dict[str, Any]:
    """The mean spectrum of a region with its error band.

    The ends of the band are averaged too: errors of neighbouring pixels go together, so a mean
    over more of them is not taken to be more certain.
    """
    region.check(result)
    cube = result.cube
    values = region.mean(cube.values)
    lower = upper = None
    meaning = None
    if cube.lower is not None and cube.upper is not None:
        lower, upper = region.mean(cube.lower), region.mean(cube.upper)
        meaning = str(cube.attrs.get("interval", "interval"))
    elif cube.std is not None:
        spread = region.mean(cube.std)
        lower = [v - s for v, s in zip(values, spread, strict=True)]
        upper = [v + s for v, s in zip(values, spread, strict=True)]
        meaning = "one standard deviation"
    return {
        "region": [region.left, region.top, region.right, region.bottom],
        "pixels": region.pixels,
        "wavelengths": None if cube.wavelengths is None else [float(w) for w in cube.wavelengths],
        "values": values,
        "lower": lower,
        "upper": upper,
        "band_meaning": meaning,
        "reference": None if result.reference is None else region.mean(result.reference.values),
    }


def spectra_csv(result: Result, regions: Sequence[Region]) -> str:
    """One row a band; for each region its value, and the ends and reference where known."""
    if not 1 <= len(regions) <= MOST_REGIONS:
        raise ConfigError(f"{len(regions)} regions; ask for 1 to {MOST_REGIONS}.")
    found = [spectrum(result, region) for region in regions]
    at = found[0]["wavelengths"]
    columns: list[tuple[str, Sequence[float]]] = [
        ("wavelength_nm", at) if at else ("band", range(result.cube.bands))
    ]
    for one in found:
        left, top, right, bottom = one["region"]
        name = f"x{left}-{right} y{top}-{bottom}"
        kept = [key for key in ("values", "lower", "upper", "reference") if one[key] is not None]
        columns += [(name if key == "values" else f"{name} {key}", one[key]) for key in kept]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in columns])
    for row in zip(*(values for _, values in columns), strict=True):
        writer.writerow([f"{value:.7g}" for value in row])
    return text.getvalue()
