"""Snapshots of known scenes, on which an interval is fitted: what a user may bring, in turn.

Every scene meets the same lights, in turn: as it is, under a lamp, with a line, two dips or a
cosine planted into its spectra, under a laser. A share is noisy, a share has a mask that is not as
calibrated, a share comes from another camera. A number and a seed decide everything about a
snapshot.

Of each snapshot a few thousand values are kept with their features (`Rows`), evenly over the bands,
and some more at a planted structure, which would be too few to be learned otherwise; those count in
the fit and at the structure, and in no other score. Snapshots are reconstructed once, one after the
other, and the rows of each are written to a file of their own: nothing is lost when the work is
stopped, and the same command goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.camera_match import match_camera
from prismask.inference.inspection import prepare
from prismask.inference.intervals.evidence import FACTS, VALUES, Evidence
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.options import DEFAULTS
from prismask.models.inputs import network_scale
from prismask.models.weights import serves_any_camera, trained_camera, trained_with
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.randomness import seed_of
from prismask.progress import Progress
from prismask.scenes.atomic import write_beside
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
of its blur, and how far the ends of the spectrum lie from where they were calibrated."""
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


def draw_cameras(record: Mapping[str, Any], count: int, seed: int) -> list[CASSI]:
    """Cameras that are not the training's, and that the network of a record is taken for.

    Their spectra are spread over all lengths that it serves, evenly in logarithms. Every other one
    has the trained number of bands, the rest 0.65 to 2 times as many; two in four have equal steps,
    the rest steps that grow or shrink along the spectrum, by up to 2.5 times. None for a network of
    fixed bands, which serves no other camera.
    """
    if not serves_any_camera(record):
        return []
    record = {**record, **trained_with(trained_camera(record))}
    generator = np.random.default_rng(seed)
    return [_drawn(record, number, count, generator) for number in range(count)]


def _drawn(
    record: Mapping[str, Any], number: int, count: int, generator: np.random.Generator
) -> CASSI:
    trained = trained_camera(record)
    own = match_camera(trained, record)
    low, high = np.log(own.lengths)
    for _ in range(TRIES):
        length = np.exp(low + (high - low) * (number + generator.uniform()) / count)
        bands, uneven = trained.bands, 1.0
        if number % 2:
            bands = max(2, round(bands * generator.uniform(*BAND_RATIOS)))
        if number // 2 % 2:
            uneven = STEP_RATIO ** generator.uniform(-1, 1)
        steps = np.geomspace(1, uneven, bands - 1)
        offsets = (0.0, *np.cumsum(steps * length / steps.sum()).tolist())
        camera = CASSI(offsets, design=trained.design)
        match = match_camera(camera, record)
        if match.is_other_camera and match.is_within_reach:
            return camera
    raise ConfigError(
        f"a network of {trained.bands} bands leaves no other camera to fit an interval for: "
        "give --other 0."
    )


# --- what is kept of them -------------------------------------------------------------------------


