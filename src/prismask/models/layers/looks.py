"""Looks at a snapshot through a mask that may be wrong (`backbones.lumen` says the equations)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.layers.cosines import BandsIn, BandsOut
from prismask.optics.camera import CASSI

CAUTION = 100.0
"""Scale of α: one over the variance that a cube still has in the middle of the network."""


class Shot(NamedTuple):
    """What is known about a snapshot; the same for all stages."""

    measurement: Tensor
    """`(B, H, L)`."""
    mask: Tensor
    """As told, `(B|1, 1|C, H, W)`."""
    bound: Tensor
    """Most by which a stage may move the mask, `(B|1, 1, H, W)`."""
    gram: Tensor
    """A Aᵀ or what bounds it, `(B|1, H, L)`."""
    variance: Tensor
    """v, `(B, H, L)`."""


class Belief(NamedTuple):
    """What changes from stage to stage beside the features."""

    cube: Tensor
    """x̂ `(B, C, H, W)`, at least float32."""
    moved: Tensor
    """d `(B, 1, H, W)`; the mask m̂ follows from it."""

    def mask(self, shot: Shot, camera: CASSI) -> Tensor:
        """m̂ `(B, 1|C, H, W)`; as told behind a dual disperser, whose mask is no scene plane."""
        if camera.design == "dual":
            return shot.mask
        return (shot.mask + shot.bound * torch.tanh(self.moved)).clamp(0, 1)


class Look(nn.Module):
    """What the snapshot still has to say to the features."""

    def __init__(self, width: int, cosines: int, mask_steps: bool) -> None:
        super().__init__()
        planes = int(mask_steps)
        self.read = BandsOut(width, cosines, planes)
        self.tell = BandsIn(width, cosines, stacks=2, more=2 * planes)
        self.caution = nn.Parameter(torch.zeros(()))  # α
        self.floor = nn.Parameter(torch.tensor(-2.0))  # μ

    def weight(self, shot: Shot) -> Tensor:
        """What the residual is divided by, `(B, H, L)`: never less where more variance is told."""
        caution = CAUTION * F.softplus(self.caution.float())
        return shot.gram + F.softplus(self.floor.float()) + caution * shot.variance

    def forward(
        self, features: Tensor, belief: Belief, shot: Shot, camera: CASSI, basis: Tensor
    ) -> tuple[Tensor, Belief]:
        """Features `(B, F, H, W)` and belief → the same, after one more look."""
        bands, planes = self.read(features, basis)
        # Physics in float32: what is left of the snapshot is small beside the snapshot.
        cube = belief.cube + bands.to(belief.cube.dtype)
        if self.read.more:
            belief = Belief(cube, belief.moved + planes.to(cube.dtype))
            mask = belief.mask(shot, camera)
        else:
            belief, mask = Belief(cube, belief.moved), shot.mask
        left = (shot.measurement - camera.forward(cube, mask)) / self.weight(shot)
        windows = camera.unshear(left)
        told = windows * camera.code(mask)
        hints = self._mask_hints(belief, windows, shot) if self.read.more else []
        return features + self.tell([told, cube + told], hints, basis), belief

    @staticmethod
    def _mask_hints(belief: Belief, windows: Tensor, shot: Shot) -> list[Tensor]:
        """How far the mask was moved, and whereto the snapshot would move it, `(B, 1, H, W)`."""
        cube = belief.cube
        whereto = (cube * windows).sum(1, keepdim=True) / (cube.square().mean(1, True) + 0.01)
        return [shot.bound * torch.tanh(belief.moved), whereto]


def expected_variance(cube: Tensor, camera: CASSI, noise: Tensor, spread: Tensor) -> Tensor:
    """v `(B, H, L)`: what noise, and a mask wrong by `spread`, do to a cube's measurement.

    noise: `(B|1,)`; spread `(B|1, 1|C, H, W)`, not negative.
    """
    # The measurement of x² through a mask of variances: neighbouring pixels err independently.
    return noise.square()[:, None, None] + camera.forward(cube.square(), spread.square())
