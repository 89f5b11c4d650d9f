"""Lumen: an unrolled network for every camera, given how far its mask may be wrong.

Features h live at the scene's pixels; an estimate x̂ of the cube and an estimate m̂ of the mask are
carried along with them. Each stage looks at the snapshot again and then thinks in a small U:

    x̂ ← x̂ + CONV(h)                                 what the features say of the cube
    m̂ = clamp(m + b ⊙ tanh d, 0, 1),  d ← d + CONV(h)   … and of the mask m that was given
    t = A_m̂ᵀ (A Aᵀ + μ + α v)⁻¹ (y − A_m̂ x̂)            what the snapshot still has to say
    h ← U(h + CONV(t, x̂ + t, …))

v is the variance to be expected of y at each sensor pixel, from the noise and from the stated
spread of the mask; a pixel that is said to be endlessly noisy is not looked at. α and μ are learned
and not negative, so a larger spread never makes a look trust the mask more. b is a few times the
stated spread: a mask that is said to be exact is left as it is.

Bands enter and leave through cosines, so one set of weights serves any band count, and the camera's
own operator serves any dispersion, mask and design. Weights belong to K cosines over the spectrum,
not to bands. For a camera of C bands with centres at s_c = (c + ½) / C of its spectrum the matrix

    E (C, K),    E[c, k] = √(2 / C) · cos(π k s_c)    (√(1 / C) for k = 0; 0 for k ≥ C)

has orthonormal columns for k < C: C ≤ K bands lose nothing, and the same weights serve every C. E
is multiplied into the weights, which are few, rather than into planes, which are many: what is
convolved has the camera's own bands. Both ways are scaled so that a flat spectrum has the same
coefficient whatever C is.

The U has residual blocks at full resolution, at half with twice the channels, and so on; what comes
up is added to what was kept. Dense 3×3 convolutions do nearly all of the work, because they are
what a GPU does best. Any size: frames are padded inside.

A small network for a CPU may be folded: fold² neighbouring pixels, with all their bands, are the
channels of one place of the features, and what is read of those is spread over the pixels again.
Features then have 1 / fold² of the places, so they can be wide where the time goes.

The last step is exact,

    x̂ ← x̂ + A_m̂ᵀ (A_m̂ A_m̂ᵀ + ρ)⁻¹ (y − A_m̂ x̂),   ρ = α v,

with all bands, so that a line too narrow for anything learned is still measured. It uses m̂: where
the mask is said to be exact the two are the same and A x̂ = y follows; where it is not, the mask
as given would impose its own error on the cube.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.inputs import (
    BLIND,
    NOISE_GAIN,
    UNKNOWN,
    Noise,
    Observation,
    network_scale,
)
from prismask.models.layers import ALIGNMENT, conv3x3, conv_then_relu, in_dtype_of
from prismask.models.network import Estimates
from prismask.models.posterior import perturb
from prismask.models.registry import register
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise

DIM = 0.3
"""Least throughput the first estimate divides by: noise at the frame's ends is not blown up."""
DARK = 1e-6
"""Least that the exact projection divides by, as in `CASSI.pseudo_inverse`."""
REACH = 3.0
"""How many stated standard deviations the mask may be moved."""
STD_GAIN = 5.0
"""Makes a mask error of 0.2, which is much, a plane of ones."""
SOLVER_STEPS = 4
"""Steps of the exact projection where A Aᵀ is not diagonal (fractional offsets)."""


