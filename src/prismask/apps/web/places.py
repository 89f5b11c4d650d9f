"""Where the pixels of a band lie in the pictures that are not of the cube's own size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prismask.apps.web.layers import Layer
from prismask.apps.web.results import Result

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
