"""DeSCI: rank minimisation of groups of similar patches (Liu, Yuan, Suo, Brady & Dai, 2019).

Patches that look alike have few different spectra among them: written as a matrix, one row a
pixel of the group and one column a band, a group is of low rank, and what the wrong bands have
left in it is not. Generalised alternating projection moves the cube towards the measurement,
with the residual r = y − A x and what has accumulated of it,

    b ← keep · (b + r),      x ← denoise(x + Aᵀ Φ⁻¹ (b + keep · r)),      Φ = diag(A Aᵀ),

as GAP-TV does, whose result is the start; here the denoiser is weighted nuclear norm minimisation
of every group and averaging where patches overlap.

The original puts one row a patch, so that similar patches are what is low-rank. On the one crop
where both were tried (of the validation scene flowers) one row a pixel gained three times as much
over GAP-TV, and its Gram matrix is as small as the number of bands.

The level σ of the noise in a pixel's spectrum falls geometrically. Fitting noise of variance σ_y²
in y exactly would mean keeping it: with Gaussian noise in y and in x

    keep = Φ / (Φ + κ),          κ = σ_y² / σ².

Levels count in units of a spectrum's length, √C times the scene's brightness
rms(y) / rms(throughput), and the noise σ_y as a fraction of rms(y); in these units
κ = noise² · mean(throughput²) / (C · level²).

Groups are found by block matching, changed together and put back by averaging. A patch is a square
of pixels with all bands. Reference patches stand on a regular grid; each forms a group with those
patches of its neighbourhood that look most like it. A patch is named by its corner, the position
`row · W + column` of its first pixel.

What is changed in a group is its rank: singular values are shrunk, the proximal steps of rank
minimisation, batched over matrices.

For X = U diag(s) Vᵀ every step here is U diag(f(s)) Vᵀ with a function f ≤ s of the singular
values. U is never needed: with the Gram matrix Xᵀ X = V diag(s²) Vᵀ it is

    X · V diag(f(s) / s) Vᵀ,

two products and the eigenvectors of a small symmetric matrix. Thousands of those are found at
once, on a GPU too, where singular values of as many slim matrices would take far longer. Singular
values below about 3·10⁻⁴ of the largest are lost in float32, but those are the ones that go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.gap_tv import (
    GapTv,
    brightness_of,
    divisor_of,
    require_noise,
    stated_noise,
)

GUIDE_PLANES = 7
"""Into how many planes of neighbouring bands a cube is averaged for block matching."""


@dataclass(frozen=True)
class DeSci(IterativeSolver):
    """Options of DeSCI, and the solver itself: `DeSci()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    iterations: int = 40
    """The most iterations to do after the start; levels are laid out over this number."""
    start_iterations: int = 60
    """Iterations of GAP-TV that make the start."""
    level: float = 0.05
    """Noise level of the first iteration, as a fraction of a spectrum's length."""
    last_level: float = 0.02
    """Noise level of the last iteration; in between it falls geometrically.

    It is that of the artefacts. Noise in the measurement needs no other one: κ takes care of it.
    """
    strength: float = 1.0
    """How much is taken from a singular value, against what noise of this level adds to it."""
    patch: int = 6
    """Side of a patch in pixels."""
    stride: int = 4
    """Distance of reference patches in pixels."""
    group: int = 24
    """Similar patches in a group."""
    radius: int = 10
    """How far similar patches are looked for, in pixels along either axis."""
    match_every: int = 5
    """Iterations for which a matching is used: similar patches hardly change."""
    noise: float | None = None
    """Standard deviation of the measurement's noise as a fraction of its rms value; 0: exact.

    None: estimated from the measurement, but at least 0.01.
    """
    nonnegative: bool = True
    """Whether negative light is set to zero after each iteration."""
    memory_mib: float | None = None
    """What the groups held at once may take; None: 2048 MiB on a GPU, 256 elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start_iterations", "match_every"):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}; at least 1 is needed.")
        ends = (self.level, self.last_level)
        require(min(ends) > 0, f"levels are {ends[0]} to {ends[1]}; both must be > 0.")
        require(self.strength >= 0, f"strength is {self.strength}; it cannot be negative.")
        memory = self.memory_mib
        require(memory is None or memory > 0, f"memory_mib is {memory}; give a positive number.")
        require_noise(self.noise)
        self._matching()

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration."""
        divisor = divisor_of(camera.gram_bound(mask))
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        length = math.sqrt(camera.bands) * brightness_of(measurement, throughput_power)
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        cube = self._start(measurement, mask, camera)
        matching = self._matching().fitted(cube.shape[-2], cube.shape[-1])
        tile = self._tile(matching, cube, chosen)
        pull = torch.zeros_like(measurement)
        residual = measurement - camera.forward(cube, mask)
        corners = None
        for done, level in enumerate(geometric(self.level, self.last_level, self.iterations)):
            kappa = noise.square() * throughput_power / (camera.bands * level**2)
            keep = divisor / (divisor + kappa[:, None, None])
            residual = keep * residual
            pull = keep * pull + residual
            cube = cube + camera.adjoint((pull + residual) / divisor, mask)
            if corners is None or done % self.match_every == 0:
                corners = match_patches(guide_of(cube), matching)
            deviation = (level * length).expand(len(cube))
            cube = self._denoise(cube, corners, matching.patch, deviation, tile)
            if self.nonnegative:
                cube.clamp_min_(0)
            residual = measurement - camera.forward(cube, mask)
            yield Estimate(cube, residual)

    def _denoise(
        self, cube: Tensor, corners: Tensor, patch: int, deviation: Tensor, tile: int
    ) -> Tensor:
        def shrink(groups: Tensor, samples: Tensor) -> Tensor:
            # (T, K, P², C) → one row a pixel, one column a band
            matrices = groups.flatten(1, 2)
            return minimise_weighted_nuclear_norm(matrices, deviation[samples], self.strength)

        return change_groups(cube, corners, patch, shrink, tile)

    def _start(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        solver = GapTv(self.start_iterations, noise=self.noise, nonnegative=self.nonnegative)
        return solver(measurement, mask, camera)

    def _matching(self) -> Matching:
        return Matching(self.patch, self.stride, self.group, self.radius)

    def _tile(self, matching: Matching, cube: Tensor, chosen: Chosen) -> int:
        memory = self.memory_mib
        if memory is None:
            memory = 2048.0 if cube.is_cuda else 256.0
            chosen.note("memory_mib", memory)
        return tile_for(memory, matching, cube.shape[1], cube.element_size())


def guide_of(cube: Tensor) -> Tensor:
    """`cube (B, C, H, W)` averaged over neighbouring bands to `(B, ≤ GUIDE_PLANES, H, W)`."""
    spectra = cube.flatten(2).mT
    planes = F.adaptive_avg_pool1d(spectra, min(GUIDE_PLANES, cube.shape[1]))
    return planes.mT.reshape(len(cube), -1, *cube.shape[-2:])


Shrinkage = Callable[[Tensor], Tensor]
"""Singular values `(…, n)`, in any order, → what becomes of them."""


@torch.no_grad()
def shrink_singular_values(matrices: Tensor, shrinkage: Shrinkage) -> Tensor:
    """U diag(f(s)) Vᵀ for every one of `matrices (…, rows, columns)`."""
    rows, columns = matrices.shape[-2:]
    if rows < columns:
        return shrink_singular_values(matrices.mT, shrinkage).mT
    squares, vectors = torch.linalg.eigh(matrices.mT @ matrices)
    values = squares.clamp_min(0).sqrt()
    # A singular value of 0 stays 0 whatever it is multiplied by.
    factors = shrinkage(values) / values.clamp_min(torch.finfo(values.dtype).tiny)
    # X · (V diag(f(s) / s) Vᵀ)
    shrunk: Tensor = matrices @ ((vectors * factors.unsqueeze(-2)) @ vectors.mT)
    return shrunk


def minimise_weighted_nuclear_norm(
    matrices: Tensor, noise: float | Tensor, strength: float = 1.0
) -> Tensor:
    """One weighted step: the weaker a singular value, the more is taken from it (Gu et al., 2014).

    noise: standard deviation σ of the entries' noise, one number or one a matrix `(…)`.
    """
    sigma = torch.as_tensor(noise, dtype=matrices.dtype, device=matrices.device)
    longer = max(matrices.shape[-2:])
    return shrink_singular_values(
        matrices, lambda s: weighted_shrinkage(s, longer * sigma.square(), strength)
    )


def weighted_shrinkage(values: Tensor, noise_power: Tensor, strength: float) -> Tensor:
    """max(s − w, 0) of singular values `(…, n)` with their own weights w.

    noise_power: P `(…)`, what noise adds to each squared singular value: σ² times the longer side
    of the matrix. The original writes √n · σ² for the weight's numerator; with P the same strength
    fits groups of every size.
    """
    power = noise_power.unsqueeze(-1)
    # ŝ = √max(s² − P, 0),   w = strength · P / (ŝ + ε)
    clean = (values.square() - power).clamp_min(0).sqrt()
    weights = (
        strength
        * power
        / (clean + _EPSILON * power.sqrt()).clamp_min(torch.finfo(values.dtype).tiny)
    )
    return (values - weights).clamp_min(0)


_EPSILON = 1e-3
"""ε in units of √P: bounds the weight of a singular value in which there is nothing but noise."""


Change = Callable[[Tensor, Tensor], Tensor]
"""`change(groups (T, K, P², C), samples (T,)) → groups`: samples are their places in the batch."""


@dataclass(frozen=True)
class Matching:
    """How groups are formed."""

    patch: int = 6
    """Side P of a patch in pixels."""
    stride: int = 4
    """Distance of reference patches; at most the patch, so that every pixel belongs to one."""
    group: int = 24
    """Patches K in a group, the reference among them."""
    radius: int = 10
    """How far from the reference, along either axis, similar patches are looked for."""

    def __post_init__(self) -> None:
        for name in ("patch", "stride", "group"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; at least 1 is needed.")
        if self.stride > self.patch:
            raise ConfigError(
                f"stride is {self.stride} and patch {self.patch}: pixels between the patches would "
                "belong to none. Use a stride of at most the patch."
            )
        if self.radius < 0:
            raise ConfigError(f"radius is {self.radius}; it cannot be negative.")

    def fitted(self, height: int, width: int) -> Matching:
        """The same for an image of this size: no patch larger, no group without its members."""
        patch = min(self.patch, height, width)
        # The corner of the image has the fewest neighbours.
        found = [min(size - patch, self.radius) + 1 for size in (height, width)]
        return Matching(
            patch, min(self.stride, patch), min(self.group, math.prod(found)), self.radius
        )


def reference_positions(size: int, patch: int, stride: int, device: torch.device) -> Tensor:
    """Where reference patches start along one axis; the last one ends with the image."""
    last = size - patch
    count = math.ceil(last / stride) + 1
    return (torch.arange(count, device=device) * stride).clamp_max(last)


@torch.no_grad()
def match_patches(guide: Tensor, matching: Matching) -> Tensor:
    """Corners `(B, R, K)` of the patches most like each reference, judged on `guide (B, G, H, W)`.

    The distance is the sum of squared differences. It is computed for one displacement of the
    whole image at a time, so memory holds `(2 · radius + 1)²` numbers a reference patch.
    """
    check_shape(guide, ("B", "G", "H", "W"), "guide")
    height, width = guide.shape[-2:]
    if matching != matching.fitted(height, width):
        raise ShapeError(
            f"the image of {size_text((height, width))} is too small for {matching}; "
            "use matching.fitted(height, width)."
        )
    patch, reach = matching.patch, matching.radius
    rows, columns = (
        reference_positions(size, patch, matching.stride, guide.device) for size in (height, width)
    )
    within = torch.arange(patch, device=guide.device)
    row_pixels, column_pixels = rows[:, None] + within, columns[:, None] + within
    # What reaches beyond the image is infinitely far away and never chosen.
    surrounded = F.pad(guide, (reach,) * 4, value=math.inf)
    sides = range(2 * reach + 1)
    distances = guide.new_empty(len(guide), len(rows) * len(columns), len(sides) ** 2)
    for place, (down, right) in enumerate((a, b) for a in sides for b in sides):
        moved = surrounded[..., down : down + height, right : right + width]
        # d(ref, ref + shift) = Σ over the patch of (x[q + shift] − x[q])²
        squares = (moved - guide).square_().sum(1)
        sums = squares[:, row_pixels].sum(2)[..., column_pixels].sum(-1)
        distances[..., place] = sums.flatten(1)
    # The reference itself comes first even where all is alike: so no pixel is without a patch.
    distances[..., len(sides) ** 2 // 2] = -1
    nearest = distances.topk(matching.group, largest=False).indices
    shift = (nearest // len(sides) - reach) * width + nearest % len(sides) - reach
    return (rows[:, None] * width + columns).flatten()[None, :, None] + shift


@torch.no_grad()
def change_groups(
    cube: Tensor, corners: Tensor, patch: int, change: Change, tile: int | None = None
) -> Tensor:
    """`cube (B, C, H, W)` with all its groups changed, averaged where patches overlap.

    corners: `(B, R, K)` as `match_patches` gives them. Every pixel must belong to a patch.
    tile: how many groups are held in memory at once; None: all.
    """
    check_shape(cube, ("B", "C", "H", "W"), "cube")
    batch, bands, height, width = cube.shape
    check_shape(corners, (batch, "R", "K"), "corners")
    device = cube.device
    # One row a pixel, its bands side by side: a patch is gathered in whole rows.
    pixels = cube.permute(0, 2, 3, 1).reshape(-1, bands)
    step = torch.arange(patch, device=device)
    square = (step[:, None] * width + step).flatten()
    samples = torch.arange(batch, device=device).repeat_interleave(corners.shape[1])
    starts = corners.flatten(0, 1) + (samples * (height * width))[:, None]
    sums = torch.zeros_like(pixels)
    counts = pixels.new_zeros(len(pixels))
    size = len(starts) if tile is None else max(1, tile)
    tiles = zip(torch.split(starts, size), torch.split(samples, size), strict=True)
    for corner, sample in tiles:
        members = (corner[..., None] + square).flatten()
        groups = pixels.index_select(0, members).view(*corner.shape, len(square), bands)
        changed = change(groups, sample).reshape(-1, bands)
        # The index is expanded, not repeated: that form has a fast path on every device.
        sums.scatter_add_(0, members[:, None].expand(-1, bands), changed)
        counts.scatter_add_(0, members, counts.new_ones(1).expand(len(members)))
    mean = sums / counts[:, None]
    return mean.view(batch, height, width, bands).permute(0, 3, 1, 2).contiguous()


def tile_for(memory_mib: float, matching: Matching, bands: int, itemsize: int) -> int:
    """How many groups may be held at once so that their copies stay within `memory_mib` MiB."""
    values = matching.group * matching.patch**2 * bands
    # Gathered, changed and one product in between, and 8-byte indices of every pixel.
    bytes_each = _COPIES * values * itemsize + 16 * values / bands
    return max(1, int(memory_mib * 2**20 / bytes_each))


_COPIES = 4
"""How many copies of a group live at the same time, at most."""
