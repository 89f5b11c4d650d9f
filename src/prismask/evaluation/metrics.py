"""Metrics: how far an estimate is from the truth, each number with its convention.

Every function takes `estimate` and `truth (B, C, H, W)`, in fractions of full scale, and gives
one value per sample `(B,)`, without gradients. `score` computes several at once, `METRICS` says
what each one means.

**PSNR** takes the ratio band by band and averages the decibels over the bands:

    paper   peak = largest value of the true cube; floating point, no clipping
    mst     both multiplied by 256 and rounded, peak 255
    dgsmp   both clipped to [0, 1] and rounded to 8 bits, peak 255
    unit    peak 1; floating point, no clipping

The four differ by several decibels on dark scenes: never mix them in a column. A band without any
error counts as infinite, and so does then the mean.

**SSIM** (Wang et al., 2004) is the mean over the bands, with an 11×11 Gaussian window of σ 1.5,
K₁ = 0.01, K₂ = 0.03. There are two conventions at the edge:

    zero    windows reach beyond the image, where zeros are: a map of the full size, as in the
            code behind the paper
    valid   only windows that lie inside: as in the original MATLAB code

Equal images give 1, also constant ones.

**SAM**, the spectral angle, is the mean over the pixels of the angle between true and estimated
spectrum, in degrees. A spectrum of zeros has no direction: two of them count as 0°, one and a
spectrum that is not zero as 90°.

**ERGAS** is `100 · ratio · √(mean over bands of (rmse / mean of the true band)²)`. `ratio` is that
of the pixel sizes, fine to coarse; it comes from image fusion and is 1 where nothing changes its
resolution. (Some libraries ask for its inverse.) A true band of mean 0 counts as 0 where it is met
exactly and as infinite otherwise.

**RMSE** is over the whole cube, in fractions of full scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_finite, check_shape, choose, size_text
from prismask.errors import ConfigError, DeviceError, ShapeError, ValuesError

if TYPE_CHECKING:
    from prismask.scenes.records import Cube

__all__ = [
    "CUBE_METRICS",
    "METRICS",
    "Metric",
    "ergas",
    "psnr",
    "rmse",
    "sam",
    "score",
    "score_cubes",
    "ssim",
]


class Pair:
    """`estimate` and `truth (B, C, H, W)` of one precision, finite, of one size."""

    def __init__(
        self, estimate: Tensor, truth: Tensor, interval: tuple[Tensor, Tensor] | None = None
    ) -> None:
        for name, cube in (("estimate", estimate), ("truth", truth)):
            check_shape(cube, ("B", "C", "H", "W"), name)
            if not cube.is_floating_point():
                raise ValuesError(
                    f"{name} holds {cube.dtype} values; metrics compare fractions of full scale. "
                    "Divide by the full scale first (255, 65535 …)."
                )
        if estimate.shape != truth.shape:
            # One cube each is what people hand over; the batch around it is ours.
            alone = len(estimate) == len(truth) == 1
            came, fits = (size_text(cube.shape[alone:]) for cube in (estimate, truth))
            raise ShapeError(
                f"the estimate is {came} and the truth {fits}; they must have the same size."
            )
        if estimate.device != truth.device:
            raise DeviceError(
                f"estimate is on {estimate.device} and the truth on {truth.device}; "
                "move one of them."
            )
        # Half precision would round away the errors that are being measured.
        dtype = torch.promote_types(torch.promote_types(estimate.dtype, truth.dtype), torch.float32)
        self.estimate, self.truth = estimate.to(dtype), truth.to(dtype)
        # One check of both on their device; only a failure pays for finding where.
        if not bool((torch.isfinite(self.estimate) & torch.isfinite(self.truth)).all()):
            check_finite(self.estimate, "estimate")
            check_finite(self.truth, "truth")
        self.interval = interval
        self.ssim: dict[float, tuple[Tensor, Tensor]] = {}
        """SSIM of each band by data range, both paddings, computed when first needed."""

    @cached_property
    def band_mse(self) -> Tensor:
        """Mean squared error of each band, `(B, C)`."""
        return (self.estimate - self.truth).square_().mean((-1, -2))

    @cached_property
    def band_mean(self) -> Tensor:
        """Mean of each band of the truth, `(B, C)`."""
        return self.truth.mean((-1, -2))

    @property
    def inside(self) -> Tensor:
        """Percentage of the truth inside the interval, `(B,)`; NaN for a cube that has none."""
        if self.interval is None:
            raise ConfigError(
                "inside counts the true values within an interval, and these cubes have none."
            )
        lower, upper = self.interval
        share = ((lower <= self.truth) & (self.truth <= upper)).to(self.truth).mean((-1, -2, -3))
        return torch.where(lower.flatten(1).isnan().any(1), torch.nan, 100 * share)

    @cached_property
    def peak(self) -> Tensor:
        """Largest value of each true cube, `(B,)`."""
        return self.truth.amax((-1, -2, -3))


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


@dataclass(frozen=True)
class Metric:
    """A metric and how to print it."""

    label: str
    """Name with its convention: what every printed number carries."""
    unit: str
    """`dB`, `°`, or empty."""
    higher_is_better: bool | None
    """Direction: PSNR and SSIM up, errors and angles down, None where neither is better."""
    digits: int
    """Digits after the point that mean something."""
    convention: str
    """The definition in one line."""
    compute: Callable[[Pair], Tensor]
    """Value of each sample `(B,)`."""
    of_interval: bool = False
    """Whether it judges the error bars that come with a cube."""

    def text(self, value: float) -> str:
        """The value as it is printed, with its unit."""
        number = f"{value:.{self.digits}f}"
        return f"{number}{self.unit}" if self.unit == "°" else f"{number} {self.unit}".rstrip()


METRICS: dict[str, Metric] = {
    "psnr_paper": Metric(
        "PSNR paper", "dB", True, 2,
        "per band, peak = maximum of the true cube, float, mean over bands",
        lambda pair: pair_psnr(pair, "paper"),
    ),
    "psnr_mst": Metric(
        "PSNR MST", "dB", True, 2,
        "per band, both × 256 and rounded, peak 255, mean over bands",
        lambda pair: pair_psnr(pair, "mst"),
    ),
    "psnr_dgsmp": Metric(
        "PSNR DGSMP", "dB", True, 2,
        "per band, both clipped to [0, 1] and rounded to 8 bits, peak 255, mean over bands",
        lambda pair: pair_psnr(pair, "dgsmp"),
    ),
    "psnr_unit": Metric(
        "PSNR unit", "dB", True, 2,
        "per band, peak 1, float, mean over bands",
        lambda pair: pair_psnr(pair, "unit"),
    ),
    "ssim": Metric(
        "SSIM zero-padded", "", True, 4,
        "11×11 Gaussian σ 1.5, range 1, zero-padded as in the paper's code, mean over bands",
        lambda pair: pair_ssim(pair, 1.0, "zero"),
    ),
    "ssim_valid": Metric(
        "SSIM valid", "", True, 4,
        "11×11 Gaussian σ 1.5, range 1, windows inside the image only, mean over bands",
        lambda pair: pair_ssim(pair, 1.0, "valid"),
    ),
    "sam": Metric(
        "SAM", "°", False, 2,
        "mean angle between spectra; 90° against an all-zero spectrum, 0° between two",
        pair_sam,
    ),
    "ergas": Metric(
        "ERGAS", "", False, 2,
        "100 · √(mean over bands of (rmse / mean of the true band)²), ratio 1",
        lambda pair: pair_ergas(pair, 1.0),
    ),
    "rmse": Metric(
        "RMSE", "", False, 4,
        "over the whole cube, in fractions of full scale",
        pair_rmse,
    ),
    "inside": Metric(
        "inside the interval", "%", None, 1,
        "share of the true values inside the 90 % interval that comes with the cube",
        lambda pair: pair.inside,
        of_interval=True,
    ),
}  # fmt: skip
"""Every metric by its short name."""

CUBE_METRICS = tuple(name for name, metric in METRICS.items() if not metric.of_interval)
"""Those that need nothing but the cube."""


@torch.no_grad()
def score(
    estimate: Tensor,
    truth: Tensor,
    names: Iterable[str] | None = None,
    interval: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Several metrics of `estimate` against `truth (B, C, H, W)`: `{name: (B,)}`.

    `names` are keys of `METRICS`; None takes all that need a cube only. `interval` has the lower
    and the upper end for those that judge it, NaN where there is none.
    """
    chosen = CUBE_METRICS if names is None else [choose(n, METRICS, "metric") for n in names]
    pair = Pair(estimate, truth, interval)
    return {name: METRICS[name].compute(pair) for name in chosen}


def score_cubes(
    estimate: Cube, truth: Cube, names: Iterable[str] | None = None
) -> dict[str, float]:
    """`score` of two `Cube` records: `{name: value}`."""
    first, second = (torch.tensor(cube.values)[None] for cube in (estimate, truth))
    return {name: float(values[0]) for name, values in score(first, second, names).items()}
