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

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.inputs import NOISE_GAIN, UNKNOWN, Noise, network_scale
from prismask.models.layers.cosines import BandsIn, BandsOut, cosine_basis
from prismask.models.layers.fused import ALIGNMENT
from prismask.models.layers.looks import CAUTION, Belief, Look, Shot, expected_variance
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
SOLVER_STEPS = 4
"""Steps of the exact projection where A Aᵀ is not diagonal (fractional offsets)."""


class Entry(nn.Module):
    """From the snapshot to the first features and the first estimate."""

    def __init__(self, width: int, cosines: int, mask_steps: bool) -> None:
        super().__init__()
        # Bands twice, and the mask, the noise, the mask's spread, whether that is known.
        self.head = BandsIn(width, cosines, stacks=2, more=4)
        self.bound = nn.Parameter(torch.tensor(-1.0)) if mask_steps else None  # b where not told

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Tensor,
        spread: Tensor,
        basis: Tensor,
    ) -> tuple[Tensor, Belief, Shot]:
        """`measurement (B, H, L)`, `noise (B|1,)`, `spread` like the mask, negative where unknown
        → features `(B, F, H, W)`, and what stages start from."""
        first = camera.spread(measurement, mask, floor=DIM)
        if first.is_cuda:
            # All estimates have the layout of the features then: nothing is turned in memory.
            first = first.contiguous(memory_format=torch.channels_last)
        shot = self.shot(measurement, mask, camera, noise, spread, first)
        back = camera.adjoint(measurement * network_scale(camera.bands), mask)
        planes = _planes(shot, camera, noise, spread)
        features = self.head([back, first], planes, basis)
        return features, Belief(first, torch.zeros_like(first[:, :1])), shot

    def shot(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Tensor,
        spread: Tensor,
        first: Tensor,
    ) -> Shot:
        """What all stages share; the variance is that of the first estimate `(B, C, H, W)`."""
        bound = spread.new_zeros(1, 1, 1, 1)
        if self.bound is not None and camera.design == "single":
            told = REACH * spread.mean(1, keepdim=True)
            bound = torch.where(told >= 0, told, F.softplus(self.bound.float()).to(told))
        variance = expected_variance(first, camera, noise, spread.clamp_min(0))
        return Shot(measurement, mask, bound, camera.gram_bound(mask), variance)


def _planes(shot: Shot, camera: CASSI, noise: Tensor, spread: Tensor) -> list[Tensor]:
    """The mask, the noise, the mask's spread and whether it is known, `(B, 1, H, W)` each."""
    code = camera.code(shot.mask).mean(1, keepdim=True)
    shape = (len(shot.measurement), 1, *code.shape[-2:])
    level = NOISE_GAIN * network_scale(camera.bands) * noise[:, None, None, None]
    told = camera.code(STD_GAIN * spread.clamp_min(0)).mean(1, keepdim=True)
    known = camera.code((spread >= 0).to(spread)).mean(1, keepdim=True)
    return [plane.expand(shape) for plane in (code, level, told, known)]


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


class Exit(nn.Module):
    """The last estimate, and the exact projection."""

    def __init__(self, width: int, cosines: int, mask_steps: bool) -> None:
        super().__init__()
        self.tail = BandsOut(width, cosines, 2 if mask_steps else 0)
        self.caution = nn.Parameter(torch.zeros(()))  # α

    def forward(
        self,
        features: Tensor,
        belief: Belief,
        shot: Shot,
        camera: CASSI,
        noise: Tensor,
        spread: Tensor,
        basis: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The cube `(B, C, H, W)`, its mask, and how far that may still be wrong."""
        bands, planes = self.tail(features, basis)
        cube = belief.cube + bands.to(belief.cube.dtype)
        mask, left = shot.mask, spread.clamp_min(0)
        if self.tail.more and camera.design == "single":
            planes = planes.to(cube.dtype)
            mask = Belief(cube, belief.moved + planes[:, :1]).mask(shot, camera)
            # Where nobody said how wrong the mask is, the features do; at first: hardly.
            left = torch.where(spread >= 0, spread, F.softplus(planes[:, 1:] - 4))
        variance = expected_variance(cube, camera, noise, left)
        return self._project(cube, shot.measurement, mask, camera, variance), mask, left

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
    encode: whether the U has blocks on its way down, too.
    """

    works_from_snapshot = True
    compiled_alone = (Entry, Stage, Exit)
    io_layers = ("entry.*", "exit.*", "*.look.*", "*.around.*")

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
        encode: bool = True,
    ) -> None:
        super().__init__()
        _check(width, stages, levels, blocks, cosines, gate)
        self.stage_count, self.cosines = stages, cosines
        self.entry = Entry(width, cosines, mask_steps)
        self.stages = nn.ModuleList(
            Stage(
                Look(width, cosines, mask_steps),
                SmallU(width, levels, blocks, gate, context, widest, encode),
            )
            for _ in range(1 if shared else stages)
        )
        self.exit = Exit(width, cosines, mask_steps)

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
        noise = noise.to(dtype)
        basis = cosine_basis(camera.bands, self.cosines, measurement)
        told = (noise, spread, basis)
        features, belief, shot = self.entry(measurement, mask, camera, *told)
        cubes, masks = [], []
        for number in range(self.stage_count):
            stage = self.stages[number % len(self.stages)]
            features, belief = stage(features, belief, shot, camera, basis)
            cubes.append(belief.cube)
            masks.append(belief.mask(shot, camera))
        cube, mask, left = self.exit(features, belief, shot, camera, *told)
        if not self.exit.tail.more:
            return Estimates((*cubes, cube), (), None)
        return Estimates((*cubes, cube), (*masks, mask), left)


def _check(width: int, stages: int, levels: int, blocks: int, cosines: int, gate: int) -> None:
    for name, value in (("width", width), ("cosines", cosines)):
        if value < ALIGNMENT or value % ALIGNMENT:
            raise ConfigError(f"lumen's {name} is {value}; it is a multiple of {ALIGNMENT}.")
    if min(stages, levels, blocks) < 1:
        raise ConfigError("lumen needs at least one stage, one level and one block.")
    if gate < 0 or (gate and not gate % 2):
        raise ConfigError(f"lumen's gate is {gate}; its window has an odd side, or 0 for none.")
