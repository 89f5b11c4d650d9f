"""Steps towards the pose of a mask, for cubes that are given.

A network that is told how far its mask may be wrong draws nearly the right cube even with a mask
pixels aside. With that cube the snapshot says where the mask is: y − A_m(p) x̂ is lowered over the
numbers p of the pose by Gauss–Newton steps, for which the network is not needed. Then cubes are
made with the mask in its new pose, and so on; a few turns suffice. One snapshot may say so alone
(`alignment.search`), or many that share a pose (`refinement`).

A scene that is moved band by band looks like a prism that spreads the spectrum further, and a cube
that is given has moved already: dispersion is found where the mask nearly is, not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.inference.alignment.pose import BLUR, DISPERSION, POSITION, TONES, MaskPose
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation
from prismask.optics.camera import CASSI

STEPS = 3
"""Gauss–Newton steps with the same cubes."""
LONGEST = 0.7
"""Most by which a step changes a number, in pixels."""
PER_OBSERVATION = 100
"""Sensor pixels that count as one observation: what cubes leave is alike at many."""
TURN, STRETCH = math.radians(0.4), 0.0015
USUAL_SHIFT, USUAL_SPREAD, USUAL_BEND, USUAL_BLUR, USUAL_TONE = 1.0, 0.4, 0.1, 0.3, 0.15
"""How far cameras usually are from their calibration, standard deviations: an angle, a share, and
numbers of a pose."""
UNKNOWN_STD, POSED_STD = 0.2, 0.1
"""What the network is told of a mask's errors where nobody knows: as calibrated, in its pose."""
HALO = 24
"""Lines of context that leave cubes as they are in the whole frame."""
AROUND = 15
"""Side of the window over which what is left is averaged, in pixels."""


@dataclass(frozen=True, eq=False)
class Observed:
    """Lines of all snapshots, and cubes for them; all on one device."""

    signal: Tensor
    """`(N, H, L)`."""
    counts: Tensor
    """1 where a pixel is to be explained, 0 where it is saturated or left out; `(N, H, L)`."""
    noise: Tensor
    """Standard deviation `(N,)`."""
    cubes: Tensor
    """`(N, C, H, W)`."""
    camera: CASSI

    def left(self, mask: Tensor) -> Tensor:
        """y − B m for `mask (1, 1|C, H, W)`."""
        return self.signal - self.camera.forward(self.cubes, mask)

    def weights(self, mask: Tensor) -> Tensor:
        """1 / σ², from what is left around each pixel with `mask`; 0 where nothing counts."""
        left = self.left(mask).square() * self.counts
        near = _around(left) / _around(self.counts).clamp_min(1e-3)
        floor = self.noise.square()[:, None, None].clamp_min(1e-12)
        return self.counts / torch.maximum(near, floor)


@dataclass(frozen=True, eq=False)
class Lines:
    """Some lines of the frame, with cubes, and which they are."""

    observed: Observed
    rows: slice

    def of(self, mask: Tensor) -> Tensor:
        """These lines of `mask (1, 1|C, H, W)`, on the device."""
        return mask[..., self.rows, :].to(self.observed.signal.device)


def seen_lines(
    engine: Engine,
    seen: Observation,
    rows: slice,
    counts: Tensor,
    tick: Callable[[int], None] = lambda lines: None,
    halo: int = HALO,
    pose: MaskPose | None = None,
) -> Lines:
    """Some lines of snapshots `(N, H, L)` with their cubes, before a step that fits them to any
    mask.

    seen: dispersed along the width; mask and mask_std are what the network is told.
    counts: as in `Observed`, of whole frames. tick: told the lines of each cube that was made.
    halo: lines beside those that are wanted which the network sees as well.
    pose: that of the mask; None: it is given as it lies.
    """
    device = engine.device
    first, last = max(0, rows.start - halo), min(seen.mask.shape[-2], rows.stop + halo)
    near = seen.with_images(lambda image: image[..., first:last, :].to(device))
    if pose is not None:
        read = pose.read(seen.mask, seen.camera, slice(first, last))
        near = near._replace(mask=read.to(device))
    cubes = []
    for one in near.one_by_one():
        noise = None if one.noise is None else one.noise.to(device)
        cube = engine.network.before_projection(one._replace(noise=noise))
        cubes.append(cube[:, :, rows.start - first : rows.stop - first].clone())
        tick(rows.stop - rows.start)
    noise = torch.zeros(len(cubes)) if seen.noise is None else seen.noise
    observed = Observed(
        seen.measurement[:, rows].to(device), counts[:, rows].to(device), noise.to(device),
        torch.cat(cubes), seen.camera,
    )  # fmt: skip
    return Lines(observed, rows)