class Entry(nn.Module):
    """From the snapshot to the first features and the first estimate."""

    def __init__(self, width: int, cosines: int, fold: int) -> None:
        super().__init__()
        # Bands twice, and the mask, the noise, the mask's spread, whether that is known.
        self.head = BandsIn(width, cosines, stacks=2, more=4, fold=fold)
        self.bound = nn.Parameter(torch.tensor(-1.0))  # b where unknown

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Tensor,
        spread: Tensor,
        basis: Tensor,
    ) -> tuple[Tensor, Belief, Shot]:
        """`measurement (B, H, L)`, `noise (B|1,)` or of each pixel, `spread` like the mask,
        negative where unknown → features `(B, F, H / fold, W / fold)`, and what stages start
        from."""
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
        if camera.design == "single":
            stated = REACH * spread.mean(1, keepdim=True)
            bound = torch.where(stated >= 0, stated, F.softplus(self.bound.float()).to(stated))
        variance = expected_variance(first, camera, noise, spread.clamp_min(0))
        return Shot(measurement, mask, bound, camera.gram_bound(mask), variance)


def _planes(shot: Shot, camera: CASSI, noise: Tensor, spread: Tensor) -> list[Tensor]:
    """The mask, the noise, the mask's spread and whether it is known, `(B, 1, H, W)` each."""
    code = camera.code(shot.mask).mean(1, keepdim=True)
    shape = (len(shot.measurement), 1, *code.shape[-2:])
    # One number of the snapshot: pixels that say nothing are few.
    usual = noise if noise.ndim == 1 else noise.flatten(1).median(1).values
    level = NOISE_GAIN * network_scale(camera.bands) * usual[:, None, None, None]
    stated = camera.code(STD_GAIN * spread.clamp_min(0)).mean(1, keepdim=True)
    known = camera.code((spread >= 0).to(spread)).mean(1, keepdim=True)
    return [plane.expand(shape) for plane in (code, level, stated, known)]


class Stage(nn.Module):
    """A look at the snapshot, then a small U."""

    def __init__(self, look: Look, think: SmallU) -> None:
        super().__init__()
        self.look = look
        self.think = think

    def forward(
        self, features: Tensor, belief: Belief, shot: Shot, camera: CASSI, basis: Tensor
    ) -> tuple[Tensor, Belief]:
        """Features `(B, F, H / fold, W / fold)` and belief → the same."""
        features, belief = self.look(features, belief, shot, camera, basis)
        return self.think(features), belief


