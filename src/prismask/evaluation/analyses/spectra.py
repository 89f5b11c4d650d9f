"""Spectra of an estimate against those of the truth: uniform blocks, and correlation matrices.

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
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_finite, check_shape, size_text
from prismask.errors import ShapeError

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
