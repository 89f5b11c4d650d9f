"""The reconstruction loss ℓ."""

from __future__ import annotations

import math

from torch import Tensor

KINDS = ("l2", "rmse", "l1")


def reconstruction_loss(estimate: Tensor, truth: Tensor, kind: str) -> Tensor:
    """ℓ(x̂, x) over a batch `(B, C, H, W)`.

    "l2": mean squared error, the paper's Eq. (7) up to its constant factor.
    "rmse": the root is taken sample by sample, so that parts of a batch on different processes
    add up to the same loss.
    "l1": mean absolute error.
    """
    error = estimate.float() - truth
    if kind == "l1":
        return error.abs().mean()
    per_sample = error.square().flatten(1).mean(1)
    if kind == "rmse":
        per_sample = (per_sample + 1e-12).sqrt()
    return per_sample.mean()


def as_squared_error(loss: float, kind: str) -> float:
    """The mean squared error behind a loss; for "l1" that of Gaussian errors."""
    return {"l2": loss, "rmse": loss**2, "l1": loss**2 * math.pi / 2}[kind]
