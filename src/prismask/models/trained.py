"""The camera that a network was trained with, in the record of its weights."""

from __future__ import annotations

from typing import Any

from prismask.optics.camera import CASSI
from prismask.optics.dispersion import offsets_from_step
from prismask.scenes.defaults import STEP


def trained_with(camera: CASSI) -> dict[str, Any]:
    """What a record says of the camera that measured the crops."""
    between = max(1, camera.bands - 1)
    return {
        "step_px": round((camera.offsets[-1] - camera.offsets[0]) / between, 9),
        "offsets_px": list(camera.offsets),
        "design": camera.design,
    }


def trained_camera(record: dict[str, Any]) -> CASSI:
    """The camera of a record; older ones know the step alone, or nothing."""
    known = record.get("offsets_px")
    equal = offsets_from_step(int(record["bands"]), float(record.get("step_px", STEP)))
    return CASSI(tuple(known) if known else equal, design=record.get("design", "single"))
