"""The size of the interval behind cameras that are not the training's.

An interval is fitted behind one camera (`intervals.fit`). Behind another one the network is
shown a virtual camera, longer pixels or closer bands (`inference.camera_match`);
its errors grow by more than their predicted scale does, and intervals of the same q cover too few.
So other cameras are a class of their own, with quantiles of their own (`intervals.class_fit`).

What this promises: over cameras like those of `draw_cameras`, 90 % of the values lie
inside, on average over cameras as well. One camera can lie above or below that; how far the drawn
ones did, each against the q′ of the others, is stored beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.camera_match.bands import LARGEST_MISMATCH, LEAST_STRETCH, BandAdapter
from prismask.inference.engine.frame import Engine
from prismask.inference.intervals.class_fit import (
    Circumstances,
    Shot,
    crops_by_scene,
    fitted_kinds,
    with_class,
    with_unit_interval,
)
from prismask.inference.intervals.fit import misplaced, noisy
from prismask.inference.intervals.model import OTHER_CAMERAS, Interval
from prismask.models.weights import ONE_CAMERA, Variation, trained_camera, trained_variation
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.progress import Progress
from prismask.scenes.records import Cube
from prismask.scenes.resample import resample

BAND_RATIOS = (0.65, 2.0)
"""Least and most bands, relative to the network's."""
STEP_RATIO = 2.5
"""Most pixels that a band at one end of the spectrum has for one pixel at the other."""
TRIES = 1000
"""Draws for one camera after which there seems to be none."""


@torch.inference_mode()
def calibrate_cameras(
    engine: Engine,
    scenes: Tensor,
    wavelengths: Sequence[float],
    count: int,
    *,
    scene_of: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    circumstances: Circumstances | None = None,
    seed: int = 0,
    camera_seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The record `interval` of the engine's network, with quantiles for other cameras in it.

    scenes: `(N, C, H, W)` in the network's bands, `wavelengths` in nm; scene_of: as in `calibrate`.
    Every camera meets every scene, in one of its crops, through a mask fabricated for the pair.
    names: what the scenes are called, for the record.
    count: how many cameras; camera_seed: of cameras and masks, seed: of everything else.
    """
    stored = dict(engine.model.record.get("interval") or {})
    kinds = fitted_kinds(stored)
    if count < 2:
        raise ConfigError(f"{count} cameras: each is compared with the others, so two are needed.")
    record = engine.model.record
    variation = trained_variation(record)
    cameras = draw_cameras(trained_camera(record), count, camera_seed, variation)
    crops = crops_by_scene(scenes, scene_of)
    given = circumstances or Circumstances()
    generator = torch.Generator().manual_seed(seed)
    apertures = torch.Generator().manual_seed(camera_seed)
    ready = {kind: with_unit_interval(engine, stored, kind) for kind in kinds}
    ratios: dict[str, list[Tensor]] = {kind: [] for kind in kinds}
    groups: dict[str, list[int]] = {"cameras": [], "scenes": []}
    total = len(cameras) * len(crops)
    for number, camera in enumerate(cameras):
        for scene, listed in crops.items():
            # Which crop of it takes turns from camera to camera.
            truth = _in_bands(listed[(number + scene) % len(listed)], wavelengths, camera)
            shot = _photograph(truth, camera, given, generator, apertures)
            for kind in kinds:
                part = shot.of_kind(kind)
                ratios[kind].append(part.ratios(part.cube(ready[kind], camera), generator))
            groups["cameras"].append(number)
            groups["scenes"].append(scene)
            if progress is not None:
                progress(len(groups["scenes"]), total, {})
    about = {
        "noise": list(given.noise_std),
        "misplaced": given.misplaced,
        "family": family_record(camera_seed, variation),
        **({} if names is None else {"fitted_on": list(names)}),
    }
    for kind in kinds:
        known = Interval.from_record(stored[kind], engine.bands)
        fitted = with_class(known, OTHER_CAMERAS, ratios[kind], groups, about)
        stored[kind] = fitted.to_record()
    return stored


def _in_bands(scene: Tensor, wavelengths: Sequence[float], camera: CASSI) -> Tensor:
    """`scene (C, H, W)` in as many bands as `camera` has, over the same wavelengths."""
    known: NDArray[np.float64] = np.asarray(wavelengths)
    at = np.linspace(known[0], known[-1], camera.bands)
    return torch.tensor(resample(Cube(scene.numpy(), known), at).values)


def _photograph(
    truth: Tensor,
    camera: CASSI,
    given: Circumstances,
    generator: torch.Generator,
    apertures: torch.Generator,
) -> Shot:
    """A scene through a new mask."""
    size = camera.mask_size((truth.shape[-2], truth.shape[-1]))
    mask = fabricate_mask(size, apertures, random_aperture(apertures))[None, None]
    signal = noisy(camera.forward(truth[None], mask), given.noise_std, camera, generator)[0]
    return Shot(truth, signal, misplaced(given.misplaced)(mask, generator)[0, 0])


def extents(variation: Variation = ONE_CAMERA) -> tuple[float, float]:
    """Least and most pixels of the whole spectrum, relative to the training's.

    Closer is left to a solver, and further is not read with longer pixels. 0.625 and 2.5 for a
    network that knows one camera.
    """
    return variation.nearest_spread(0.0) / LARGEST_MISMATCH, 1 / LEAST_STRETCH


def draw_cameras(
    trained: CASSI, count: int, seed: int, variation: Variation = ONE_CAMERA
) -> list[CASSI]:
    """Cameras that are not `trained`, and that a network trained behind it may be used for.

    Their spectra are spread over all `extents`, evenly in logarithms. Every other one has the
    trained number of bands, the rest 0.65 to 2 times as many; two in four have equal steps, the
    rest steps that grow or shrink along the spectrum, by up to 2.5 times.
    """
    generator = np.random.default_rng(seed)
    return [_drawn(trained, variation, number, count, generator) for number in range(count)]


def _drawn(
    trained: CASSI, variation: Variation, number: int, count: int, generator: np.random.Generator
) -> CASSI:
    low, high = np.log(extents(variation))
    for _ in range(TRIES):
        spread = np.exp(low + (high - low) * (number + generator.uniform()) / count)
        bands, uneven = trained.bands, 1.0
        if number % 2:
            bands = max(2, round(bands * generator.uniform(*BAND_RATIOS)))
        if number // 2 % 2:
            uneven = STEP_RATIO ** generator.uniform(-1, 1)
        steps = np.geomspace(1, uneven, bands - 1)
        extent = spread * abs(trained.offsets[-1] - trained.offsets[0])
        offsets = (0.0, *np.cumsum(steps * extent / steps.sum()).tolist())
        camera = CASSI(offsets, design=trained.design)
        adapter = BandAdapter.between(camera, trained.bands, trained, variation)
        if adapter.is_other_camera and adapter.is_within_reach:
            return camera
    raise ConfigError(
        f"a network of {trained.bands} bands leaves no other camera to fit an interval for: "
        "give --other 0."
    )


def family_record(seed: int, variation: Variation = ONE_CAMERA) -> dict[str, Any]:
    """What describes the cameras that were drawn with `seed`, in a weights record."""
    return {
        "extents": list(extents(variation)),
        "band_ratios": list(BAND_RATIOS),
        "step_ratio": STEP_RATIO,
        "seed": seed,
    }
