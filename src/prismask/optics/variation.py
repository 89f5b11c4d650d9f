"""Cheap random variation of masks, so that training never sees one instrument only.

Turn, mirror and sub-pixel shift are one bilinear read per mask; value curve and gain are two
more passes. Every mask of a batch gets its own numbers, all drawn on the generator's device:
with a generator on the GPU nothing waits for the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.checks import check_shape
from prismask.errors import ConfigError
from prismask.optics.randomness import uniform
from prismask.optics.resample import quarter_turn, sample_bilinear, turned_grid


@dataclass(frozen=True)
class Variation:
    """How far masks may be varied."""

    turns: bool = True
    """Random quarter turns (half turns where the mask is not square)."""
    mirrors: bool = True
    """Mirror left and right with probability one half."""
    shift: float = 0.5
    """Largest sub-pixel shift along each axis, in pixels."""
    gamma: float = 1.3
    """Largest exponent of the value curve; drawn log-uniformly from [1/gamma, gamma]."""
    gain: float = 0.1
    """Largest relative change of gain; drawn uniformly from [1 − gain, 1 + gain]."""

    def __post_init__(self) -> None:
        if not self.shift >= 0:
            raise ConfigError(f"variation shift is {self.shift:g} px; it cannot be negative.")
        if not self.gamma >= 1:
            raise ConfigError(f"variation gamma is {self.gamma:g}; 1 means none, more bends more.")
        if not 0 <= self.gain < 1:
            raise ConfigError(f"variation gain is {self.gain:g}; it lies in [0, 1).")


def vary(
    mask: Tensor, generator: torch.Generator | None = None, variation: Variation | None = None
) -> Tensor:
    """Masks `(B, 1|C, H, W)` → as many different masks, each varied by its own random numbers."""
    check_shape(mask, ("B", "C", "H", "W"), "mask")
    wanted = variation if variation is not None else Variation()
    # One draw for all six numbers of every mask: a GPU pays for kernels, not for numbers.
    drawn = uniform((6, mask.shape[0], 1, 1), mask, generator)
    moved = _move(mask, drawn[:4], wanted)
    gamma = torch.exp((2 * drawn[4] - 1) * math.log(wanted.gamma)).unsqueeze(1)
    gain = (1 + (2 * drawn[5] - 1) * wanted.gain).unsqueeze(1)
    return (moved.clamp(0, 1).pow(gamma) * gain).clamp(0, 1)


def _move(mask: Tensor, drawn: Tensor, variation: Variation) -> Tensor:
    """Turn, mirror and shift each mask in one read; `drawn (4, B, 1, 1)` in [0, 1)."""
    number = torch.floor(drawn[0] * 4) * float(variation.turns)
    if mask.shape[-2] != mask.shape[-1]:
        number = number * 2
    rows, columns = turned_grid(mask, *quarter_turn(number))
    if variation.mirrors:
        columns = torch.where(drawn[1] < 0.5, columns, mask.shape[-1] - 1 - columns)
    rows = rows + (2 * drawn[2] - 1) * variation.shift
    columns = columns + (2 * drawn[3] - 1) * variation.shift
    return sample_bilinear(mask, rows, columns)
