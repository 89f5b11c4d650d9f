"""The reconstruction loss ℓ."""

from __future__ import annotations

from torch import Tensor

KINDS = ("l2", "rmse", "l1", "log")
FLOOR = 1e-5
"""Relative squared error (50 dB below the signal) beneath which "log" sees no difference."""
DARKEST = 1e-4
"""Mean square below which a crop counts as this bright: errors in the dark would rule otherwise."""


def reconstruction_loss(estimate: Tensor, truth: Tensor, kind: str) -> Tensor:
    """ℓ(x̂, x) over a batch `(B, C, H, W)`.

    "l2": mean squared error, the paper's Eq. (7) up to its constant factor.
    "rmse": the root is taken sample by sample, so that parts of a batch on different processes
    add up to the same loss.
    "l1": mean absolute error.
    "log": ln(mse / mean x² + floor), the mean over samples: a decibel counts the same in every one.
    """
    error = estimate.float() - truth
    if kind == "l1":
        return error.abs().mean()
    per_sample = error.square().flatten(1).mean(1)
    if kind == "rmse":
        per_sample = (per_sample + 1e-12).sqrt()
    if kind == "log":
        energy = truth.square().flatten(1).mean(1).clamp_min(DARKEST)
        per_sample = (per_sample / energy + FLOOR).log()
    return per_sample.mean()
