"""Lumen: an unrolled network for every camera, which is told how far its mask may be wrong.

Features h live at the scene's pixels; an estimate x̂ of the cube and an estimate m̂ of the mask are
carried beside them. Each stage looks at the snapshot again and then thinks in a small U:

    x̂ ← x̂ + CONV(h)                                 what the features say of the cube
    m̂ = clamp(m + b ⊙ tanh d, 0, 1),  d ← d + CONV(h)   … and of the mask m that was told
    t = A_m̂ᵀ (A Aᵀ + μ + α v)⁻¹ (y − A_m̂ x̂)            what the snapshot still has to say
    h ← U(h + CONV(t, x̂ + t, …))

v is the variance to be expected of y at each sensor pixel, from the noise and from the spread of
the mask that was told. α and μ are learned and not negative, so a larger spread never makes a look
trust the mask more. b is a few times the told spread: a mask that is told to be exact is left as it
is.

Bands enter and leave through cosines (`layers.cosines`), so one set of weights serves any band
count, and the camera's own operator serves any dispersion, mask and design. The last step is exact,

    x̂ ← x̂ + A_m̂ᵀ (A_m̂ A_m̂ᵀ + ρ)⁻¹ (y − A_m̂ x̂),   ρ = α v,

with all bands, so that a line too narrow for anything learned is still measured. It uses m̂: where
the mask is told to be exact the two are the same and A x̂ = y follows; where it is not, the told
mask would impose its own error on the cube.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.inputs import NOISE_GAIN, UNKNOWN, Noise, network_scale
from prismask.models.layers.cosines import BandsIn, BandsOut, cosine_basis
from prismask.models.layers.fused import ALIGNMENT
from prismask.models.layers.small_u import SmallU
from prismask.models.network import Estimates
from prismask.models.registry import register
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise

DIM = 0.3
"""Least throughput the first estimate divides by: noise at the frame's ends is not blown up."""
DARK = 1e-6
"""Least that the exact projection divides by, as in `CASSI.pseudo_inverse`."""
REACH = 3.0
"""How many told standard deviations the mask may be moved."""
STD_GAIN = 5.0
"""Makes a mask error of 0.2, which is much, a plane of ones."""
CAUTION = 100.0
"""Scale of α: one over the variance that a cube still has in the middle of the network."""
SOLVER_STEPS = 4
"""Steps of the exact projection where A Aᵀ is not diagonal (fractional offsets)."""


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


class Stage(nn.Module):
    """A look at the snapshot, then a small U."""

    def __init__(self, look: Look, think: SmallU) -> None:
        super().__init__()
        self.look = look
        self.think = think

    def forward(
        self, features: Tensor, belief: Belief, shot: Shot, camera: CASSI, basis: Tensor
    ) -> tuple[Tensor, Belief]:
        """Features `(B, F, H, W)` and belief → the same."""
        features, belief = self.look(features, belief, shot, camera, basis)
        return self.think(features), belief


