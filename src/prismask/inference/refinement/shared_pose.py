"""The pose that all snapshots of a camera share, from cubes that are given.

A network that is told how far its mask may be wrong draws nearly the right cube even with a mask
pixels aside. With that cube the snapshot says where the mask is: y − A_m(p) x̂ is lowered over the
numbers p of the pose by Gauss–Newton steps, for which the network is not needed. Then cubes are
made with the mask in its new pose, and so on; a few turns suffice.

Dispersion is left alone: a scene that is moved band by band looks like it, and a cube that is given
has moved already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, POSITION, TONES, MaskPose
from prismask.inference.refinement.mask_fit import Observed

FREE = (*POSITION, BLUR, *TONES)
"""The numbers that are found, in the order in which `MaskPose.derivatives` gives them."""
STEPS = 3
"""Gauss–Newton steps with the same cubes."""
LONGEST = 0.7
"""Most by which a step changes a number, in pixels."""
PER_OBSERVATION = 100
"""Sensor pixels that count as one observation: what cubes leave is alike at many."""
TURN, STRETCH = math.radians(0.4), 0.0015
USUAL_SHIFT, USUAL_BLUR, USUAL_TONE = 1.0, 0.3, 0.15
"""How far cameras usually are from their calibration, standard deviations: an angle, a share, and
numbers of a pose."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Some lines of the frame, with cubes, and which they are."""

    observed: Observed
    rows: slice

    def of(self, mask: Tensor) -> Tensor:
        """These lines of `mask (1, 1|C, H, W)`, on the device."""
        return mask[..., self.rows, :].to(self.observed.signal.device)


def step_pose(lines: Sequence[Lines], told: Tensor, pose: MaskPose) -> MaskPose:
    """A better pose of `told (1, 1|C, H, W)` for the lines' cubes."""
    for _ in range(STEPS):
        pose = _one_step(lines, told, pose)
    return pose


def _one_step(lines: Sequence[Lines], told: Tensor, pose: MaskPose) -> MaskPose:
    here, by_position, by_value = pose.derivatives(told)
    changes = [*by_position, *by_value]
    matrix = torch.zeros(len(FREE), len(FREE), dtype=torch.float64)
    right = torch.zeros(len(FREE), dtype=torch.float64)
    energy, pixels = 0.0, 0
    for some in lines:
        observed = some.observed
        weight = observed.weights(some.of(here)).sqrt()
        left = (weight * observed.left(some.of(here))).flatten().double().cpu()
        slopes = torch.stack([
            (weight * observed.camera.forward(observed.cubes, some.of(change))).flatten()
            for change in changes
        ]).double().cpu()  # fmt: skip
        matrix += slopes @ slopes.T
        right += slopes @ left
        energy, pixels = energy + float(left.square().sum()), pixels + len(left)
    prior = PER_OBSERVATION * energy / max(pixels, 1) / _usual(told).square()
    now = torch.tensor(pose.some(FREE), dtype=torch.float64)
    # Without light there is nothing to go by, and nothing to divide by.
    matrix += (prior + 1e-12).diag()
    step = torch.linalg.solve(matrix, right - prior * now).clamp(-LONGEST, LONGEST)
    return MaskPose(**dict(zip(FREE, (now + step).tolist(), strict=True)))


def _usual(mask: Tensor) -> Tensor:
    """How far each number usually is from 0, for a mask of this size."""
    height, width = mask.shape[-2] / 2, mask.shape[-1] / 2
    return torch.tensor(
        [
            USUAL_SHIFT, USUAL_SHIFT, TURN * width, STRETCH * height, STRETCH * width,
            TURN * height, USUAL_BLUR, *(USUAL_TONE for _ in TONES),
        ],
        dtype=torch.float64,
    )  # fmt: skip


def largest_change(before: MaskPose, after: MaskPose) -> float:
    """The most by which a number changed: pixels, px² of blur, or shares of light."""
    pairs = zip(before.numbers, after.numbers, strict=True)
    return max(abs(a - b) for a, b in pairs)
