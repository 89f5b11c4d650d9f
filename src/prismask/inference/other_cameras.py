"""The size of the interval behind cameras that are not the training's.

An interval is fitted behind one camera (`inference.calibration`). Behind another one the network is
shown a virtual camera, longer pixels or closer bands (`inference.bands`, `inference.stretching`);
its errors grow by more than their predicted scale does, and intervals of the same q cover too few.
So other cameras are a class of their own (conformal prediction by class, called Mondrian), with

    q′ = the quantile, over cameras and scenes, of |truth − cube| / (upper − cube at q = 1),

taken of the cube that people get: in the camera's own bands and pixels, after everything that
`reconstruct` does. The scale keeps its shape.

What this promises: over cameras like those in `inference.camera_family`, 90 % of the values lie
inside, on average over cameras as well. One camera can lie above or below that; how far the drawn
ones did, each against the q′ of the others, is stored beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.calibration import VALUES_A_PAIR, misplaced, noisy
from prismask.inference.camera_family import draw_cameras, family_record
from prismask.inference.engine import Engine, Progress
from prismask.inference.intervals import Interval, conformal_quantile
from prismask.inference.settings import Settings
from prismask.inference.single import Reconstruction
from prismask.models.trained import trained_camera
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.resample import resample

STRIP = 3
"""The rows are cut into so many parts, and the middle one is reconstructed with samples, each of
which costs as much as a cube. In the camera rows know nothing of each other, so this is a snapshot
as well."""


@dataclass(frozen=True)
class Circumstances:
    """What the snapshots are like."""

    noise_std: tuple[float, float] = (0.0, 0.0)
    """Range of the noise, as in `calibration.calibrate`."""
    misplaced: float = 0.0
    """Share of masks that lie beside their place (`calibration.misplaced`)."""


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
    kinds = [kind for kind in ("single", "sampled") if kind in stored]
    if not kinds:
        raise ConfigError("the weights have no interval that could be fitted to other cameras.")
    if count < 2:
        raise ConfigError(f"{count} cameras: each is compared with the others, so two are needed.")
    cameras = draw_cameras(trained_camera(engine.model.record), count, camera_seed)
    numbers = list(range(len(scenes)) if scene_of is None else scene_of)
    pairs = _Pairs(scenes, np.asarray(wavelengths), numbers, circumstances or Circumstances())
    generator = torch.Generator().manual_seed(seed)
    apertures = torch.Generator().manual_seed(camera_seed)
    ready = {kind: _with_unit_interval(engine, stored, kind) for kind in kinds}
    ratios: dict[str, list[Tensor]] = {kind: [] for kind in kinds}
    done, total = 0, len(cameras) * len(pairs.names)
    for place, camera in enumerate(cameras):
        for scene in pairs.names:
            shot = pairs.photograph(camera, scene, place, generator, apertures)
            for kind in kinds:
                part = shot.strip() if kind == "sampled" else shot
                ratios[kind].append(part.ratios(ready[kind], camera, generator))
            done += 1
            if progress is not None:
                progress(done, total, {})
    given = pairs.circumstances
    about = {
        "noise": list(given.noise_std),
        "misplaced": given.misplaced,
        "family": family_record(camera_seed),
        **({} if names is None else {"fitted_on": list(names)}),
    }
    for kind in kinds:
        found = torch.stack(ratios[kind]).reshape(len(cameras), len(pairs.names), -1)
        known = Interval.from_record(stored[kind], engine.bands)
        stored[kind] = with_other_quantiles(known, found, about).to_record()
    return stored


def with_other_quantiles(interval: Interval, ratios: Tensor, about: dict[str, Any]) -> Interval:
    """The interval with quantiles of `ratios (cameras, scenes, values)`, which all weigh alike."""
    quantiles = {q: float(conformal_quantile(ratios.flatten(), q)) for q in interval.quantiles}
    found = {
        "cameras": ratios.shape[0],
        "scenes": ratios.shape[1],
        "values": ratios.numel(),
        "left_out_cameras": _left_out(ratios, list(quantiles)),
        "left_out_scenes": _left_out(ratios.transpose(0, 1), list(quantiles)),
    }
    return replace(interval, other_quantiles=quantiles, other_about={**found, **about})


def _left_out(ratios: Tensor, levels: Sequence[float]) -> dict[str, list[float]]:
    """Coverage of each by the quantile of the others: least, mean, most."""
    found: dict[str, list[float]] = {}
    if len(ratios) < 2:
        return found
    for level in levels:
        inside = []
        for one in range(len(ratios)):
            others = torch.cat([ratios[:one], ratios[one + 1 :]]).flatten()
            within = ratios[one] <= conformal_quantile(others, level)
            inside.append(float(within.float().mean()))
        mean = sum(inside) / len(inside)
        found[f"{level:g}"] = [round(value, 4) for value in (min(inside), mean, max(inside))]
    return found


def _with_unit_interval(engine: Engine, stored: dict[str, Any], kind: str) -> Reconstruction:
    """`reconstruct` with an interval whose half width is the predicted scale itself."""
    known = Interval.from_record(stored[kind], engine.bands)
    unit = replace(known, quantiles=dict.fromkeys(known.quantiles, 1.0), other_quantiles={})
    network = copy.copy(engine.model)
    network.record = {**network.record, "interval": {kind: unit.to_record()}}
    samples = int(stored["samples"]) if kind == "sampled" else 0
    level = next(iter(known.quantiles))
    settings = Settings(samples=samples, level=level, device=str(engine.device), registration=False)
    return Reconstruction(settings, network)


class _Pairs:
    """Scenes as cameras would see them."""

    def __init__(
        self,
        scenes: Tensor,
        wavelengths: np.ndarray[Any, np.dtype[np.float64]],
        numbers: Sequence[int],
        circumstances: Circumstances,
    ) -> None:
        self.names = sorted(set(numbers))
        self.crops = {
            name: [scene for scene, number in zip(scenes, numbers, strict=True) if number == name]
            for name in self.names
        }
        self.wavelengths = wavelengths
        self.circumstances = circumstances

    def photograph(
        self,
        camera: CASSI,
        scene: int,
        place: int,
        generator: torch.Generator,
        apertures: torch.Generator,
    ) -> _Shot:
        """A scene through a new mask; which crop of it takes turns from camera to camera."""
        crops = self.crops[scene]
        values = crops[(place + scene) % len(crops)]
        at = np.linspace(self.wavelengths[0], self.wavelengths[-1], camera.bands)
        truth = torch.tensor(resample(Cube(values.numpy(), self.wavelengths), at).values)
        size = camera.mask_size((truth.shape[-2], truth.shape[-1]))
        mask = fabricate_mask(size, apertures, random_aperture(apertures))[None, None]
        strength = self.circumstances.noise_std
        signal = noisy(camera.forward(truth[None], mask), strength, camera, generator)[0]
        given = misplaced(self.circumstances.misplaced)(mask, generator)
        return _Shot(truth, signal, given[0, 0])


@dataclass(frozen=True, eq=False)
class _Shot:
    """A snapshot whose truth is known; dispersed along the width."""

    truth: Tensor
    """`(C, H, W)`."""
    signal: Tensor
    """`(H, L)`."""
    mask: Tensor
    """`(h, w)`, as it is given to `reconstruct`."""

    def strip(self) -> _Shot:
        """Its middle rows."""
        height = self.truth.shape[-2]
        few = max(1, height // STRIP)
        rows = slice((height - few) // 2, (height - few) // 2 + few)
        return _Shot(self.truth[:, rows], self.signal[rows], self.mask[rows])

    def ratios(self, ready: Reconstruction, camera: CASSI, generator: torch.Generator) -> Tensor:
        """|truth − cube| in units of the predicted scale, of values chosen at random."""
        cube = ready.run(Measurement(self.signal.numpy()), Mask(self.mask.numpy()), camera)
        assert cube.upper is not None
        values = torch.tensor(cube.values)
        scale = (torch.tensor(cube.upper) - values).flatten()
        chosen = torch.randint(values.numel(), (VALUES_A_PAIR,), generator=generator)
        errors = (self.truth - values).abs().flatten()
        # Where the scale vanishes no interval helps, except for values that are exactly right.
        return errors[chosen] / scale[chosen].clamp_min(1e-12)
