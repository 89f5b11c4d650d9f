"""The reconstruction loss ℓ, of one cube or of everything that an unrolled network says on its way.

Of an unrolled network every stage's cube is compared with the truth, the last one most: stage i of
n weighs decay^(n − 1 − i), and the weights sum to one, so that a loss means the same for any number
of stages. Where a network estimates the mask too, what is left of the nominal mask's error is
added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
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


GOOD_MASK = 0.02
"""A mask error that hardly matters: what is moved by it is as bad as a wrong mask left alone."""


def stage_weights(count: int, decay: float) -> list[float]:
    """Weights of the stages' losses, first to last; decay 0: the last alone."""
    weights = [decay ** (count - 1 - number) for number in range(count)]
    return [weight / sum(weights) for weight in weights]


def staged_loss(
    cubes: Sequence[Tensor],
    cube: Tensor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    decay: float,
) -> Tensor:
    """The weighted loss of all cubes `(B, C, H, W)`, one per stage, against the truth."""
    weights = stage_weights(len(cubes), decay)
    pairs = zip(weights, cubes, strict=True)
    losses = [weight * loss_of(estimate, cube) for weight, estimate in pairs if weight > 0]
    return torch.stack(losses).sum()


def mask_loss(masks: Sequence[Tensor], nominal: Tensor, true: Tensor, decay: float) -> Tensor:
    """How much of the nominal mask's squared error the estimated ones leave, mean over the batch.

    masks: one `(B, 1|C, H, W)` per stage; nominal, true `(1|B, 1|C, H, W)`. About 1 for the
    nominal mask itself, 0 for the true one. Samples whose mask is right count by `GOOD_MASK`
    instead of their error.
    """

    def squared(mask: Tensor) -> Tensor:
        return (mask.float() - true).square().mean((1, 2, 3))

    scale = squared(nominal) + GOOD_MASK**2
    weights = stage_weights(len(masks), decay)
    losses = [
        weight * (squared(mask) / scale).mean()
        for weight, mask in zip(weights, masks, strict=True)
        if weight > 0
    ]
    return torch.stack(losses).sum()
