"""Errors of spectra: SAM, ERGAS, RMSE.

SAM, the spectral angle, is the mean over the pixels of the angle between true and estimated
spectrum, in degrees. A spectrum of zeros has no direction: two of them count as 0°, one beside a
spectrum that is not zero as 90°.

ERGAS is `100 · ratio · √(mean over bands of (rmse / mean of the true band)²)`. `ratio` is that of
the pixel sizes, fine to coarse; it comes from image fusion and is 1 where nothing changes its
resolution. (Some libraries ask for its inverse.) A true band of mean 0 counts as 0 where it is met
exactly and as infinite otherwise.

RMSE is over the whole cube, in fractions of full scale.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prismask.errors import ValuesError
from prismask.evaluation.metrics.pair import Pair


@torch.no_grad()
def sam(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean spectral angle in degrees between cubes `(B, C, H, W)`, one value per sample `(B,)`."""
    return pair_sam(Pair(estimate, truth))


@torch.no_grad()
def ergas(estimate: Tensor, truth: Tensor, ratio: float = 1.0) -> Tensor:
    """ERGAS of `estimate` against `truth (B, C, H, W)`, one value per sample `(B,)`."""
    return pair_ergas(Pair(estimate, truth), ratio)


@torch.no_grad()
def rmse(estimate: Tensor, truth: Tensor) -> Tensor:
    """Root mean squared error between cubes `(B, C, H, W)`, one value per sample `(B,)`."""
    return pair_rmse(Pair(estimate, truth))


def pair_sam(pair: Pair) -> Tensor:
    """`sam` of a checked pair."""
    first, first_zero = _directions(pair.estimate)
    second, second_zero = _directions(pair.truth)
    # Twice the angle of chord against sum (Kahan) stays exact where arccos(1 − 1e-8) is noise.
    chord = torch.linalg.vector_norm(first - second, dim=1)
    angle = 2 * torch.atan2(chord, torch.linalg.vector_norm(first.add_(second), dim=1))
    right = torch.full_like(angle, math.pi / 2)
    angle = torch.where(first_zero | second_zero, right, angle)
    angle = torch.where(first_zero & second_zero, torch.zeros_like(angle), angle)
    return torch.rad2deg(angle).mean((-1, -2))


def pair_ergas(pair: Pair, ratio: float) -> Tensor:
    """`ergas` of a checked pair."""
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValuesError(f"ERGAS's ratio is {ratio}; it must be positive, 1 without fusion.")
    relative = pair.band_mse / pair.band_mean.square()
    relative = torch.where(pair.band_mse == 0, torch.zeros_like(relative), relative)
    return 100 * ratio * relative.mean(-1).sqrt()


def pair_rmse(pair: Pair) -> Tensor:
    """`rmse` of a checked pair."""
    return pair.band_mse.mean(-1).sqrt()


def _directions(cube: Tensor) -> tuple[Tensor, Tensor]:
    """Spectra of length 1 `(B, C, H, W)`, and where there is none `(B, H, W)`."""
    length = torch.linalg.vector_norm(cube, dim=1, keepdim=True)
    zero = length == 0
    return cube / torch.where(zero, torch.ones_like(length), length), zero[:, 0]
