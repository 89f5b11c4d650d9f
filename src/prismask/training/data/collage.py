"""Two crops joined along natural shapes.

A network that has seen a few dozen scenes thousands of times knows which material lies beside
which. Here a crop x and another one o share the frame,

    x' = l ⊙ x + (1 − l) ⊙ o,     l = sigmoid(k · z),

where z is the brightness of o turned by half a turn, at mean zero and deviation one: the shapes are
those of a natural picture, and lie where neither crop has its edges. A large k cuts the one out of
the other, a small one lays them over each other as a window pane does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prismask.training.data.crops import to_device

NUMBERS = (2,)
"""Uniform numbers a crop needs: whether it is joined, and how sharply."""
SHARPNESS = (0.5, 20.0)
"""Smallest and largest k; its logarithm is drawn evenly."""


def collage(cube: Tensor, other: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Join a share of the crops `(B, C, H, W)` with others, by `numbers (B, 2)` on the CPU."""
    low, high = (math.log(value) for value in SHARPNESS)
    sharpness = torch.exp(low + (high - low) * numbers[:, 1])
    joined, sharpness = to_device(
        torch.stack([(numbers[:, 0] < share).float(), sharpness]), cube.device
    )[:, :, None, None, None]
    level = other.mean(1, keepdim=True).flip(-2, -1)
    deviation, mean = torch.std_mean(level, (-2, -1), keepdim=True, correction=0)
    shape = torch.sigmoid(sharpness * (level - mean) / deviation.clamp_min(1e-6))
    return torch.lerp(cube, other, joined * (1 - shape))
