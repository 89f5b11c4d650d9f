"""Spectra of pixels and regions, with their error bands."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from prismask.apps.web.results import Result
from prismask.errors import ConfigError
from prismask.scenes.regions import Polygon, Region

MOST_REGIONS = 64


def spectrum(result: Result, region: Region | Polygon) -> dict[str, Any]:
    """The mean spectrum of a region with its error band.

    The ends of the band are averaged too: errors of neighbouring pixels go together, so a mean
    over more of them is not taken to be more certain.
    """
    region.check(result.cube.size)
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
        "region": _numbers(region),
        "pixels": region.pixels,
        "wavelengths": None if cube.wavelengths is None else [float(w) for w in cube.wavelengths],
        "values": values,
        "lower": lower,
        "upper": upper,
        "band_meaning": meaning,
        "reference": None if result.reference is None else region.mean(result.reference.values),
    }


def spectra_csv(result: Result, regions: Sequence[Region | Polygon]) -> str:
    """One row per band; for each region its value, and the ends and reference where known."""
    if not 1 <= len(regions) <= MOST_REGIONS:
        raise ConfigError(f"{len(regions)} regions; ask for 1 to {MOST_REGIONS}.")
    found = [spectrum(result, region) for region in regions]
    at = found[0]["wavelengths"]
    columns: list[tuple[str, Sequence[float]]] = [
        ("wavelength_nm", at) if at else ("band", range(result.cube.bands))
    ]
    for region, one in zip(regions, found, strict=True):
        name = region.name
        kept = [key for key in ("values", "lower", "upper", "reference") if one[key] is not None]
        columns += [(name if key == "values" else f"{name} {key}", one[key]) for key in kept]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in columns])
    for row in zip(*(values for _, values in columns), strict=True):
        writer.writerow([f"{value:.7g}" for value in row])
    return text.getvalue()


def _numbers(region: Region | Polygon) -> list[float]:
    if isinstance(region, Polygon):
        return [number for corner in region.corners for number in corner]
    return [region.left, region.top, region.right, region.bottom]