PER_SNAPSHOT, AT_STRUCTURE = 12_000, 1_500
"""Values kept of each snapshot, and more of them at a planted structure."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Rows:
    """The values of one snapshot; errors, values and facts are relative to its brightness."""

    features: Floats
    """`(N, K)`."""
    error: Floats
    """Truth − estimate, `(N,)`."""
    value: Floats
    """The estimate, `(N,)`."""
    truth: Floats
    """The truth, `(N,)`, which decides the quarter of the intensities."""
    place: Floats
    """Position in the spectrum between 0 and 1, `(N,)`."""
    extra: NDArray[np.bool_]
    """Whether a value is there only because of a planted structure, `(N,)`."""
    scene: str
    light: str
    condition: str
    noise_std: float
    probe_gain: float
    """NaN: not probed."""
    other_camera: bool
    facts: tuple[float, ...]
    """`Evidence.facts`, in their order."""
    rms_error: float
    """Root mean square error of the cube."""
    rms_reference: float
    """The same of the quick solver's cube."""

    @classmethod
    def of(cls, shot: Shot, evidence: Evidence, seed: int) -> Rows:
        """A random part of a snapshot."""
        draw, level = np.random.default_rng(seed), evidence.level
        each = max(1, PER_SNAPSHOT // len(shot.truth))
        bands = max(1, int(shot.planted.flatten(1).any(1).sum()))
        parts: dict[str, list[Any]] = {
            name: [] for name in ("features", "error", "value", "truth", "place", "extra")
        }
        for band, features in enumerate(evidence.features()):
            chosen = draw.integers(features[0].numel(), size=each)
            there = np.flatnonzero(shot.planted[band].numpy())
            count = AT_STRUCTURE // bands if len(there) else 0
            more = draw.choice(there, count) if count else np.zeros(0, dtype=np.int64)
            at = torch.from_numpy(np.concatenate([chosen, more]))
            truth = shot.truth[band].flatten()[at] / level
            value = evidence.values[band].flatten()[at] / level
            place = band / max(1, len(shot.truth) - 1)
            found = {
                "features": features.flatten(1)[:, at].T,
                "error": truth - value,
                "value": value,
                "truth": truth,
                "place": torch.full((len(at),), place),
            }
            for name, tensor in found.items():
                parts[name].append(tensor.numpy())
            parts["extra"].append(np.arange(len(at)) >= each)
        return cls(
            **{name: np.concatenate(listed) for name, listed in parts.items()},
            scene=shot.scene,
            light=shot.light,
            condition=shot.condition,
            noise_std=shot.noise_std,
            probe_gain=float("nan") if evidence.probe_gain is None else evidence.probe_gain,
            other_camera=evidence.other_camera,
            facts=tuple(evidence.facts.values()),
            rms_error=_rms(evidence.values - shot.truth) / level,
            rms_reference=_rms(evidence.reference - shot.truth) / level,
        )

    def save(self, path: Path) -> None:
        """Write them; an interruption leaves nothing half written."""
        with write_beside(path, overwrite=True) as beside, beside.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(v) for name, v in vars(self).items()}
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Rows | None:
        """Read them; None where there are none, or none that can be read."""
        try:
            with np.load(path) as stored:
                found: dict[str, Any] = {name: stored[name] for name in stored.files}
            for name in ("scene", "light", "condition"):
                found[name] = str(found[name])
            for name in ("noise_std", "probe_gain", "rms_error", "rms_reference"):
                found[name] = float(found[name])
            found["other_camera"] = bool(found["other_camera"])
            found["facts"] = tuple(float(value) for value in found["facts"])
            return cls(**found)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


PROBED = 3
"""One in so many right masks is probed, as are all wrong ones: it takes as long as a pass."""


@torch.inference_mode()
def collect(
    method: NetworkMethod,
    studio: Studio,
    count: int,
    folder: Path,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> list[Rows]:
    """The rows of `count` snapshots, those in `folder` as they are.

    seconds: stop after this many, once every scene has been seen twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started, found, scenes = time.monotonic(), [], len(studio.scenes)
    for number in range(count):
        path = folder / f"{number:05d}.npz"
        rows = Rows.load(path)
        if rows is None:
            late = seconds is not None and time.monotonic() - started > seconds
            # Whole rounds only: every scene is to count alike.
            if late and number >= 2 * scenes and number % scenes == 0:
                break
            rows = _rows(method, studio.shoot(number), number, scenes)
            rows.save(path)
        found.append(rows)
        if progress is not None:
            progress(number + 1, count, {})
    return found


def folder_for(parent: Path, method: NetworkMethod, studio: Studio) -> Path:
    """Where the rows of this network and these snapshots are kept.

    Named for all that decides them: what was kept of other weights or of another plan stays apart.
    """
    facts = {
        "weights": method.record.get("sha256"),
        "plan": asdict(studio.plan),
        "scenes": {name: cube.hash for name, cube in studio.scenes.items()},
        "cameras": [camera.offsets for camera in studio.others],
        "region": None if studio.region is None else list(studio.region.shape),
        "features": [*VALUES, *FACTS],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return parent / digest


def _rows(method: NetworkMethod, shot: Shot, number: int, scenes: int) -> Rows:
    ready = prepare(shot.signal[None], shot.mask, shot.camera, DEFAULTS)
    (snapshot,) = ready.snapshots()
    probed = shot.fault is not None or number // scenes % PROBED == 0
    return Rows.of(shot, method.evidence(snapshot, probed), seed_of("rows", number))
