"""The snapshots of a test of spectra: scenes, fabricated masks and structures, from one seed."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from prismask.checks import choose
from prismask.errors import ConfigError, DataMissingError
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import normal, seed_of, seeded
from prismask.optics.resolve import CameraDescription, resolve_camera
from prismask.optics.simulate import camera_attrs
from prismask.scenes import datasets
from prismask.scenes.defaults import BANDS, WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic import random_scene
from prismask.scenes.synthetic.spectra import Feature, Planted, plant

log = logging.getLogger(__name__)

GROUPS = ("drawn", "validation")
TRIALS, SIZE = 4, 128
CROPS = 8
"""Places that are tried for the crop of a scene; the brightest is taken."""


@dataclass(frozen=True)
class SpectraSettings:
    """What decides the snapshots."""

    trials: int = TRIALS
    """Masks, each with a scene of its own, per group."""
    size: int = SIZE
    """Height and width of the scenes."""
    noise: float = 0.0
    """Measurement noise in units of the cube's values, as in `evaluate`."""
    seed: int = 0
    """Draws scenes, masks, structures and noise."""
    level: float = 0.9
    """Level of the interval."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ConfigError(f"trials is {self.trials}; at least 1 is needed.")
        if self.size < 32:
            raise ConfigError(f"scenes of {self.size} pixels are too small; give 32 or more.")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise is {self.noise:g}; it must be 0 (none) or more, and finite.")


@dataclass(frozen=True, eq=False)
class Shot:
    """One snapshot of one structure."""

    planted: Planted
    measurement: Measurement
    mask: Mask


@dataclass(frozen=True, eq=False)
class Bench:
    """Scenes, masks and the camera of a run."""

    settings: SpectraSettings
    camera: CASSI
    wavelengths: tuple[float, ...]
    scenes: Mapping[str, Mapping[str, Cube]]
    """Group → name → whole scene; of drawn ones, one for each trial."""

    def scene(self, group: str, trial: int) -> tuple[str, Cube]:
        """Name and crop `(C, H, W)` of a trial's scene."""
        named = list(self.scenes[group].items())
        name, cube = named[trial % len(named)]
        return name, _bright_crop(cube, self.settings, group, trial)

    def mask(self, group: str, trial: int) -> Mask:
        """The fabricated mask of a trial."""
        generator = seeded(seed_of(self.settings.seed, "spectra", "mask", group, trial))
        side = (self.settings.size, self.settings.size)
        size = self.camera.mask_size(side)
        return Mask(fabricate_mask(size, generator, random_aperture(generator)).numpy())

    def shoot(self, group: str, trial: int, feature: Feature) -> Shot:
        """Plant a structure and photograph it."""
        seed = self.settings.seed
        _, cube = self.scene(group, trial)
        # Lines of all widths lie at one wavelength, so that a table over widths compares them.
        planted = plant(cube, feature, seed_of(seed, "spectra", feature.kind, group, trial))
        mask = self.mask(group, trial)
        aperture = torch.tensor(mask.values)[None, None]
        signal = self.camera.forward(torch.tensor(planted.values)[None], aperture)[0]
        if self.settings.noise:
            drawn = normal(
                signal.shape, signal, seeded(seed_of(seed, "spectra", "noise", group, trial))
            )
            signal = signal + self.settings.noise / network_scale(self.camera.bands) * drawn
        return Shot(planted, Measurement(signal.numpy(), camera_attrs(self.camera)), mask)


def make_bench(
    settings: SpectraSettings,
    camera: CASSI | CameraDescription | None,
    data: str | Path | None,
    groups: Sequence[str] | None,
) -> tuple[Bench, list[str]]:
    """Scenes and camera of a run, and remarks about what is missing."""
    said = camera.bands if isinstance(camera, CameraDescription | CASSI) else None
    offsets = camera.offsets if isinstance(camera, CameraDescription) else None
    bands = said or (len(offsets) if offsets else BANDS)
    at = np.array(WAVELENGTHS_NM)
    if bands != BANDS:
        at = np.linspace(at[0], at[-1], bands)
    wavelengths = tuple(float(one) for one in at)
    eye = resolve_camera(camera, bands=bands).camera
    remarks: list[str] = []
    scenes: dict[str, Mapping[str, Cube]] = {}
    for group in [choose(name, GROUPS, "group") for name in groups or GROUPS]:
        if group == "drawn":
            scenes[group] = _drawn(settings, wavelengths)
            continue
        try:
            # Of the data folder, scenes to choose on; never those of the test.
            folder = datasets.data_folder(data)
            scenes[group] = datasets.load_scenes(folder, "validation", wavelengths)
        except DataMissingError as error:
            if groups or data is not None:
                raise
            remarks.append(f"Only drawn scenes: {error}")
            log.warning("only drawn scenes are used: %s", error)
    return Bench(settings, eye, wavelengths, scenes), remarks


def _drawn(settings: SpectraSettings, wavelengths: tuple[float, ...]) -> dict[str, Cube]:
    side = (settings.size, settings.size)
    return {
        f"drawn-{trial}": random_scene(
            seed_of(settings.seed, "spectra", "scene", trial), side, wavelengths
        )
        for trial in range(settings.trials)
    }


def _bright_crop(cube: Cube, settings: SpectraSettings, group: str, trial: int) -> Cube:
    """A crop that has something in it: data sets have scenes with much black around them."""
    side = settings.size
    height, width = cube.size
    if min(height, width) < side:
        raise ConfigError(f"a scene is {height}×{width}; crops of {side} do not fit. Lower --size.")
    draw = np.random.default_rng(seed_of(settings.seed, "spectra", "crop", group, trial))
    level = cube.values.mean(0)
    corners = [
        (int(draw.integers(height - side + 1)), int(draw.integers(width - side + 1)))
        for _ in range(CROPS)
    ]
    row, column = max(
        corners, key=lambda at: float(level[at[0] : at[0] + side, at[1] : at[1] + side].mean())
    )
    return Cube(cube.values[:, row : row + side, column : column + side], cube.wavelengths)
