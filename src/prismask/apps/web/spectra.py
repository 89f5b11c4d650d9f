"""Spectra of pixels and regions, with their error bands."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.apps.web.results import Result
from prismask.errors import ConfigError
from prismask.scenes.regions import Polygon, Region

MOST_REGIONS = 64


def spectrum(result: Result, region: Region | Polygon) -> dict[str, Any]:
    """The mean spectrum of a region with its error band (`scenes.spectra.spectrum_of`)."""
    found = result.cube.spectrum(region)
    reference = result.reference
    return {
        "region": _numbers(region),
        "pixels": found.pixels,
        "wavelengths": _listed(found.wavelengths),
        "values": _listed(found.values),
        "lower": _listed(found.lower),
        "upper": _listed(found.upper),
        "band_meaning": found.band_meaning,
        "reference": None if reference is None else region.mean(reference.values),
    }


def _listed(values: NDArray[np.float64] | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


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
