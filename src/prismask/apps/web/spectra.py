"""Spectra of pixels and regions, with their error bands, and where these pixels lie in pictures
that are not of the cube's own size (snapshot and mask).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.apps.web.layers import Layer
from prismask.apps.web.results import Result
from prismask.errors import ConfigError
from prismask.scenes.libraries import SpectralLibrary, ranked, scaled_to
from prismask.scenes.regions import Polygon, Region
from prismask.scenes.spectra import Spectrum, csv_text

Places = list[tuple[float, float]]
"""Right and down, in pixels, for each band."""


def places_of(result: Result, layer: Layer) -> Places | None:
    """How far from its place in the cube each band's light lies in a layer.

    Empty where that is nowhere else; None where nobody knows the camera, or it does not fit. The
    same arithmetic as that of `optics.camera`, which would load torch to look at a file.
    """
    record = {"snapshot": result.snapshot, "mask": result.mask}.get(layer)
    if record is None or record.size == result.cube.size:
        return []
    notes = [result.cube.attrs] + ([] if result.snapshot is None else [result.snapshot.attrs])
    noted = next((attrs for attrs in notes if "camera_offsets_px" in attrs), {})
    # One disperser shears what the sensor sees, two shear what the mask is asked for.
    sheared = "mask" if noted.get("camera_design") == "dual" else "snapshot"
    offsets = _offsets(noted, result.cube.bands)
    if offsets is None or layer != sheared:
        return None
    across = noted.get("camera_axis", "width") == "width"
    height, width = result.cube.size
    extent = math.ceil(max(offsets))
    longer = (height, width + extent) if across else (height + extent, width)
    if record.size != longer:
        return None
    return [(offset, 0.0) if across else (0.0, offset) for offset in offsets]


def _offsets(noted: Mapping[str, Any], bands: int) -> list[float] | None:
    """The camera's offsets as a file notes them; None where they are none of this cube."""
    try:
        listed = np.atleast_1d(np.asarray(noted.get("camera_offsets_px", ()), dtype=np.float64))
    except (TypeError, ValueError):
        return None  # a file of somebody else's, with an attribute of the same name
    if listed.shape != (bands,) or not np.isfinite(listed).all():
        return None
    # Only differences matter, but a mirrored frame of ours begins with a part of a pixel.
    start = 0.0 if 0 <= listed.min() < 1 else listed.min()
    return [float(offset) for offset in np.round(listed - start, 9)]


MOST_REGIONS = 64
MOST_MATERIALS = 3


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
        "materials": _materials(found, result.library),
    }


def _materials(found: Spectrum, library: SpectralLibrary | None) -> list[dict[str, Any]]:
    """The nearest materials of the library, at the brightness of a spectrum."""
    if library is None:
        return []
    return [
        {"name": name, "angle": angle, "values": _listed(scaled_to(library[name], found)[0].values)}
        for name, angle in ranked(found, library)[:MOST_MATERIALS]
    ]


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
    return csv_text(columns)


def _numbers(region: Region | Polygon) -> list[float]:
    if isinstance(region, Polygon):
        return [number for corner in region.corners for number in corner]
    return [region.left, region.top, region.right, region.bottom]
