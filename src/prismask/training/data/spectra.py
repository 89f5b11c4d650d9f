"""Crops whose spectra are shifted, stretched or reversed.

Space is cut anywhere, turned, mirrored and enlarged before it is shown to a network; the spectrum
deserves the same, or a few dozen scenes teach where the edges of their materials lie. Band j of the
new crop is read at

    p_j = c + s · (j − c) + t

between the bands of the old one (c: the middle; beyond the ends the last band goes on). A reversed
spectrum, s < 0, is what the mirrored camera would see.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.training.data.crops import to_device

NUMBERS = (4,)
"""Uniform numbers a crop needs: whether it is changed, stretch, direction, shift."""
STRETCH = 0.5
"""s lies between 2^−STRETCH and 2^STRETCH."""
SHIFT = 0.2
"""t is at most this share of the spectrum."""


def read_elsewhere(cube: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Change the spectra of a share of the crops `(B, C, H, W)`, by `numbers (B, 4)` on the CPU."""
    matrix = to_device(reading_matrix(cube.shape[1], numbers, share), cube.device)
    return (matrix @ cube.flatten(2)).reshape(cube.shape)


def reading_matrix(bands: int, numbers: Tensor, share: float) -> Tensor:
    """`(B, C, C)`: how much of each old band a new one gets; rows sum to one."""
    changed, stretch, direction, shift = numbers.unbind(1)
    stretch = torch.exp2(STRETCH * (2 * stretch - 1)) * torch.where(direction < 0.5, -1.0, 1.0)
    shift = SHIFT * (bands - 1) * (2 * shift - 1)
    is_changed = (changed < share)[:, None]
    band = torch.arange(bands, dtype=numbers.dtype)
    middle = (bands - 1) / 2
    place = middle + stretch[:, None] * (band - middle) + shift[:, None]
    place = torch.where(is_changed, place, band).clamp(0, bands - 1)
    return (1 - (place[:, :, None] - band).abs()).clamp_min(0)
