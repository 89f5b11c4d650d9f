"""Plug-and-play: any denoiser as the prior, after Venkatakrishnan et al. (2013).

A proximal method alternates between explaining the measurement and a step of its prior that looks
like denoising; plug-and-play puts a denoiser D in its place. With Φ = diag(A Aᵀ) and residual
r = y − A x there are two schemes. `gap` (as in `gap_tv`) accumulates the residual b,

    b ← keep (b + r),          x ← D(x + Aᵀ Φ⁻¹ (b + keep r), σ),          keep = Φ / (Φ + κ)

and `admm` the difference of its two estimates x and z,

    x ← (z − u) + Aᵀ (Φ + κ)⁻¹ (y − A (z − u)),          z ← D(x + u, σ),          u ← u + x − z.

κ = (noise / last σ)² · mean(throughput²) says how much the measurement is believed: it is 0
without noise. σ falls from one iteration to the next, in units of the scene's brightness
rms(y) / rms(throughput). There is no objective: a denoiser need not be the gradient of anything.

A denoiser made for noise is no match for the mask's pattern, which is not noise: on validation
scenes `block-dct` ends 2 dB below GAP-TV if started from the bare snapshot, and 1 dB above it if
started from GAP-TV's cube. So that is where it starts.

Denoisers are functions `(cube, sigma) → cube`. Any callable of that form will do, a trained
`torch.nn.Module` among them (put it in eval mode and on the measurement's device first). Two need
no training:

    tv          total variation, bands sharing their edges
    block-dct   3-D cosine transform of small blocks over the whole spectrum; coefficients below a
                multiple of sigma are set to zero; blocks in several positions are averaged
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, choose
from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.gap_tv import (
    GapTv,
    brightness_of,
    denoise_tv,
    divisor_of,
    require_noise,
    stated_noise,
)
from prismask.solvers.wavelets import cosine_matrix

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""`denoise(cube (B, C, H, W), sigma (B,)) → cube`; sigma is the noise's standard deviation."""

TV_WEIGHT = 1.0
"""TV weight for noise of standard deviation 1."""
THRESHOLD = 2.7
"""Coefficients below this many sigma are taken for noise."""


@torch.no_grad()
def denoise_by_tv(cube: Tensor, sigma: float | Tensor) -> Tensor:
    """`cube (B, C, H, W)` with its total variation lowered, for noise of `sigma`, one or `(B,)`."""
    return denoise_tv(cube, TV_WEIGHT * sigma, 20, coupling="joint")


@torch.no_grad()
def denoise_by_block_dct(
    cube: Tensor, sigma: float | Tensor, block: int = 8, step: int = 4
) -> Tensor:
    """`cube (B, C, H, W)` without the small coefficients of its blocks.

    sigma: one number, or one per sample `(B,)`. step: between positions of the blocks' grid.
    """
    check_shape(cube, ("B", "C", "H", "W"), "cube")
    spectrum, space = (cosine_matrix(size, like=cube) for size in (cube.shape[1], block))
    least = THRESHOLD * torch.as_tensor(sigma, dtype=cube.dtype, device=cube.device)
    least = least.reshape(-1, 1, 1, 1, 1, 1)
    height, width = cube.shape[-2:]
    # The transform over the bands is the same in every position, so it is done once.
    mixed = torch.einsum("kc,bchw->bkhw", spectrum, cube)
    total, weights = torch.zeros_like(mixed), torch.zeros_like(mixed[:, :1])
    for down, right in itertools.product(range(0, block, step), repeat=2):
        below, beyond = -(height + down) % block, -(width + right) % block
        padded = F.pad(mixed, (right, beyond, down, below), mode="replicate")
        cleaned, weight = _cleaned(padded, space, least)
        inside = (..., slice(down, down + height), slice(right, right + width))
        total += cleaned[inside]
        weights += weight[inside]
    return torch.einsum("kc,bkhw->bchw", spectrum, total / weights)


