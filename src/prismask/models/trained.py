"""The camera that a network was trained with, in the record of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismask.models.registry import WITHOUT_PLANES
from prismask.optics.camera import CASSI
from prismask.optics.dispersion import offsets_from_step
from prismask.scenes.defaults import STEP


@dataclass(frozen=True)
class Variation:
    """How far the cameras of a training lay from the one in its record (`optics.varied_prism`)."""

    spread: tuple[float, float] = (1.0, 1.0)
    """Factors on the length of the spectrum."""
    bend: float = 0.0
    """Most that it was bent, either way."""
    jitter: float = 0.0
    """Most by which a band landed beside its place, as a share of half the way to its neighbour."""
    band_counts: tuple[int, ...] = ()
    """Into how many bands the spectrum was cut, besides that camera's own."""
    designs: tuple[str, ...] = ()
    """How many dispersers there were, besides that camera's own."""

    def nearest_spread(self, factor: float) -> float:
        """The factor it learned that is nearest; the camera of the record is always among them."""
        low, high = self.spread
        if factor <= 0:
            return min(low, 1.0)
        known = min(max(factor, low), high)
        return min(known, 1.0, key=lambda each: max(each / factor, factor / each))


ONE_CAMERA = Variation()
"""What most trainings know."""


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


def trained_variation(record: dict[str, Any]) -> Variation:
    """How far cameras lay from `trained_camera`, as `training.setup` tells it."""
    low, high = record.get("spread", ONE_CAMERA.spread)
    return Variation(
        (float(low), float(high)),
        float(record.get("bend", ONE_CAMERA.bend)),
        float(record.get("jitter", ONE_CAMERA.jitter)),
        tuple(int(count) for count in record.get("band_counts", ())),
        tuple(str(design) for design in record.get("designs", ())),
    )


def knows_wrong_masks(record: Mapping[str, Any]) -> bool:
    """Whether masks were wrong in the training, and the network was told how far."""
    masks = record.get("masks") or {}
    return bool(masks.get("fault_share")) and bool(masks.get("told_share"))


def serves_any_camera(record: Mapping[str, Any]) -> bool:
    """Whether the network of a record works from the snapshot itself, in the camera's own bands."""
    return record.get("backbone") in WITHOUT_PLANES
