"""Snapshots of known scenes, on which an interval is fitted: what a user may bring, in turn.

Every scene meets the same lights, in turn: as it is, under a lamp, with a line, two dips or a
cosine planted into its spectra, under a laser. A share is noisy, a share has a mask that is not as
calibrated, a share comes from another camera. A number and a seed decide everything about a
snapshot, so a fit that was stopped goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match import LARGEST_MISMATCH, LEAST_STRETCH, BandAdapter
from prismask.models.inputs import network_scale
from prismask.models.weights import ONE_CAMERA, Variation
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import seed_of
from prismask.scenes.colour import lamp_names
from prismask.scenes.records import Cube
from prismask.scenes.resample import resample
from prismask.scenes.synthetic.spectra import Feature, plant

HELD_OUT = ("FL2", "FL11")
"""Lamps that no fit sees, as no training does, so that tests behind them say something."""
LIGHTS = ("smooth", "lamp", "smooth", "line", "smooth", "dips", "smooth", "lamp",
          "smooth", "line", "smooth", "cosine", "smooth", "lamp", "smooth", "laser")  # fmt: skip
"""What scenes meet in turn; the first half of them is what most snapshots are like."""
CLEAN, LEAST_NOISE = 0.3, 1e-3
"""Share of the snapshots without noise, and the least noise of the others."""
PLACES = 6
"""Places that are tried for a crop; the brightest is taken."""
KINDS = 3
SHIFTS, BLURS, SPREADS = (0.25, 1.25), (0.3, 1.0), (0.1, 0.6)
"""Least and most of what is wrong, in pixels: how far the mask is shifted, the standard deviation
of its blur, and how far the ends of the spectrum lie beside where they were calibrated."""
BAND_RATIOS = (0.65, 2.0)
"""Least and most bands, relative to the network's."""
STEP_RATIO = 2.5
"""Most pixels that a band at one end of the spectrum has for one pixel at the other."""
TRIES = 1000
"""Draws for one camera after which there seems to be none."""


@dataclass(frozen=True)
class Plan:
    """What the snapshots of a fit are like."""

    rows: int = 96
    """Lines across the dispersion; they are what a snapshot costs."""
    columns: int = 256
    """Pixels along it."""
    noise_std: float = 0.05
    """Strongest noise, in units of the cube's values as in `evaluate --noise`."""
    wrong: float = 0.25
    """Share of the snapshots whose mask is not as calibrated."""
    other: float = 0.25
    """Share of those that come from another camera."""
    seed: int = 0
    """Of everything."""

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 32:
            raise ConfigError(f"crops of {self.rows}×{self.columns} are too small; 32 is least.")
        if not 0 <= self.noise_std < math.inf:
            raise ConfigError(f"noise-std is {self.noise_std:g}; it is 0 or more, and finite.")
        for name in ("wrong", "other"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} is {getattr(self, name):g}; it is a share from 0 to below 1."
                )


@dataclass(frozen=True, eq=False)
class Shot:
    """A snapshot whose truth is known, and what it is like."""

    scene: str
    light: str
    """One of `LIGHTS`."""
    noise_std: float
    """In units of the cube's values."""
    fault: MaskPose | None
    """What is wrong with the mask; None: nothing."""
    camera: CASSI
    is_other: bool
    """Whether the camera is not the network's own."""
    truth: Tensor
    """`(C, H, W)`."""
    signal: Tensor
    """`(H, L)`."""
    mask: Tensor
    """`(1, 1, h, w)`, as calibrated."""
    planted: Tensor
    """Values that belong to a planted structure, `(C, H, W)` of bool."""

    @property
    def condition(self) -> str:
        """The heading under which it is scored."""
        if self.is_other:
            return "other cameras"
        if self.fault is not None:
            return "wrong masks"
        if self.light != "smooth":
            return "structured spectra"
        return "noise" if self.noise_std > 0 else "right"


