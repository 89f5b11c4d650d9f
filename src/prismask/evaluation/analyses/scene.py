"""All analyses of one model on one scene through the masks of one group.

Spectra of an estimate are held against those of the truth in uniform blocks and by correlation
matrices.

**Uniform blocks.** The paper picks five patches per scene by eye. Here a rule picks them, so that
anybody finds the same ones:

1. The true cube is cut into blocks of 16×16 pixels from the upper left corner; what is left over
   at the far edges is not used.
2. Blocks darker than a tenth of the brightest one are left out: in the dark, spectra are noise.
   So are grey ones, whose mean spectrum varies by less than a tenth of its mean (standard
   deviation over the bands): the correlation of a flat curve is a matter of chance, and the
   paper asks for coloured patches too.
3. The unevenness of a block is the root of the variance over its pixels, averaged over the bands,
   divided by the block's mean value.
4. The five blocks of least unevenness are taken, the upper left one first where two are equal.

A density curve is the mean spectrum of a block divided by its sum. The spectral correlation of an
estimate is the Pearson correlation of its curve with the truth's, averaged over the blocks.

**Correlation matrix.** It holds the Pearson correlation of every pair of bands over all pixels. A
constant band goes together with nothing: its correlation with every other band counts as 0. The
distance of two matrices is the root mean square of their differences over all pairs of different
bands: 0 for equal matrices, at most 2. The diagonal is 1 by definition and left out, or more bands
would make any two matrices look closer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_finite, check_shape, size_text
from prismask.errors import ShapeError
from prismask.evaluation.analyses.spread import (
    LEVELS,
    Calibration,
    Spread,
    gaussian_factor,
    spread_over_masks,
    spread_over_samples,
)
from prismask.evaluation.metrics import score
from prismask.evaluation.protocol.conditions import Situation, photograph
from prismask.evaluation.protocol.splits import Group
from prismask.evaluation.run.trials import Ready, Workload, exact_convolutions
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.intervals.learned import classes_of
from prismask.inference.methods.network import NetworkMethod, as_network
from prismask.inference.methods.protocol import check_cubes
from prismask.optics.randomness import seed_of

SOURCES: dict[str, str] = {
    "masks": "spread over masks",
    "samples": "spread over samples",
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
        network = as_network(ready.method) if ready.is_single_pass else None
        if network is not None:
            (seen,) = prepare(measurement, first_mask, camera).snapshots()
            if samples > 1 and "samples" in network.capabilities:
                seed = seed_of(work.seed, "samples", label, group.name, scene.name)
                over_samples = spread_over_samples(network, seen, samples, seed)
            _check_interval(scene, network, seen, calibrations)
        _check(scene, over_masks, over_samples, calibrations)
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
        error = over_samples.mean - scene.truth.cpu()
        calibrations["samples"].add(scene.name, error, over_samples.std)


def _check_interval(
    scene: Scene, network: NetworkMethod, seen: Snapshot, calibrations: Mapping[str, Calibration]
) -> None:
    """The interval, where the weights carry one; it is made of the cube that people get."""
    interval = network.interval()
    if interval is None:
        return
    evidence = network.evidence(seen, probed=False)
    interval = interval.for_classes(classes_of(network.match(seen.camera), None))
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


COUNT = 5
SIDE = 16
LEAST_BRIGHTNESS = 0.1
"""Share of the brightest block's mean that a block needs."""
LEAST_CONTRAST = 0.1
"""Standard deviation over the bands, relative to their mean, that a block's spectrum needs."""


@dataclass(frozen=True)
class Block:
    """A square of pixels."""

    row: int
    """First row."""
    column: int
    """First column."""
    side: int
    """Rows and columns."""
    unevenness: float
    """Spread over its pixels, relative to its mean."""

    @property
    def box(self) -> tuple[slice, slice]:
        """Rows and columns as slices."""
        return slice(self.row, self.row + self.side), slice(self.column, self.column + self.side)


