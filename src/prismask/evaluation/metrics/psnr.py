"""Peak signal-to-noise ratio in the four conventions of the field.

All take the ratio band by band and average the decibels over the bands:

    paper   peak = largest value of the true cube; floating point, no clipping
    mst     both multiplied by 256 and rounded, peak 255
    dgsmp   both clipped to [0, 1] and rounded to 8 bits, peak 255
    unit    peak 1; floating point, no clipping

They differ by several decibels on dark scenes: never mix them in a column. A band without any
error counts as infinite, and so does then the mean.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.errors import ValuesError
from prismask.evaluation.metrics.pair import Pair

Convention = Literal["paper", "mst", "dgsmp", "unit"]
CONVENTIONS: tuple[Convention, ...] = ("paper", "mst", "dgsmp", "unit")


@torch.no_grad()
def psnr(estimate: Tensor, truth: Tensor, convention: Convention = "paper") -> Tensor:
    """PSNR in decibels of `estimate` against `truth (B, C, H, W)`, one value per sample `(B,)`."""
    return pair_psnr(Pair(estimate, truth), convention)


def pair_psnr(pair: Pair, convention: Convention) -> Tensor:
    """`psnr` of a checked pair."""
    choose(convention, CONVENTIONS, "PSNR convention")
    if convention == "paper":
        return _decibels(_positive_peak(pair)[:, None], pair.band_mse)
    if convention == "unit":
        return _decibels(1.0, pair.band_mse)
    if convention == "mst":
        error = _scaled(pair.estimate, 256.0) - _scaled(pair.truth, 256.0)
    else:
        error = _scaled(pair.estimate.clamp(0, 1), 255.0) - _scaled(pair.truth.clamp(0, 1), 255.0)
    return _decibels(255.0, error.square_().mean((-1, -2)))


def _scaled(cube: Tensor, levels: float) -> Tensor:
    return (cube * levels).round_()


def _decibels(peak: float | Tensor, band_mse: Tensor) -> Tensor:
    return (10 * torch.log10(peak * peak / band_mse)).mean(-1)


def _positive_peak(pair: Pair) -> Tensor:
    if not bool((pair.peak > 0).all()):
        dark = int((pair.peak <= 0).nonzero()[0])
        raise ValuesError(
            f"the true cube of sample {dark} has no positive value, so its own maximum cannot be "
            "the peak of a PSNR 'paper'. Use another convention, or leave that scene out."
        )
    return pair.peak
