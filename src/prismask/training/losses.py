"""The reconstruction loss ℓ."""

from __future__ import annotations

from torch import Tensor


def reconstruction_loss(estimate: Tensor, truth: Tensor, kind: str) -> Tensor:
    """ℓ(x̂, x) over a batch `(B, C, H, W)`.

    "l2": mean squared error, the paper's Eq. (7) up to its constant factor.
    "rmse": the root is taken sample by sample, so that parts of a batch on different processes
    add up to the same loss.
    """
    per_sample = (estimate.float() - truth).square().flatten(1).mean(1)
    if kind == "rmse":
        per_sample = (per_sample + 1e-12).sqrt()
    return per_sample.mean()