@register("lumen", paper="Prismask", inputs=())
class Lumen(nn.Module):
    """Unrolled stages around the exact camera; any camera, and a mask that may be wrong.

    width: channels of the features at full resolution, a multiple of 8.
    stages: how often it looks at the snapshot.
    levels: resolutions of each stage's U; blocks: residual blocks on each of them.
    cosines: K, how many cosines over the spectrum bands are made of; a multiple of 8.
    gate: side of a window at the lowest level whose content gates it (odd); 0: none.
    context: whether the lowest level knows its mean over the whole frame.
    mask_steps: whether the mask is estimated too.
    shared: one set of weights for all stages.
    widest: most channels of a level of the U; 0: twice as many on each.
    """

    works_from_snapshot = True
    compiled_alone = (Stage,)
    io_layers = ("head.*", "tail.*", "*.look.*", "*.around.*")

    def __init__(
        self,
        width: int = 64,
        stages: int = 8,
        levels: int = 2,
        blocks: int = 1,
        cosines: int = 32,
        gate: int = 0,
        context: bool = False,
        mask_steps: bool = True,
        shared: bool = False,
        widest: int = 0,
    ) -> None:
        super().__init__()
        _check(width, stages, levels, blocks, cosines, gate)
        self.stage_count, self.cosines = stages, cosines
        # Bands twice, and the mask, the noise, the mask's spread, whether that is known.
        self.head = BandsIn(width, cosines, stacks=2, more=4)
        self.stages = nn.ModuleList(
            Stage(
                Look(width, cosines, mask_steps),
                SmallU(width, levels, blocks, gate, context, widest),
            )
            for _ in range(1 if shared else stages)
        )
        self.tail = BandsOut(width, cosines, 2 if mask_steps else 0)
        self.caution = nn.Parameter(torch.zeros(()))  # α of the last step
        if mask_steps:
            self.bound = nn.Parameter(torch.tensor(-1.0))  # b where no spread is told

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask (B|1, 1|C, H, W)` → cube `(B, C, H, W)`."""
        return self.estimates(measurement, mask, camera, noise, mask_std).cubes[-1]

    def estimates(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Estimates:
        """What every look and the end say (`models.network.Estimates`)."""
        mask = camera.check_measurement_and_mask(measurement, mask)
        dtype = torch.promote_types(
            torch.promote_types(measurement.dtype, mask.dtype), torch.float32
        )
        measurement, mask = measurement.to(dtype), mask.to(dtype)
        measurement = measurement.expand(max(len(measurement), len(mask)), -1, -1)
        if noise is None:
            noise = estimate_noise(measurement, mask, camera)
        spread = torch.full_like(mask[:, :1], UNKNOWN) if mask_std is None else mask_std
        spread = as_mask_batch(spread).to(dtype)
        basis = cosine_basis(camera.bands, self.cosines, measurement)
        first = camera.spread(measurement, mask, floor=DIM)
        shot = self._shot(measurement, mask, camera, noise.to(dtype), spread, first)
        planes = self._planes(shot, camera, noise.to(dtype), spread)
        back = camera.adjoint(measurement * network_scale(camera.bands), mask)
        features = self.head([back, first], planes, basis)
        belief, cubes, masks = Belief(first, torch.zeros_like(first[:, :1])), [], []
        for number in range(self.stage_count):
            stage = self.stages[number % len(self.stages)]
            features, belief = stage(features, belief, shot, camera, basis)
            cubes.append(belief.cube)
            masks.append(belief.mask(shot, camera))
        cube, mask, left = self._last(features, belief, shot, camera, basis, spread)
        variance = self._variance(cube, camera, noise.to(dtype), left)
        cubes.append(self._project(cube, shot.measurement, mask, camera, variance))
        if not self.tail.more:
            return Estimates(tuple(cubes), (), None)
        return Estimates(tuple(cubes), (*masks, mask), left)

    def _shot(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Tensor,
        spread: Tensor,
        first: Tensor,
    ) -> Shot:
        bound = spread.new_zeros(1, 1, 1, 1)
        if self.tail.more and camera.design == "single":
            told = REACH * spread.mean(1, keepdim=True)
            bound = torch.where(told >= 0, told, F.softplus(self.bound.float()).to(told))
        variance = self._variance(first, camera, noise, spread.clamp_min(0))
        return Shot(measurement, mask, bound, camera.gram_bound(mask), variance)

    @staticmethod
    def _variance(cube: Tensor, camera: CASSI, noise: Tensor, spread: Tensor) -> Tensor:
        """v `(B, H, L)`: what noise, and a mask wrong by `spread`, do to a cube's measurement."""
        # The measurement of x² through a mask of variances; neighbours may err independently.
        return noise.square()[:, None, None] + camera.forward(cube.square(), spread.square())

    @staticmethod
    def _planes(shot: Shot, camera: CASSI, noise: Tensor, spread: Tensor) -> list[Tensor]:
        """The mask, the noise, the mask's spread and whether it is known, `(B, 1, H, W)` each."""
        code = camera.code(shot.mask).mean(1, keepdim=True)
        shape = (len(shot.measurement), 1, *code.shape[-2:])
        level = NOISE_GAIN * network_scale(camera.bands) * noise[:, None, None, None]
        told = camera.code(STD_GAIN * spread.clamp_min(0)).mean(1, keepdim=True)
        known = camera.code((spread >= 0).to(spread)).mean(1, keepdim=True)
        return [plane.expand(shape) for plane in (code, level, told, known)]

    def _last(
        self,
        features: Tensor,
        belief: Belief,
        shot: Shot,
        camera: CASSI,
        basis: Tensor,
        spread: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The last cube before the projection, its mask, and how far that may still be wrong."""
        bands, planes = self.tail(features, basis)
        cube = belief.cube + bands.to(belief.cube.dtype)
        if not self.tail.more:
            return cube, shot.mask, spread.clamp_min(0)
        planes = planes.to(cube.dtype)
        mask = Belief(cube, belief.moved + planes[:, :1]).mask(shot, camera)
        if camera.design == "dual":
            return cube, mask, spread.clamp_min(0)
        # Where nobody said how wrong the mask is, the features do; at first: hardly.
        felt = F.softplus(planes[:, 1:] - 4)
        return cube, mask, torch.where(spread >= 0, spread, felt)

    def _project(
        self, cube: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI, variance: Tensor
    ) -> Tensor:
        """x + Aᵀ u with (A Aᵀ + ρ) u = y − A x: at once where A Aᵀ is diagonal, else in steps."""
        rho = CAUTION * F.softplus(self.caution.float()) * variance
        divisor = (camera.gram_bound(mask) + rho).clamp_min(DARK)
        left = measurement - camera.forward(cube, mask)
        solved = left / divisor
        for _ in range(0 if camera.is_exactly_diagonal else SOLVER_STEPS - 1):
            again = camera.forward(camera.adjoint(solved, mask), mask) + rho * solved
            solved = solved + (left - again) / divisor
        return cube + camera.adjoint(solved, mask)


def _check(width: int, stages: int, levels: int, blocks: int, cosines: int, gate: int) -> None:
    for name, value in (("width", width), ("cosines", cosines)):
        if value < ALIGNMENT or value % ALIGNMENT:
            raise ConfigError(f"lumen's {name} is {value}; it is a multiple of {ALIGNMENT}.")
    if min(stages, levels, blocks) < 1:
        raise ConfigError("lumen needs at least one stage, one level and one block.")
    if gate < 0 or (gate and not gate % 2):
        raise ConfigError(f"lumen's gate is {gate}; its window has an odd side, or 0 for none.")
