"""The calibrated interval of a network, as error bars that can be checked like any others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from prismask.evaluation.analyses.calibration_checks import LEVELS, gaussian_factor
from prismask.inference.intervals.model import Interval, cube_features
from prismask.optics.camera import CASSI

SCALE_LEVEL = 0.9
"""The level whose half width, divided by the Gaussian z, stands for a standard deviation."""


def stored_interval(record: Any, kind: str) -> Interval | None:
    """The interval `single` or `sampled` of a weights record; None where none was fitted."""
    stored = (record or {}).get("interval") or {}
    return Interval.from_record(stored[kind], int(record["bands"])) if kind in stored else None


def interval_widths(
    interval: Interval,
    estimate: Tensor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    spreads: Mapping[str, Tensor] | None = None,
    levels: Sequence[float] = LEVELS,
) -> tuple[Tensor, dict[float, Tensor]]:
    """Half widths by level around `estimate (C, H, W)`, and a std that stands for them.

    measurement: `(1, H, L)`; mask: `(1, 1|C, H, W)`; spreads: those that the interval needs.
    The interval has no std of its own: it is not Gaussian.
    """
    widths = {level: torch.empty_like(estimate) for level in levels}
    scale = torch.empty_like(estimate)
    by_band = cube_features(estimate, measurement[0], mask, camera, spreads or {})
    for band, features in enumerate(by_band):
        scale[band] = interval.half_width(features, band, SCALE_LEVEL)
        for level, width in widths.items():
            width[band] = scale[band] * (interval.quantile(level) / interval.quantile(SCALE_LEVEL))
    return scale / gaussian_factor(SCALE_LEVEL), widths
