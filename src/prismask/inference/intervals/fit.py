"""Fitting an interval on validation scenes and validation masks.

The two steps of `inference.intervals.model`: least squares for the exponents of the scale on one
half of the scenes, conformal quantiles on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape
from prismask.errors import ConfigError
from prismask.inference.engine.frame import Engine, FrameEstimate
from prismask.inference.intervals.model import (
    FLOOR,
    LEVELS,
    Interval,
    cube_features,
    predicted_scale,
)
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.faults import Shift
from prismask.optics.simulate import add_gaussian
from prismask.progress import Progress

VALUES_PER_PAIR = 20_000
"""Values kept of each scene and mask; every pair counts the same."""

Fault = Callable[[Tensor, torch.Generator], Tensor]
"""The true mask `(1, 1|C, H, W)` → the one that the network is given."""

LARGEST_SHIFT = 1.0
"""Most pixels, down and across, by which `misplaced` moves a mask."""


def misplaced(share: float) -> Fault:
    """Some of the masks shifted since their calibration, as in real cameras after a while."""

    def move(mask: Tensor, generator: torch.Generator) -> Tensor:
        chance, down, right = torch.rand(3, generator=generator).tolist()
        if chance >= share:
            return mask
        return Shift(LARGEST_SHIFT * (2 * down - 1), LARGEST_SHIFT * (2 * right - 1)).apply(mask)

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
        found: FrameEstimate,
        truth: Tensor,
        snapshot: Tensor,
        mask: Tensor,
        camera: CASSI,
        number: int,
        generator: torch.Generator,
    ) -> None:
        """Keep a part of one reconstruction."""
        each = max(1, VALUES_PER_PAIR // camera.bands)
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


def fit_interval(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, scene: Tensor, bands: int
) -> Interval:
    """Fit an interval to pooled values.

    errors: estimate − truth, `(N,)`; features: each `(N,)`; band and scene: which one each value
    belongs to, `(N,)`. Values of every scene must be equally many for the quantiles to weigh
    scenes alike. Scenes with an even number shape the scale, the others calibrate it.
    """
    check_shape(errors, ("N",), "errors")
    scenes = sorted(set(scene.tolist()))
    if len(scenes) < 2:
        raise ConfigError("an interval needs at least two validation scenes: one half fits the "
                          "scale, the other calibrates it.")  # fmt: skip
    half = torch.tensor([number % 2 == 0 for number in range(len(scenes))])
    first = half[torch.bucketize(scene, torch.tensor(scenes))]
    intercepts, exponents = _least_squares(errors, features, band, bands, first)
    logs = torch.tensor(intercepts)[band]
    ratio = errors.abs() / predicted_scale(features, exponents, logs)
    rest = ~first
    quantiles = {level: float(conformal_quantile(ratio[rest], level)) for level in LEVELS}
    about: dict[str, Any] = {"values": int(errors.numel()), "scenes": len(scenes)}
    if left_out := coverage_left_out(ratio[rest], scene[rest], 0.9):
        about["coverage_90_left_out"] = left_out
    return Interval(tuple(intercepts), exponents, quantiles, about)


def conformal_quantile(values: Tensor, level: float) -> Tensor:
    """The conformal quantile: the ⌈(n + 1)·level⌉-th smallest value."""
    count = values.numel()
    rank = min(count, -int(-(count + 1) * level // 1))
    return values.kthvalue(max(1, rank)).values


def coverage_left_out(ratio: Tensor, member: Tensor, level: float) -> list[float]:
    """Coverage of each scene, camera … by the quantile of the others: least, mean, most.

    It is what a new one may expect. ratio: |error| over the predicted scale, `(N,)`; member: which
    one each value belongs to, `(N,)`. Empty where there is only one.
    """
    members = sorted(set(member.tolist()))
    if len(members) < 2:
        return []
    inside = []
    for one in members:
        is_here = member == one
        quantile = conformal_quantile(ratio[~is_here], level)
        inside.append(float((ratio[is_here] <= quantile).float().mean()))
    mean = sum(inside) / len(inside)
    return [round(value, 4) for value in (min(inside), mean, max(inside))]


def _least_squares(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, bands: int, use: Tensor
) -> tuple[list[float], dict[str, float]]:
    """log |error| on the logs of the features and one constant per band."""
    names = list(features)
    target = (errors[use].abs() + FLOOR).log().double()
    columns = torch.stack([(features[name][use] + FLOOR).log() for name in names], 1).double()
    which = F.one_hot(band[use], bands).double()
    matrix = torch.cat([columns, which], 1)
    # A touch of ridge keeps bands without values, and features that move together, in hand.
    gram = matrix.T @ matrix + 1e-6 * len(target) * torch.eye(matrix.shape[1]).double()
    solution = torch.linalg.solve(gram, matrix.T @ target)
    exponents = {name: float(value) for name, value in zip(names, solution, strict=False)}
    return [float(value) for value in solution[len(names) :]], exponents
