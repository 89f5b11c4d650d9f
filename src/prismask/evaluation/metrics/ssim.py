"""Structural similarity (Wang et al., 2004), the mean over the bands.

An 11×11 Gaussian window of σ 1.5, K₁ = 0.01, K₂ = 0.03. Two habits at the edge:

    zero    windows reach beyond the image, where zeros are: a map of the full size, as in the
            code behind the paper
    valid   only windows that lie inside: as in the original MATLAB code

Equal images give 1, also constant ones.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import choose, size_text
from prismask.errors import ShapeError, ValuesError
from prismask.evaluation.metrics.pair import Pair

Padding = Literal["zero", "valid"]
PADDINGS: tuple[Padding, ...] = ("zero", "valid")

WINDOW = 11
REACH = WINDOW // 2
WINDOW_STD = 1.5
K1, K2 = 0.01, 0.03
_CHUNK = 1 << 20
"""Values of a cube worked on at a time: bounds the memory, keeps a GPU busy."""


@torch.no_grad()
def ssim(
    estimate: Tensor, truth: Tensor, data_range: float = 1.0, padding: Padding = "zero"
) -> Tensor:
    """SSIM of `estimate` against `truth (B, C, H, W)`, one value per sample `(B,)`.

    data_range: largest minus least value an image can take; 1 for fractions of full scale.
    """
    return pair_ssim(Pair(estimate, truth), data_range, padding)


def pair_ssim(pair: Pair, data_range: float, padding: Padding) -> Tensor:
    """`ssim` of a checked pair."""
    choose(padding, PADDINGS, "SSIM padding")
    if not (math.isfinite(data_range) and data_range > 0):
        raise ValuesError(f"SSIM's data range is {data_range}; it must be positive.")
    height, width = pair.truth.shape[-2:]
    if padding == "valid" and min(height, width) < WINDOW:
        raise ShapeError(
            f"cubes are {size_text((height, width))}; SSIM without padding needs at least "
            f"{WINDOW}×{WINDOW}. Use padding='zero'."
        )
    known = pair.ssim.get(data_range)
    if known is None:
        known = pair.ssim[data_range] = _band_ssim(pair.estimate, pair.truth, data_range)
    return known[PADDINGS.index(padding)].mean(1)


def _band_ssim(estimate: Tensor, truth: Tensor, data_range: float) -> tuple[Tensor, Tensor]:
    """SSIM of each band `(B, C)`, zero-padded and valid: the second map is the inner part."""
    batch, bands, height, width = truth.shape
    count = max(1, _CHUNK // (height * width))
    planes = zip(
        torch.split(estimate.reshape(-1, height, width), count),
        torch.split(truth.reshape(-1, height, width), count),
        strict=True,
    )
    zero, valid = [], []
    for first, second in planes:
        similarity = _similarity(first.double(), second.double(), data_range)
        zero.append(similarity.mean((-1, -2)))
        valid.append(similarity[..., REACH : height - REACH, REACH : width - REACH].mean((-1, -2)))
    both = torch.stack([torch.cat(zero), torch.cat(valid)]).to(truth.dtype)
    first, second = both.reshape(2, batch, bands).unbind(0)
    return first, second


def _similarity(first: Tensor, second: Tensor, data_range: float) -> Tensor:
    """The map of local similarity of planes `(N, H, W)`, zero-padded.

    In double precision: a variance is a small difference of two large means, and in float32 a
    flat bright region would be off by 1e-4.
    """
    # The map needs the two variances only as their sum, so four filtered images do for five.
    moments = torch.stack([first, second, first.square() + second.square(), first * second])
    mean_1, mean_2, power, product = _filtered(moments).unbind(0)
    c1, c2 = (K1 * data_range) ** 2, (K2 * data_range) ** 2
    means_product = mean_1 * mean_2
    means_power = mean_1.square_() + mean_2.square_()
    upper = (2 * means_product + c1) * (2 * (product - means_product) + c2)
    lower = (means_power + c1) * (power - means_power + c2)
    return upper / lower


def _filtered(images: Tensor) -> Tensor:
    """Gaussian window along both axes, as sums of shifted views.

    Not as a convolution: this way the order of the additions is the same on every device.
    """
    images = F.pad(images, (REACH, REACH, REACH, REACH))
    weights = _window()
    for axis in (-1, -2):
        size = images.shape[axis] - WINDOW + 1
        total = images.narrow(axis, 0, size) * weights[0]
        for shift in range(1, WINDOW):
            total.add_(images.narrow(axis, shift, size), alpha=weights[shift])
        images = total
    return images


def _window() -> list[float]:
    """The Gaussian window's weights, of sum 1."""
    values = [math.exp(-((k - REACH) ** 2) / (2 * WINDOW_STD**2)) for k in range(WINDOW)]
    total = sum(values)
    return [value / total for value in values]
