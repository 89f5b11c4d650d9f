"""Fit the interval of a network on validation scenes and validation masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.engine.frame import Engine, Estimate, Progress
from prismask.inference.intervals.fit import fit_interval
from prismask.inference.intervals.model import Interval, cube_features
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.faults import Shift
from prismask.optics.sensor import add_gaussian

VALUES_A_PAIR = 20_000
"""Values kept of each scene and mask; every pair counts the same."""

Fault = Callable[[Tensor, torch.Generator], Tensor]
"""The true mask `(1, 1|C, H, W)` → the one that the network is given."""

FARTHEST = 1.0
"""Most pixels, down and across, by which `misplaced` moves a mask."""


def misplaced(share: float) -> Fault:
    """Some of the masks beside their place, as those of real cameras are after a while."""

    def move(mask: Tensor, generator: torch.Generator) -> Tensor:
        chance, down, right = torch.rand(3, generator=generator).tolist()
        if chance >= share:
            return mask
        return Shift(FARTHEST * (2 * down - 1), FARTHEST * (2 * right - 1)).apply(mask)

    return move


def noisy(
    snapshots: Tensor, noise_std: tuple[float, float], camera: CASSI, generator: torch.Generator
) -> Tensor:
    """Snapshots with Gaussian noise of a strength drawn from the range, relative to the cube's."""
    low, high = noise_std
    std = low + (high - low) * float(torch.rand((), generator=generator))
    return add_gaussian(snapshots, std / network_scale(camera.bands), generator)


@torch.inference_mode()
def calibrate(
    engine: Engine,
    scenes: Tensor,
    masks: Tensor,
    camera: CASSI,
    *,
    scene_of: Sequence[int] | None = None,
    samples: int = 0,
    noise_std: tuple[float, float] = (0.0, 0.0),
    fault: Fault | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The record `interval` for a network: how its error bars are made.

    scenes: `(N, C, H, W)`, at least two; masks: `(M, 1|C, h, w)` as `camera` wants them. Every
    mask meets every scene.
    scene_of: the number of the scene that each of `scenes` is a crop of; crops of one scene are
    never on both sides of the split. None: each is its own.
    samples: masks drawn from the posterior; above 0 an interval that uses their spread is fitted
    beside the one for a single pass.
    noise_std: every snapshot gets Gaussian noise of a strength drawn from this range, relative to
        the cube's range as in training (`data.noise_std`) and evaluation.
    fault: what is wrong with the mask that the network is given; None: nothing.
    """
    if len(scenes) < 2 or len(masks) < 1:
        raise ConfigError(
            f"{len(scenes)} scenes and {len(masks)} masks: an interval needs two scenes or more "
            "(one half fits its shape, the other its size) and a mask."
        )
    generator = torch.Generator().manual_seed(seed)
    about = {"masks": len(masks), "noise": list(noise_std), "faults": fault is not None}
    kinds = ["single", "sampled"] if samples and engine.can_sample else ["single"]
    pools: dict[str, _Pool] = {kind: _Pool() for kind in kinds}
    total, done = len(scenes) * len(masks), 0
    numbers = range(len(scenes)) if scene_of is None else scene_of
    for number, scene in zip(numbers, scenes, strict=True):
        for mask in masks:
            snapshot = noisy(camera.forward(scene[None], mask[None]), noise_std, camera, generator)[
                0
            ]
            given = mask[None] if fault is None else fault(mask[None], generator)
            for kind in kinds:
                drawn = samples if kind == "sampled" else 0
                found = engine.run(snapshot, given, camera, samples=drawn, seed=seed + done)
                pools[kind].add(found, scene, snapshot, given, camera, number, generator)
            done += 1
            if progress is not None:
                progress(done, total, {})
    fitted = {kind: pools[kind].fit(camera.bands, about) for kind in kinds}
    record: dict[str, Any] = {kind: interval.to_record() for kind, interval in fitted.items()}
    return {**record, "samples": samples} if "sampled" in record else record


class _Pool:
    """Values of all pairs, a random part of each."""

    def __init__(self) -> None:
        self.errors: list[Tensor] = []
        self.features: dict[str, list[Tensor]] = {}
        self.band: list[Tensor] = []
        self.scene: list[Tensor] = []

    def add(
        self,
        found: Estimate,
        truth: Tensor,
        snapshot: Tensor,
        mask: Tensor,
        camera: CASSI,
        number: int,
        generator: torch.Generator,
    ) -> None:
        """Keep a part of one reconstruction."""
        each = max(1, VALUES_A_PAIR // camera.bands)
        by_band = cube_features(found.values, snapshot, mask, camera, found.spreads)
        for band, features in enumerate(by_band):
            error = (found.values[band] - truth[band]).flatten()
            chosen = torch.randint(error.numel(), (each,), generator=generator)
            self.errors.append(error[chosen])
            for name, plane in features.items():
                self.features.setdefault(name, []).append(plane.flatten()[chosen])
            self.band.append(torch.full((each,), band))
            self.scene.append(torch.full((each,), number))

    def fit(self, bands: int, about: dict[str, Any]) -> Interval:
        """The interval of everything kept."""
        features = {name: torch.cat(parts) for name, parts in self.features.items()}
        fitted = fit_interval(
            torch.cat(self.errors), features, torch.cat(self.band), torch.cat(self.scene), bands
        )
        return Interval(fitted.bands, fitted.exponents, fitted.quantiles, {**fitted.about, **about})
