"""Cameras that a network may meet, other than the one of its training."""

from __future__ import annotations

from typing import Any

import numpy as np

from prismask.errors import ConfigError
from prismask.inference.camera_match.bands import COARSEST, LIMIT, BandAdapter
from prismask.models.trained import ONE_CAMERA, Variation
from prismask.optics.camera import CASSI

BAND_RATIOS = (0.65, 2.0)
"""Least and most bands, relative to the network's."""
STEP_RATIO = 2.5
"""Most pixels that a band at one end of the spectrum has for one pixel at the other."""
TRIES = 1000
"""Draws for one camera after which there seems to be none."""


def extents(variation: Variation = ONE_CAMERA) -> tuple[float, float]:
    """Least and most pixels of the whole spectrum, relative to the training's.

    Closer is left to a solver, and further is not read with longer pixels. 0.625 and 2.5 for a
    network that knows one camera.
    """
    return variation.nearest_spread(0.0) / LIMIT, 1 / COARSEST


def draw_cameras(
    trained: CASSI, count: int, seed: int, variation: Variation = ONE_CAMERA
) -> list[CASSI]:
    """Cameras that are not `trained`, and that a network trained behind it may be used for.

    Their spectra are spread over all `extents`, evenly in logarithms. Every other one has the
    trained number of bands, the rest 0.65 to 2 times as many; two in four have equal steps, the
    rest steps that grow or shrink along the spectrum, by up to 2.5 times.
    """
    generator = np.random.default_rng(seed)
    return [_drawn(trained, variation, place, count, generator) for place in range(count)]


def _drawn(
    trained: CASSI, variation: Variation, place: int, count: int, generator: np.random.Generator
) -> CASSI:
    low, high = np.log(extents(variation))
    for _ in range(TRIES):
        spread = np.exp(low + (high - low) * (place + generator.uniform()) / count)
        bands, uneven = trained.bands, 1.0
        if place % 2:
            bands = max(2, round(bands * generator.uniform(*BAND_RATIOS)))
        if place // 2 % 2:
            uneven = STEP_RATIO ** generator.uniform(-1, 1)
        steps = np.geomspace(1, uneven, bands - 1)
        extent = spread * abs(trained.offsets[-1] - trained.offsets[0])
        offsets = (0.0, *np.cumsum(steps * extent / steps.sum()).tolist())
        camera = CASSI(offsets, design=trained.design)
        adapter = BandAdapter.between(camera, trained.bands, trained, variation)
        if adapter.is_another and adapter.is_within_reach:
            return camera
    raise ConfigError(
        f"a network of {trained.bands} bands leaves no other camera to fit an interval for: "
        "give --cameras 0."
    )


def family_record(seed: int, variation: Variation = ONE_CAMERA) -> dict[str, Any]:
    """What describes the cameras that were drawn with `seed`, in a weights record."""
    return {
        "extents": list(extents(variation)),
        "band_ratios": list(BAND_RATIOS),
        "step_ratio": STEP_RATIO,
        "seed": seed,
    }