def _cleaned(mixed: Tensor, space: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted cleaned blocks side by side, and the weights `(B, 1, H, W)`."""
    batch, bands, height, width = mixed.shape
    side = len(space)
    # (B, C, rows, side, columns, side) → coefficients of every block in the two `side` axes
    blocks = mixed.reshape(batch, bands, height // side, side, width // side, side)
    coefficients = torch.einsum("yi,bcrisj,xj->bcrysx", space, blocks, space)
    keep = coefficients.abs() > least
    # The mean of a block says how bright it is; taking it for noise would darken the scene.
    keep[:, 0, :, 0, :, 0] = True
    # Blocks that need few coefficients are the believable ones.
    weight = 1 / keep.sum((1, 3, 5), keepdim=True).to(mixed.dtype)
    cleaned = torch.einsum("yi,bcrysx,xj->bcrisj", space, coefficients * keep * weight, space)
    weight = weight.expand(batch, 1, height // side, side, width // side, side)
    return cleaned.reshape(mixed.shape), weight.reshape(batch, 1, height, width)


DENOISERS: dict[str, Denoiser] = {"tv": denoise_by_tv, "block-dct": denoise_by_block_dct}
"""Denoisers by name."""


def find_denoiser(denoiser: str | Denoiser) -> Denoiser:
    """The denoiser of that name, or the callable itself."""
    if isinstance(denoiser, str):
        return DENOISERS[choose(denoiser, DENOISERS, "denoiser")]
    if not callable(denoiser):
        raise ConfigError(
            f"denoiser is {denoiser!r}; give one of {', '.join(DENOISERS)}, or a function "
            "(cube, sigma) → cube."
        )
    return denoiser


def apply_denoiser(denoise: Denoiser, cube: Tensor, sigma: Tensor) -> Tensor:
    """`denoise(cube, sigma)`, checked: functions of others may give back anything."""
    came = denoise(cube, sigma)
    if came.shape != cube.shape:
        raise ShapeError(
            f"the denoiser turned {tuple(cube.shape)} into {tuple(came.shape)}; it must keep the "
            "cube's shape (B, C, H, W)."
        )
    return came.to(cube.dtype)


Scheme = Literal["gap", "admm"]
SCHEMES: tuple[Scheme, ...] = ("gap", "admm")
Start = Literal["gap-tv", "spread"]
STARTS: tuple[Start, ...] = ("gap-tv", "spread")


@dataclass(frozen=True)
class Pnp(IterativeSolver):
    """Options of plug-and-play, and the solver: `Pnp()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    iterations: int = 80
    """The most iterations to do; σ falls over this number."""
    denoiser: str | Denoiser = "block-dct"
    """`tv`, `block-dct`, or a function `(cube (B, C, H, W), sigma (B,)) → cube`."""
    scheme: Scheme = "gap"
    """Which iteration the denoiser is plugged into."""
    start: Start = "gap-tv"
    """Where to begin: `gap-tv`, solved first, or `spread`, the snapshot without its mask."""
    sigma: float = 0.5
    """σ of the first iteration, in units of the scene's brightness."""
    last_sigma: float = 0.2
    """σ of the last iteration."""
    noise: float | None = None
    """Standard deviation of the measurement's noise as a fraction of its rms value; 0: exact.

    None: estimated from the measurement, but at least 0.01.
    """
    nonnegative: bool = True
    """Whether negative light is set to zero after each iteration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self.scheme, SCHEMES, "scheme")
        choose(self.start, STARTS, "start")
        find_denoiser(self.denoiser)
        sigmas = (self.sigma, self.last_sigma)
        require(min(sigmas) > 0, f"sigma goes from {sigmas[0]} to {sigmas[1]}; both must be > 0.")
        require_noise(self.noise)

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration."""
        divisor = divisor_of(camera.gram_bound(mask))
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        brightness = brightness_of(measurement, throughput_power)
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        kappa = ((noise / self.last_sigma).square() * throughput_power)[:, None, None]
        if self.start == "gap-tv":
            cube = GapTv(noise=self.noise, nonnegative=self.nonnegative)(measurement, mask, camera)
        else:
            cube = camera.spread(measurement, mask).contiguous()
        problem = _Problem(measurement, mask, camera, divisor, kappa)
        sigmas = [s * brightness for s in geometric(self.sigma, self.last_sigma, self.iterations)]
        return (self._gap if self.scheme == "gap" else self._admm)(problem, cube, sigmas)

    def _gap(self, problem: _Problem, cube: Tensor, sigmas: list[Tensor]) -> Iterator[Estimate]:
        divisor = problem.divisor
        keep = divisor / (divisor + problem.kappa)
        residual = problem.residual(cube)
        pull = torch.zeros_like(residual)
        for sigma in sigmas:
            # b ← keep (b + r),   x ← D(x + Aᵀ Φ⁻¹ (b + keep r))
            pull = keep * (pull + residual)
            cube = self._denoised(cube + problem.back((pull + keep * residual) / divisor), sigma)
            residual = problem.residual(cube)
            yield Estimate(cube, residual)

    def _admm(self, problem: _Problem, cube: Tensor, sigmas: list[Tensor]) -> Iterator[Estimate]:
        divisor = problem.divisor + problem.kappa
        gap = torch.zeros_like(cube)
        for sigma in sigmas:
            # x ← (z − u) + Aᵀ (Φ + κ)⁻¹ (y − A (z − u))
            before = cube - gap
            explained = before + problem.back(problem.residual(before) / divisor)
            # z ← D(x + u),   u ← u + x − z
            cube = self._denoised(explained + gap, sigma)
            gap = gap + explained - cube
            yield Estimate(cube, problem.residual(cube))

    def _denoised(self, cube: Tensor, sigma: Tensor) -> Tensor:
        came = apply_denoiser(find_denoiser(self.denoiser), cube, sigma)
        return came.clamp_min(0) if self.nonnegative else came


@dataclass(frozen=True, eq=False)
class _Problem:
    """A measurement with what explaining it needs."""

    measurement: Tensor
    mask: Tensor
    camera: CASSI
    divisor: Tensor
    """Φ, `(B|1, H, L)`."""
    kappa: Tensor
    """κ, `(B|1, 1, 1)`."""

    def residual(self, cube: Tensor) -> Tensor:
        return self.measurement - self.camera.forward(cube, self.mask)

    def back(self, values: Tensor) -> Tensor:
        return self.camera.adjoint(values, self.mask)