class Exit(nn.Module):
    """The last estimate, and the exact projection."""

    def __init__(self, width: int, cosines: int, fold: int) -> None:
        super().__init__()
        self.tail = BandsOut(width, cosines, 2, fold)
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
        bands, planes = self.tail(features, basis, belief.cube)
        cube = belief.cube + bands.to(belief.cube.dtype)
        mask, left = shot.mask, spread.clamp_min(0)
        if camera.design == "single":
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

    width: channels of the features, a multiple of 8.
    stages: how often it looks at the snapshot.
    levels: resolutions of each stage's U; blocks: residual blocks on each of them.
    cosines: K, how many cosines over the spectrum bands are made of; a multiple of 8.
    widest: most channels of a level of the U; 0: twice as many on each.
    encode: whether the U has blocks on its way down, too.
    fold: side of the square of pixels that share a place of the features.
    look: side of the kernels through which a stage looks at the snapshot (odd). Folded features
        know their neighbours, so 1 costs a ninth and says nearly as much.
    lowest: residual blocks at the lowest resolution; 0: as many as on the others.
    """

    works_from_snapshot = True
    compiled_alone = (Entry, Stage, Exit)
    io_layers = ("entry.*", "exit.*", "*.look.*")

    def __init__(
        self,
        width: int = 64,
        stages: int = 8,
        levels: int = 2,
        blocks: int = 1,
        cosines: int = 32,
        widest: int = 0,
        encode: bool = True,
        fold: int = 1,
        look: int = 3,
        lowest: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("cosines", cosines)):
            if value < ALIGNMENT or value % ALIGNMENT:
                raise ConfigError(f"lumen's {name} is {value}; it is a multiple of {ALIGNMENT}.")
        if min(stages, levels, blocks) < 1:
            raise ConfigError("lumen needs at least one stage, one level and one block.")
        if not 1 <= fold <= MOST_FOLDED:
            raise ConfigError(f"lumen's fold is {fold}; it is 1 (every pixel) to {MOST_FOLDED}.")
        if look < 1 or not look % 2:
            raise ConfigError(f"lumen's look is {look}; a kernel has an odd side: 1, 3, …")
        self.cosines = cosines
        self.entry = Entry(width, cosines, fold)
        self.stages = nn.ModuleList(
            Stage(
                Look(width, cosines, fold, look),
                SmallU(width, levels, blocks, widest, encode, lowest),
            )
            for _ in range(stages)
        )
        self.exit = Exit(width, cosines, fold)

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask (B|1, 1|C, H, W)` → cube `(B, C, H, W)`."""
        seen = Observation(measurement, mask, camera, noise, mask_std)
        return self.estimates(seen).cubes[-1]

    def estimates(self, seen: Observation) -> Estimates:
        """What every look and the end say (`models.network.Estimates`)."""
        known = self._known(seen)
        features, belief, shot = self.entry(*known)
        cubes, masks = [], []
        for stage in self.stages:
            features, belief = stage(features, belief, shot, known.camera, known.basis)
            cubes.append(belief.cube)
            masks.append(belief.mask(shot, known.camera))
        cube, mask, left = self.exit(features, belief, shot, *known.facts)
        return Estimates((*cubes, cube), (*masks, mask), left)

    def before_projection(self, seen: Observation) -> Tensor:
        """What the last look sees (`models.network.SnapshotBackbone`)."""
        known = self._known(seen)
        (features, belief, shot), last = self._until_last(known)
        cube: Tensor = last.look(features, belief, shot, known.camera, known.basis)[1].cube
        return cube

    def redrawn(self, seen: Observation, noises: Iterable[Tensor]) -> Iterator[Tensor]:
        """A cube for each drawn mask (`models.network.SnapshotBackbone`).

        All stages but the last, most of the work, are computed once with the given mask; a drawn
        one meets the last stage and the exact projection.
        """
        known = self._known(seen)
        camera = known.camera
        (features, belief, shot), last = self._until_last(known)
        std = doubt(belief, shot, camera, known.noise, known.spread)
        for noise in noises:
            mask = perturb(shot.mask, std, noise.to(std))
            drawn = shot._replace(mask=mask, gram=camera.gram_bound(mask))
            ends = last(features, belief, drawn, camera, known.basis)
            yield self.exit(*ends, drawn, *known.facts)[0]

    def _until_last(self, known: Known) -> tuple[tuple[Tensor, Belief, Shot], Stage]:
        """What all stages but the last make of a snapshot, and the last one."""
        features, belief, shot = self.entry(*known)
        *before, last = self.stages
        for stage in before:
            features, belief = stage(features, belief, shot, known.camera, known.basis)
        assert isinstance(last, Stage)
        return (features, belief, shot), last

    def _known(self, seen: Observation) -> Known:
        """A snapshot with all its facts, in one precision; what is not known is estimated."""
        measurement, mask, camera, noise, mask_std = seen
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
        return Known(measurement, mask, camera, noise.to(dtype), spread, basis)


MOST_FOLDED = 4
"""Largest side of a folded square: its bands are channels of one convolution."""
CAUTION = 100.0
"""Scale of α: one over the variance that a cube still has in the middle of the network."""


class Shot(NamedTuple):
    """What is known about a snapshot; the same for all stages."""

    measurement: Tensor
    """`(B, H, L)`."""
    mask: Tensor
    """As given, `(B|1, 1|C, H, W)`."""
    bound: Tensor
    """Most by which a stage may move the mask, `(B|1, 1, H, W)`."""
    gram: Tensor
    """A Aᵀ or what bounds it, `(B|1, H, L)`."""
    variance: Tensor
    """v, `(B, H, L)`."""


class Known(NamedTuple):
    """A snapshot with all its facts, as the parts of the network take them."""

    measurement: Tensor
    mask: Tensor
    camera: CASSI
    noise: Tensor
    spread: Tensor
    """How far the mask may be wrong, negative where that is not known."""
    basis: Tensor
    """E `(C, K)`."""

    @property
    def facts(self) -> tuple[CASSI, Tensor, Tensor, Tensor]:
        """What the exit takes besides features, belief and shot."""
        return self.camera, self.noise, self.spread, self.basis


