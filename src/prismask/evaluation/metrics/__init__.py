"""Metrics: how far an estimate is from the truth, each number with its convention.

Every function takes `estimate` and `truth (B, C, H, W)`, in fractions of full scale, and gives
one value per sample `(B,)`, without gradients. `score` computes several at once, `METRICS` says
what each one means.
"""

from __future__ import annotations

from prismask.evaluation.metrics.psnr import psnr
from prismask.evaluation.metrics.registry import METRICS, Metric, score, score_cubes
from prismask.evaluation.metrics.spectral import ergas, rmse, sam
from prismask.evaluation.metrics.ssim import ssim

__all__ = ["METRICS", "Metric", "ergas", "psnr", "rmse", "sam", "score", "score_cubes", "ssim"]
