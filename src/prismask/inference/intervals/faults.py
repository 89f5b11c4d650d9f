"""Faults of a mask that the snapshots of a fit have: moved, out of focus, another dispersion."""

from __future__ import annotations

import math

import torch

from prismask.inference.alignment.pose import MaskPose

KINDS = 3
SHIFTS, BLURS, SPREADS = (0.25, 1.25), (0.3, 1.0), (0.1, 0.6)
"""Least and most of what is wrong, in pixels: how far the mask is shifted, the standard deviation
of its blur, and how far the ends of the spectrum lie beside where they were calibrated."""


def draw_fault(number: int, generator: torch.Generator) -> MaskPose:
    """What is wrong with a mask: of `KINDS` in turn."""

    def between(least: float, most: float) -> float:
        return least + (most - least) * float(torch.rand((), generator=generator))

    kind = number % KINDS
    if kind == 0:
        away, angle = between(*SHIFTS), between(0, 2 * math.pi)
        return MaskPose(down=away * math.sin(angle), right=away * math.cos(angle))
    if kind == 1:
        return MaskPose(blur=between(*BLURS) ** 2)
    sign = 1 if between(-1, 1) > 0 else -1
    return MaskPose(spread=sign * between(*SPREADS))