def uniform_blocks(truth: Tensor, count: int = COUNT, side: int = SIDE) -> list[Block]:
    """The most uniform blocks of `truth (C, H, W)` by the rule above; fewer where few fit."""
    check_shape(truth, ("C", "H", "W"), "truth")
    height, width = truth.shape[-2:]
    if min(height, width) < side:
        raise ShapeError(
            f"the scene is {size_text((height, width))}; blocks of {side}×{side} do not fit."
        )
    values = truth.detach().double()[None]
    mean = F.avg_pool2d(values, side)[0]
    # Variances as means of squared deviations: a difference of large squares would lose digits.
    rows, columns = mean.shape[-2:]
    inside = values[0, :, : rows * side, : columns * side]
    spread_out = mean.repeat_interleave(side, 1).repeat_interleave(side, 2)
    variance = F.avg_pool2d((inside - spread_out).square()[None], side)[0]
    brightness = mean.mean(0).flatten()
    unevenness = variance.mean(0).flatten().sqrt() / brightness
    contrast = mean.std(0, correction=0).flatten() / brightness
    fit = (brightness > 0) & (brightness >= LEAST_BRIGHTNESS * brightness.max())
    fit &= contrast >= LEAST_CONTRAST
    order = torch.argsort(unevenness.masked_fill(~fit, math.inf), stable=True)
    chosen = order[: min(count, int(fit.sum()))].tolist()
    return [
        Block(index // columns * side, index % columns * side, side, float(unevenness[index]))
        for index in chosen
    ]


def density_curve(cube: Tensor, block: Block) -> Tensor:
    """Mean spectrum of a block of `cube (C, H, W)` divided by its sum, `(C,)`; zeros stay zeros."""
    spectrum = cube[:, *block.box].double().mean((1, 2))
    total = spectrum.sum()
    return spectrum / total if total != 0 else spectrum


def curve_correlation(first: Tensor, second: Tensor) -> float:
    """Pearson correlation of two curves `(C,)`; NaN where one of them is flat."""
    one, other = (curve.double() - curve.double().mean() for curve in (first, second))
    lengths = torch.linalg.vector_norm(one) * torch.linalg.vector_norm(other)
    if not lengths > 1e-12 * len(first) * (first.abs().max() * second.abs().max()):
        return math.nan
    return float(((one @ other) / lengths).clamp(-1, 1))


def block_correlations(estimate: Tensor, truth: Tensor, blocks: list[Block]) -> list[float]:
    """The spectral correlation of each block."""
    return [
        curve_correlation(density_curve(estimate, block), density_curve(truth, block))
        for block in blocks
    ]


def mean_correlation(correlations: list[float]) -> float:
    """Their mean without flat curves; NaN of nothing."""
    known = [value for value in correlations if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def spectral_correlation(cube: Tensor) -> Tensor:
    """Correlation of every pair of bands of `cube (C, H, W)`, `(C, C)` float64."""
    check_shape(cube, ("C", "H", "W"), "cube")
    check_finite(cube, "cube")
    bands = cube.detach().flatten(1).double()
    constant = bands.amax(1) == bands.amin(1)
    centred = bands - bands.mean(1, keepdim=True)
    length = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    centred = torch.where(constant[:, None], 0.0, centred / length)
    matrix = (centred @ centred.T).clamp(-1, 1)
    return matrix.fill_diagonal_(1.0)


def correlation_distance(first: Tensor, second: Tensor) -> float:
    """Root mean square difference of two matrices `(C, C)` over pairs of different bands."""
    if first.shape != second.shape or first.ndim != 2 or first.shape[0] != first.shape[1]:
        raise ShapeError(
            f"correlation matrices are {tuple(first.shape)} and {tuple(second.shape)}; two square "
            "ones of equal size are needed."
        )
    if len(first) < 2:
        raise ShapeError("one band goes together with no other: there is nothing to compare.")
    others = ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return float((first - second)[others].square().mean().sqrt())
