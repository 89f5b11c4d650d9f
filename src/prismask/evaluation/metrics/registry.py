"""All metrics by name, each with its convention, unit and direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.evaluation.metrics.pair import Pair
from prismask.evaluation.metrics.psnr import pair_psnr
from prismask.evaluation.metrics.spectral import pair_ergas, pair_rmse, pair_sam
from prismask.evaluation.metrics.ssim import pair_ssim

if TYPE_CHECKING:
    from prismask.scenes.records import Cube


@dataclass(frozen=True)
class Metric:
    """A metric and how to print it."""

    label: str
    """Name with its convention: what every printed number carries."""
    unit: str
    """`dB`, `°`, or empty."""
    higher_is_better: bool
    """Direction: PSNR and SSIM up, errors and angles down."""
    digits: int
    """Digits after the point that mean something."""
    convention: str
    """The definition in one line."""
    compute: Callable[[Pair], Tensor]
    """Value of each sample `(B,)`."""

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
        "mean angle between spectra; 90° beside a spectrum of zeros, 0° between two",
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
}  # fmt: skip
"""Every metric by its short name."""


@torch.no_grad()
def score(estimate: Tensor, truth: Tensor, names: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Several metrics of `estimate` against `truth (B, C, H, W)`: `{name: (B,)}`.

    `names` are keys of `METRICS`; None takes all.
    """
    chosen = list(METRICS) if names is None else [choose(n, METRICS, "metric") for n in names]
    pair = Pair(estimate, truth)
    return {name: METRICS[name].compute(pair) for name in chosen}


def score_cubes(
    estimate: Cube, truth: Cube, names: Iterable[str] | None = None
) -> dict[str, float]:
    """`score` of two `Cube` records: `{name: value}`."""
    first, second = (torch.tensor(cube.values)[None] for cube in (estimate, truth))
    return {name: float(values[0]) for name, values in score(first, second, names).items()}
