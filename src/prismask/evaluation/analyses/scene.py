"""All analyses of one model on one scene through the masks of one group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prismask.evaluation.analyses.calibration import LEVELS, Calibration, gaussian_factor
from prismask.evaluation.analyses.spectra import (
    Block,
    block_correlations,
    correlation_distance,
    mean_correlation,
    spectral_correlation,
    uniform_blocks,
)
from prismask.evaluation.analyses.spread import (
    Shown,
    Spread,
    spread_over_masks,
    spread_over_samples,
)
from prismask.evaluation.metrics import score
from prismask.evaluation.protocol.conditions import Situation, photograph
from prismask.evaluation.protocol.scenarios import Group
from prismask.evaluation.run.trials import Ready, Workload, exact_convolutions
from prismask.inference.inspection import prepare
from prismask.inference.intervals.wording import classes_of
from prismask.inference.methods.protocol import check_cubes
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seed_of, seeded

SOURCES: dict[str, str] = {
    "masks": "spread over masks",
    "samples": "spread over posterior samples",
    "interval": "calibrated interval",
}
"""Where an error bar can come from."""
SCALE_LEVEL = 0.9
"""The level whose half width, divided by the Gaussian z, stands for a standard deviation."""
METRICS = ("psnr_paper", "ssim", "sam", "rmse")


@dataclass(frozen=True, eq=False)
class Scene:
    """A true cube with what is known about it once and for all."""

    name: str
    truth: Tensor
    """`(C, H, W)`."""
    blocks: tuple[Block, ...]
    """Its most uniform blocks."""
    correlation: Tensor
    """Its spectral correlation `(C, C)`."""

    @classmethod
    def of(cls, name: str, truth: Tensor) -> Scene:
        """Look at a true cube."""
        return cls(name, truth, tuple(uniform_blocks(truth)), spectral_correlation(truth))


@dataclass(frozen=True, eq=False)
class SceneResult:
    """Numbers and arrays of one model on one scene."""

    numbers: dict[str, Any]
    arrays: dict[str, Tensor]


def analyse_scene(
    work: Workload,
    label: str,
    ready: Ready,
    group: Group,
    scene: Scene,
    samples: int,
    calibrations: Mapping[str, Calibration],
) -> SceneResult:
    """Reconstruct through every mask and from samples; feed the calibrations by their source."""
    device, camera = scene.truth.device, work.camera
    masks = (group.mask(trial, device) for trial in range(len(group)))

    def snapshot(trial: int, mask: Tensor) -> Tensor:
        seeds = [seed_of(work.seed, "noise", group.name, trial, scene.name)]
        situation = Situation(mask, camera, mask, work.noise)
        return photograph(scene.truth[None], situation, camera, seeds)

    first_mask = group.mask(0, device)
    measurement = snapshot(0, first_mask)

    def checked(seen: Tensor, mask: Tensor, eye: Any) -> Tensor:
        return check_cubes(ready(seen, mask, eye), seen, eye, label)

    with torch.no_grad(), exact_convolutions():
        over_masks = spread_over_masks(checked, snapshot, masks, camera)
        over_samples = None
        shown = None
        if ready.is_single_pass:
            shown = Shown.to(ready.method, measurement, first_mask, camera)
        if samples > 1 and shown is not None and "samples" in ready.method.capabilities:
            generator = seeded(seed_of(work.seed, "samples", label, group.name, scene.name))
            over_samples = spread_over_samples(shown, samples, generator)
        _check(scene, over_masks, over_samples, calibrations)
        if shown is not None:
            _check_interval(scene, shown, measurement, first_mask, camera, calibrations)
    return _result(scene, over_masks, over_samples)


def _check(
    scene: Scene,
    over_masks: Spread,
    over_samples: Spread | None,
    calibrations: Mapping[str, Calibration],
) -> None:
    """Error bars by spread, each around the cube it comes with.

    Over masks that is the reconstruction of one snapshot, the first: a user has one. Over samples
    it is their mean, which `prismask reconstruct --samples` gives.
    """
    if over_masks.count > 1:
        error = over_masks.first - scene.truth
        calibrations["masks"].add(scene.name, error, over_masks.std)
    if over_samples is not None:
        error = over_samples.mean - scene.truth
        calibrations["samples"].add(scene.name, error, over_samples.std)


def _check_interval(
    scene: Scene,
    shown: Shown,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    calibrations: Mapping[str, Calibration],
) -> None:
    """The interval, where the weights carry one; it is made of the cube that people get."""
    interval = shown.method.interval()
    if interval is None:
        return
    (snapshot,) = prepare(measurement, mask, camera).snapshots()
    evidence = shown.method.evidence(snapshot, probed=False)
    if interval.wants_mirror_ensemble and evidence.disagreement is None:
        return
    interval = interval.for_classes(classes_of(shown.view.adapter, None))
    error = evidence.values - scene.truth.cpu()
    widths = {}
    for level in LEVELS:
        above, below = interval.reach(evidence, level)
        # Where the truth lies above the estimate, the reach above counts.
        widths[level] = torch.where(error < 0, above, below)
        if level == SCALE_LEVEL:
            std = (above + below) / 2 / gaussian_factor(SCALE_LEVEL)
    calibrations["interval"].add(scene.name, error, std, widths)


def _result(scene: Scene, over_masks: Spread, over_samples: Spread | None) -> SceneResult:
    estimate, truth = over_masks.first, scene.truth
    matrix = spectral_correlation(estimate)
    blocks = list(scene.blocks)
    correlations = block_correlations(estimate, truth, blocks)
    scores = score(estimate[None], truth[None], METRICS)
    numbers: dict[str, Any] = {name: float(value[0]) for name, value in scores.items()}
    numbers |= {
        "correlation_distance": correlation_distance(matrix, scene.correlation),
        "block_correlations": correlations,
        "spectral_correlation": mean_correlation(correlations),
        "std_over_masks": over_masks.total if over_masks.count > 1 else None,
        "std_over_samples": None if over_samples is None else over_samples.total,
        "rmse_of_mask_mean": float((over_masks.mean - truth).double().square().mean().sqrt()),
    }
    arrays = {
        # Half precision: pictures and spectra are drawn from it, no number is computed.
        "estimate": estimate.half(),
        "error": (estimate - truth).double().square().mean(0).sqrt().float(),
        "correlation": matrix.float(),
        "block_spectra": _spectra(estimate, blocks),
        "block_spread": _spectra(estimate, blocks, spread=True),
        "block_truth": _spectra(truth, blocks),
    }
    if over_masks.count > 1:
        arrays["std_over_masks"] = over_masks.pixel_std.float()
    if over_samples is not None:
        arrays["std_over_samples"] = over_samples.pixel_std.float()
    return SceneResult(numbers, arrays)


def _spectra(cube: Tensor, blocks: list[Block], spread: bool = False) -> Tensor:
    """Mean (or std over the pixels) of each block's spectra, `(K, C)`."""
    if not blocks:
        return cube.new_zeros((0, len(cube)))
    parts = [cube[:, *block.box].double() for block in blocks]
    found = [part.std((1, 2)) if spread else part.mean((1, 2)) for part in parts]
    return torch.stack(found).float()