class Belief(NamedTuple):
    """What changes from stage to stage besides the features."""

    cube: Tensor
    """x̂ `(B, C, H, W)`, at least float32."""
    moved: Tensor
    """d `(B, 1, H, W)`; the mask m̂ follows from it."""

    def mask(self, shot: Shot, camera: CASSI) -> Tensor:
        """m̂ `(B, 1|C, H, W)`; as given with a dual disperser, whose mask is no scene plane."""
        if camera.design == "dual":
            return shot.mask
        return (shot.mask + shot.bound * torch.tanh(self.moved)).clamp(0, 1)


class Look(nn.Module):
    """What the snapshot still has to say to the features."""

    def __init__(self, width: int, cosines: int, fold: int, kernel: int = 3) -> None:
        super().__init__()
        self.read = BandsOut(width, cosines, 1, fold, kernel)
        self.tell = BandsIn(width, cosines, stacks=2, more=2, fold=fold, kernel=kernel)
        self.caution = nn.Parameter(torch.zeros(()))  # α
        self.floor = nn.Parameter(torch.tensor(-2.0))  # μ

    def weight(self, shot: Shot) -> Tensor:
        """What the residual is divided by, `(B, H, L)`: never less where more variance is known."""
        caution = CAUTION * F.softplus(self.caution.float())
        return shot.gram + F.softplus(self.floor.float()) + caution * shot.variance

    def forward(
        self, features: Tensor, belief: Belief, shot: Shot, camera: CASSI, basis: Tensor
    ) -> tuple[Tensor, Belief]:
        """Features `(B, F, H / fold, W / fold)` and belief → the same, after one more look."""
        bands, planes = self.read(features, basis, belief.cube)
        # Physics in float32: what is left of the snapshot is far smaller than it.
        cube = belief.cube + bands.to(belief.cube.dtype)
        belief = Belief(cube, belief.moved + planes.to(cube.dtype))
        mask = belief.mask(shot, camera)
        left = (shot.measurement - camera.forward(cube, mask)) / self.weight(shot)
        windows = camera.unshear(left)
        hint = windows * camera.code(mask)
        hints = self._mask_hints(belief, windows, shot)
        return features + self.tell([hint, cube + hint], hints, basis), belief

    @staticmethod
    def _mask_hints(belief: Belief, windows: Tensor, shot: Shot) -> list[Tensor]:
        """How far the mask was moved, and whereto the snapshot would move it, `(B, 1, H, W)`."""
        cube = belief.cube
        whereto = (cube * windows).sum(1, keepdim=True) / (cube.square().mean(1, True) + 0.01)
        return [shot.bound * torch.tanh(belief.moved), whereto]


def expected_variance(cube: Tensor, camera: CASSI, noise: Tensor, spread: Tensor) -> Tensor:
    """v `(B, H, L)`: what noise, and a mask wrong by `spread`, do to a cube's measurement.

    noise: `(B|1,)` or `(B|1, H, L)`; spread `(B|1, 1|C, H, W)`, not negative.
    """
    # The measurement of x² through a mask of variances: neighbouring pixels err independently.
    each = noise if noise.ndim > 1 else noise[:, None, None]
    return each.square() + camera.forward(cube.square(), spread.square())


def doubt(belief: Belief, shot: Shot, camera: CASSI, noise: Tensor, spread: Tensor) -> Tensor:
    """How wrong each pixel of the mask may be, `(B, 1|C, H, W)`: as stated, else as it seems.

    It seems as wrong as pixels that err independently would have to be for the cube to leave what
    it leaves of the snapshot, beyond the noise: one number for all that is seen at once.
    """
    each = noise if noise.ndim > 1 else noise[:, None, None]
    says = (each < BLIND).to(belief.cube)
    left = shot.measurement - camera.forward(belief.cube, belief.mask(shot, camera))
    unexplained = ((left.square() - each.square()) * says).sum((1, 2)).clamp_min(0)
    through = camera.forward(belief.cube.square(), torch.ones_like(shot.mask))
    seems = (unexplained / (through * says).sum((1, 2)).clamp_min(DARK)).sqrt()
    return torch.where(spread >= 0, spread, seems[:, None, None, None])


