"""Fitting an interval to errors that are known: the exponents of its scale, and its quantiles.

The two steps of `inference.intervals.model`: least squares for the scale on one half of the scenes,
conformal quantiles on the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape
from prismask.errors import ConfigError
from prismask.inference.intervals.model import FLOOR, LEVELS, Interval, predicted_scale


def fit_interval(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, scene: Tensor, bands: int
) -> Interval:
    """Fit an interval to pooled values.

    errors: estimate − truth, `(N,)`; features: each `(N,)`; band and scene: which one each value
    belongs to, `(N,)`. Values of every scene must be equally many for the quantiles to weigh
    scenes alike. Scenes with an even number shape the scale, the others calibrate it.
    """
    check_shape(errors, ("N",), "errors")
    scenes = sorted(set(scene.tolist()))
    if len(scenes) < 2:
        raise ConfigError("an interval needs at least two validation scenes: one half fits the "
                          "scale, the other calibrates it.")  # fmt: skip
    half = torch.tensor([place % 2 == 0 for place in range(len(scenes))])
    first = half[torch.bucketize(scene, torch.tensor(scenes))]
    intercepts, exponents = _least_squares(errors, features, band, bands, first)
    logs = torch.tensor(intercepts)[band]
    ratio = errors.abs() / predicted_scale(features, exponents, logs)
    rest = ~first
    quantiles = {level: float(conformal_quantile(ratio[rest], level)) for level in LEVELS}
    about: dict[str, Any] = {"values": int(errors.numel()), "scenes": len(scenes)}
    if left_out := coverage_left_out(ratio[rest], scene[rest], 0.9):
        about["coverage_90_left_out"] = left_out
    return Interval(tuple(intercepts), exponents, quantiles, about)


def conformal_quantile(values: Tensor, level: float) -> Tensor:
    """The conformal quantile: the ⌈(n + 1)·level⌉-th smallest value."""
    count = values.numel()
    rank = min(count, -int(-(count + 1) * level // 1))
    return values.kthvalue(max(1, rank)).values


def coverage_left_out(ratio: Tensor, member: Tensor, level: float) -> list[float]:
    """Coverage of each scene, camera … by the quantile of the others: least, mean, most.

    It is what a new one may expect. ratio: |error| over the predicted scale, `(N,)`; member: which
    one each value belongs to, `(N,)`. Empty where there is only one.
    """
    members = sorted(set(member.tolist()))
    if len(members) < 2:
        return []
    inside = []
    for one in members:
        is_here = member == one
        quantile = conformal_quantile(ratio[~is_here], level)
        inside.append(float((ratio[is_here] <= quantile).float().mean()))
    mean = sum(inside) / len(inside)
    return [round(value, 4) for value in (min(inside), mean, max(inside))]


def _least_squares(
    errors: Tensor, features: dict[str, Tensor], band: Tensor, bands: int, use: Tensor
) -> tuple[list[float], dict[str, float]]:
    """log |error| on the logs of the features and one constant a band."""
    names = list(features)
    target = (errors[use].abs() + FLOOR).log().double()
    columns = torch.stack([(features[name][use] + FLOOR).log() for name in names], 1).double()
    which = F.one_hot(band[use], bands).double()
    matrix = torch.cat([columns, which], 1)
    # A touch of ridge keeps bands without values, and features that move together, in hand.
    gram = matrix.T @ matrix + 1e-6 * len(target) * torch.eye(matrix.shape[1]).double()
    solution = torch.linalg.solve(gram, matrix.T @ target)
    slopes = {name: float(value) for name, value in zip(names, solution, strict=False)}
    return [float(value) for value in solution[len(names) :]], slopes
