"""New materials from known scenes.

A few dozen scenes hold few materials, and a network that has seen each a thousand times learns
their spectra by heart. Here every crop is lit by two lamps with smooth random spectra, mixed pixel
by pixel by the brightness of the crop itself, turned by half a turn:

    x'[λ, h, w] = x[λ, h, w] · exp(l · a_λ + (1 − l) · b_λ),     l = x̄[H−1−h, W−1−w] / max x̄.

The edges of l are those of a natural picture, but lie where x has none, so both the spectra and
the places where they change are new.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.training.data.crops import cosines, to_device

NUMBERS = (2, 3)
"""Cosine coefficients a crop needs: two lamps of three."""


def repaint(cube: Tensor, coefficients: Tensor) -> Tensor:
    """Crops `(B, C, H, W)` lit by two lamps each, given by `coefficients (B, 2, 3)` on the CPU."""
    lamps = to_device(coefficients @ cosines(cube.shape[1]), cube.device)  # log gains (B, 2, C)
    first, second = lamps[:, 0, :, None, None], lamps[:, 1, :, None, None]
    level = cube.mean(1, keepdim=True).flip(-2, -1)
    level = level / level.amax((-2, -1), keepdim=True).clamp_min(torch.finfo(cube.dtype).tiny)
    return cube * torch.lerp(second, first, level).exp_()