OUT_START = 1e-3
"""Standard deviation of new weights that read bands: an untrained network adds next to nothing."""
OUT_SCALE = 0.2
"""Factor on what is read. Adam moves all weights alike, and hundreds of them add up in a band: this
keeps the first steps from throwing away a good first estimate."""


def cosine_basis(bands: int, cosines: int, like: Tensor) -> Tensor:
    """E `(C, K)`, made on the device of `like` in at least float32."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    order = torch.arange(cosines, device=like.device, dtype=dtype)
    place = (torch.arange(bands, device=like.device, dtype=dtype) + 0.5) / bands
    norm = torch.where(order == 0, 1 / bands, 2 / bands).sqrt() * (order < bands)
    return torch.cos(math.pi * place[:, None] * order) * norm


class BandsOut(nn.Module):
    """A convolution from features to a camera's bands, and to `more` planes."""

    def __init__(
        self, width: int, cosines: int, more: int = 0, fold: int = 1, kernel: int = 3
    ) -> None:
        super().__init__()
        self.cosines, self.more, self.fold = cosines, more, fold
        made = (cosines + more) * fold**2
        self.conv = nn.Conv2d(width, made, kernel, padding=kernel // 2)
        nn.init.normal_(self.conv.weight, std=OUT_START)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, features: Tensor, basis: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, F, h, w)` and E `(C, K)` → bands `(B, C, H, W)`, planes `(B, more, H, W)`.

        like: anything of that height and width.
        """
        bands, part = basis.shape[0], self.fold**2
        assert self.conv.bias is not None
        matrix = (basis * math.sqrt(bands / self.cosines)).to(self.conv.weight.dtype)
        weight, bias = self.conv.weight, self.conv.bias
        of_bands = weight[: self.cosines * part].reshape(self.cosines, -1)
        spread = (matrix @ of_bands).reshape(bands * part, *weight.shape[1:])
        levels = self._levels(matrix, bias[: self.cosines * part])
        made = (bands + self.more) * part
        spare = -made % ALIGNMENT
        weight = F.pad(_joined([spread, weight[self.cosines * part :]], 0), (0,) * 7 + (spare,))
        bias = F.pad(_joined([levels, bias[self.cosines * part :]], 0), (0, spare))
        out = OUT_SCALE * F.conv2d(features, weight, bias, padding=self.conv.padding)
        if self.fold > 1:
            out = F.pixel_shuffle(out[:, :made], self.fold)[..., : like.shape[-2], : like.shape[-1]]
        return out[:, :bands], out[:, bands : bands + self.more]

    def _levels(self, matrix: Tensor, bias: Tensor) -> Tensor:
        if self.fold == 1:
            return (matrix * bias).sum(1)
        return (matrix @ bias.reshape(self.cosines, -1)).flatten()


class BandsIn(nn.Module):
    """A convolution from `stacks` cubes of bands, and `more` planes, to features."""

    def __init__(
        self,
        width: int,
        cosines: int,
        stacks: int,
        more: int = 0,
        fold: int = 1,
        kernel: int = 3,
    ) -> None:
        super().__init__()
        self.cosines, self.stacks, self.fold = cosines, stacks, fold
        given = (stacks * cosines + more) * fold**2
        self.conv = nn.Conv2d(given, width, kernel, padding=kernel // 2)

    def forward(self, cubes: Sequence[Tensor], planes: Sequence[Tensor], basis: Tensor) -> Tensor:
        """Cubes `(B, C, H, W)`, planes `(B, 1, H, W)` and E `(C, K)` → `(B, F, h, w)`."""
        bands, part = basis.shape[0], self.fold**2
        matrix = (basis * math.sqrt(self.cosines / bands)).to(self.conv.weight.dtype)
        weight = self.conv.weight
        of_bands = self.stacks * self.cosines * part
        shape = (len(weight), self.stacks, self.cosines, part * weight.shape[2], weight.shape[3])
        split = weight[:, :of_bands].reshape(shape)
        spread = torch.einsum("oskyx,ck->oscyx", split, matrix)
        spread = spread.reshape(len(weight), -1, *weight.shape[2:])
        weight = _joined([spread, weight[:, of_bands:]], 1)
        spare = -weight.shape[1] % ALIGNMENT
        given = F.pad(self._folded(torch.cat([*cubes, *planes], dim=1)), (0,) * 5 + (spare,))
        given = in_dtype_of(self.conv, given).contiguous(memory_format=torch.channels_last)
        weight = F.pad(weight, (0,) * 5 + (spare,))
        return F.conv2d(given, weight, self.conv.bias, padding=self.conv.padding)

    def _folded(self, planes: Tensor) -> Tensor:
        """`(B, N, H, W)` → `(B, N · fold², h, w)`; what is missing at the end is zero."""
        if self.fold == 1:
            return planes
        height, width = planes.shape[-2:]
        whole = F.pad(planes, (0, -width % self.fold, 0, -height % self.fold))
        return F.pixel_unshuffle(whole, self.fold)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Parts in one tensor; under autocast a product has another dtype than a stored weight."""
    dtype = parts[0].dtype
    return torch.cat([part.to(dtype) for part in parts], dim=dim)


BLOCK_START = 0.5
"""How large a new block's answer is, about, compared with its input."""


class Block(nn.Module):
    """x + CONV(ReLU(CONV(x))), the second convolution small at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv3x3(channels, channels)
        self.second = conv3x3(channels, channels)
        nn.init.normal_(self.second.weight, std=BLOCK_START / math.sqrt(9 * channels))
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        out: Tensor = x + self.second(conv_then_relu(self.first, x))
        return out


class SmallU(nn.Module):
    """`levels` resolutions with `blocks` blocks each on the way down and up.

    encode: False leaves out the blocks on the way down; what is kept for the way up is then the
        input at every resolution.
    widest: most channels of a level, which has twice those of the level above; 0: no limit.
    lowest: blocks at the lowest level; 0: as many as on the others.
    """

    def __init__(
        self,
        width: int,
        levels: int,
        blocks: int,
        widest: int = 0,
        encode: bool = True,
        lowest: int = 0,
    ) -> None:
        super().__init__()
        most = max(width, widest or width * 2**levels)
        widths = [min(width * 2**level, most) for level in range(levels)]
        steps = list(pairwise(widths))

        def row(channels: int, count: int = blocks) -> list[nn.Module]:
            return [Block(channels) for _ in range(count)]

        self.encoders = nn.ModuleList(
            nn.Sequential(*(row(channels) if encode else ())) for channels in widths[:-1]
        )
        self.downs = nn.ModuleList(nn.Conv2d(w, lower, 2, stride=2) for w, lower in steps)
        self.lowest = nn.Sequential(*row(widths[-1], lowest or blocks))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(lower, w, 2, stride=2) for w, lower in steps)
        self.decoders = nn.ModuleList(nn.Sequential(*row(channels)) for channels in widths[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        height, width = x.shape[-2:]
        side = 2 ** len(self.downs)
        x = F.pad(x, (0, -width % side, 0, -height % side))
        kept = []
        for encode, down in zip(self.encoders, self.downs, strict=True):
            kept.append(encode(x))
            x = down(kept[-1])
        x = self.lowest(x)
        for up, decode in zip(reversed(self.ups), reversed(self.decoders), strict=True):
            x = decode(kept.pop() + up(x))
        return x[..., :height, :width]
