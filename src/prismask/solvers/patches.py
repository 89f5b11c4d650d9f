"""Groups of similar patches: found by block matching, changed together, put back by averaging.

A patch is a square of pixels with all bands. Reference patches stand on a regular grid; each
forms a group with those patches of its neighbourhood that look most like it. A patch is named by
its corner, the position `row · W + column` of its first pixel.

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
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError, ShapeError

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


def minimise_nuclear_norm(matrices: Tensor, weight: float | Tensor) -> Tensor:
    """argmin_Z ½ ‖Z − X‖² + weight · ‖Z‖_*: all singular values less `weight`, at least 0.

    weight: one number, or one a matrix `(…)`.
    """
    weights = torch.as_tensor(weight, dtype=matrices.dtype, device=matrices.device).unsqueeze(-1)
    return shrink_singular_values(matrices, lambda s: (s - weights).clamp_min(0))


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
    # Gathered, changed and one product in between, beside 8-byte indices of every pixel.
    bytes_each = _COPIES * values * itemsize + 16 * values / bands
    return max(1, int(memory_mib * 2**20 / bytes_each))


_COPIES = 4
"""How many copies of a group live at the same time, at most."""