FREE = (*POSITION, BLUR, *TONES)
"""The numbers that are found unless others are asked for."""


def step_pose(
    lines: Sequence[Lines], told: Tensor, pose: MaskPose, free: Sequence[str] = FREE
) -> tuple[MaskPose, MaskPose]:
    """A better pose of `told (1, 1|C, H, W)` for the lines' cubes, and how surely it is known: the
    standard deviation of each number that is `free`, if the cubes are right."""
    std = MaskPose()
    for _ in range(STEPS):
        pose, std = _one_step(lines, told, pose, free)
    return pose, std


def _one_step(
    lines: Sequence[Lines], told: Tensor, pose: MaskPose, free: Sequence[str]
) -> tuple[MaskPose, MaskPose]:
    matrix = torch.zeros(len(free), len(free), dtype=torch.float64)
    right = torch.zeros(len(free), dtype=torch.float64)
    energy, pixels = 0.0, 0
    for some in lines:
        observed, camera = some.observed, some.observed.camera
        here, by_position, by_value = pose.derivatives(told, some.rows)
        here = here.to(observed.signal)
        by_name = dict(zip((*POSITION, BLUR, *TONES), (*by_position, *by_value), strict=True))
        changes = {name: pose.by_band(by_name[name].to(here), camera)
                   for name in free if name in by_name}  # fmt: skip
        if not set(free).isdisjoint(DISPERSION):
            changes |= zip(DISPERSION, pose.band_derivatives(here, camera), strict=True)
        code = pose.by_band(here, camera).clamp(0, 1)
        weight = observed.weights(code).sqrt()
        left = (weight * observed.left(code)).flatten().double().cpu()
        slopes = torch.stack([
            (weight * camera.forward(observed.cubes, changes[name])).flatten() for name in free
        ]).double().cpu()  # fmt: skip
        matrix += slopes @ slopes.T
        right += slopes @ left
        energy, pixels = energy + float(left.square().sum()), pixels + len(left)
    share = PER_OBSERVATION * energy / max(pixels, 1)
    prior = share / _usual(told, free).square()
    now = torch.tensor(pose.some(free), dtype=torch.float64)
    # Without light there is nothing to go by, and nothing to divide by.
    matrix += (prior + 1e-12).diag()
    step = torch.linalg.solve(matrix, right - prior * now).clamp(-LONGEST, LONGEST)
    std = (share * torch.linalg.inv(matrix).diagonal()).sqrt()
    found = replace(pose, **dict(zip(free, (now + step).tolist(), strict=True)))
    return found, MaskPose(**dict(zip(free, std.tolist(), strict=True)))


def _usual(mask: Tensor, free: Sequence[str]) -> Tensor:
    """How far each number usually is from 0, for a mask of this size."""
    height, width = mask.shape[-2] / 2, mask.shape[-1] / 2
    usual = {
        "down": USUAL_SHIFT, "right": USUAL_SHIFT,
        "down_by_column": TURN * width, "right_by_row": TURN * height,
        "down_by_row": STRETCH * height, "right_by_column": STRETCH * width,
        "spread": USUAL_SPREAD, "bend": USUAL_BEND, BLUR: USUAL_BLUR,
    }  # fmt: skip
    return torch.tensor([usual.get(name, USUAL_TONE) for name in free], dtype=torch.float64)


def largest_change(before: MaskPose, after: MaskPose) -> float:
    """The most by which a number changed: pixels, px² of blur, or shares of light."""
    pairs = zip(before.numbers, after.numbers, strict=True)
    return max(abs(a - b) for a, b in pairs)


def _around(image: Tensor) -> Tensor:
    """The mean of `image (N, H, L)` over a window around each pixel; edges continue."""
    side = min(AROUND, 2 * min(image.shape[-2:]) - 1) // 2
    padded = F.pad(image[:, None], (side,) * 4, mode="replicate")
    return F.avg_pool2d(padded, 2 * side + 1, 1)[:, 0]