@dataclass(frozen=True, eq=False)
class Studio:
    """Scenes, masks and cameras, and the plan by which they meet."""

    plan: Plan
    scenes: Mapping[str, Cube]
    """Whole scenes in the network's bands, with wavelengths."""
    own: CASSI
    """The network's own camera."""
    others: Sequence[CASSI]
    """Cameras that are not; may be empty."""
    region: Tensor | None = None
    """`(H, W)` from which half of the masks are cut; None: all are fabricated."""

    def shoot(self, number: int) -> Shot:
        """The snapshot of this number; scenes take turns, then lights."""
        plan, names = self.plan, list(self.scenes)
        name, round_ = names[number % len(names)], number // len(names)
        seed = seed_of("interval", plan.seed, number)
        draw, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        # A light meets the scenes one round after the other, so that few rounds have all of them.
        light = LIGHTS[(round_ + 5 * (number % len(names))) % len(LIGHTS)]
        chance, other, clean, strength = draw.uniform(size=4)
        is_other = bool(self.others) and other < plan.other
        camera = self.others[int(draw.integers(len(self.others)))] if is_other else self.own
        cube = _crop(self.scenes[name], (plan.rows, plan.columns), draw)
        cube = _in_bands(cube, camera)
        planted = plant(cube, _feature(light, draw), draw)
        truth = torch.from_numpy(planted.values).float()
        size = camera.mask_size((truth.shape[-2], truth.shape[-1]))
        mask = self._mask(size, draw, generator)[None, None]
        fault = draw_fault(int(draw.integers(3)), generator) if chance < plan.wrong else None
        pose = fault or MaskPose()
        signal = camera.forward(pose.shown(truth[None], camera), pose.read(mask, camera))[0]
        noise = 0.0
        if plan.noise_std > 0 and clean >= CLEAN:
            least = min(LEAST_NOISE, plan.noise_std)
            noise = float(least * (plan.noise_std / least) ** strength)
            drawn = torch.randn(signal.shape, generator=generator)
            signal = signal + noise / network_scale(camera.bands) * drawn
        where = torch.from_numpy(planted.where)
        structure = torch.from_numpy(planted.bands)[:, None, None] & where
        return Shot(name, light, noise, fault, camera, is_other, truth, signal, mask, structure)

    def _mask(
        self, size: tuple[int, int], draw: np.random.Generator, generator: torch.Generator
    ) -> Tensor:
        region, cut = self.region, draw.uniform() < 0.5
        if region is None or not cut or any(r < s for r, s in zip(region.shape, size, strict=True)):
            return fabricate_mask(size, generator, random_aperture(generator))
        top, left = (int(draw.integers(r - s + 1)) for r, s in zip(region.shape, size, strict=True))
        return region[top : top + size[0], left : left + size[1]]


def _feature(light: str, draw: np.random.Generator) -> Feature:
    """What to plant for a light."""
    if light == "lamp":
        lamps = [name for name in lamp_names() if name not in HELD_OUT]
        return Feature("lamp", lamp=str(draw.choice(lamps)))
    low, high = {"line": (5.0, 40.0), "dips": (18.0, 45.0), "cosine": (4.0, 28.0)}.get(
        light, (1.0, 1.0)
    )
    return Feature(light, float(low * (high / low) ** draw.uniform()))


def _crop(cube: Cube, size: tuple[int, int], draw: np.random.Generator) -> Cube:
    """A bright place of a scene, at its own or at half its resolution, turned by chance."""
    values = cube.values
    height, width = values.shape[1:]
    if min(height // 2 - size[0], width // 2 - size[1]) >= 0 and draw.uniform() < 0.5:
        even = values[:, : height // 2 * 2, : width // 2 * 2]
        values = even.reshape(len(even), height // 2, 2, width // 2, 2).mean((2, 4))
        height, width = values.shape[1:]
    size = (min(size[0], height), min(size[1], width))
    level = values.mean(0)
    corners = [
        (int(draw.integers(height - size[0] + 1)), int(draw.integers(width - size[1] + 1)))
        for _ in range(PLACES)
    ]
    top, left = max(
        corners,
        key=lambda at: float(level[at[0] : at[0] + size[0], at[1] : at[1] + size[1]].mean()),
    )
    values = values[:, top : top + size[0], left : left + size[1]]
    for axis in (1, 2):
        if draw.uniform() < 0.5:
            values = np.flip(values, axis)
    return Cube(np.ascontiguousarray(values), cube.wavelengths)


def _in_bands(cube: Cube, camera: CASSI) -> Cube:
    """The scene in as many bands as `camera` has, over the same wavelengths."""
    assert cube.wavelengths is not None, "scenes of a data set have wavelengths"
    if camera.bands == len(cube.values):
        return cube
    return resample(cube, np.linspace(cube.wavelengths[0], cube.wavelengths[-1], camera.bands))


def draw_fault(number: int, generator: torch.Generator) -> MaskPose:
    """What is wrong with a mask: of `KINDS` in turn."""

    def between(least: float, most: float) -> float:
        return least + (most - least) * float(torch.rand((), generator=generator))

    kind = number % KINDS
    if kind == 0:
        away, angle = between(*SHIFTS), between(0, 2 * math.pi)
        return MaskPose(down=away * math.sin(angle), right=away * math.cos(angle))
    if kind == 1:
        return MaskPose(blur=between(*BLURS) ** 2)
    sign = 1 if between(-1, 1) > 0 else -1
    return MaskPose(spread=sign * between(*SPREADS))


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
