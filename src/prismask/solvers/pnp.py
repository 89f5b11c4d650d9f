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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.denoisers import Denoiser, apply_denoiser, find_denoiser
from prismask.solvers.gap_tv import (
    GapTv,
    brightness_of,
    divisor_of,
    require_noise,
    stated_noise,
)

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
            cube = GapTv(noise=self.noise)(measurement, mask, camera)
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
