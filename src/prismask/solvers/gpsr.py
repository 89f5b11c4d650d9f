"""GPSR: gradient projection for sparse reconstruction with Barzilai-Borwein steps.

After Figueiredo, Nowak & Wright (2007). The cube is x = S θ with few large coefficients θ in a
basis S of wavelets over the image and cosines over the spectrum (`wavelets.CubeBasis`), and

    f(θ) = ½ ‖y − K θ‖² / L + Σ τ |θ|,          K = A S,          L ≥ ‖A‖² = ‖K‖²

is minimised. Written as θ = u − v with u, v ≥ 0 the problem is a smooth one with bounds. With the
slope s = Kᵀ(K θ − y) / L of the data term an iteration is

    δu = [u − a (τ + s)]₊ − u,          δv = [v − a (τ − s)]₊ − v
    λ  = −(δuᵀ(τ + s) + δvᵀ(τ − s)) / c,          c = ‖K (δu − δv)‖² / L
    u, v ← u + λ δu, v + λ δv,          a ← (‖δu‖² + ‖δv‖²) / c.

λ, kept within [0, 1], is the best length of that way, so f never rises (`monotone`); with λ = 1 it
may. What u and v have in common is taken off both, which only lowers f: u = [θ]₊ and v = [−θ]₊.

The averages of the coarsest level pay nothing (every scene has some), cosine k of the spectrum pays
(1 + k)^smoothness times the weight. The weight falls over the first part of the run: few
coefficients are found sooner than many. f falls with it, so its history never rises either.
Weights count in units of the scene's brightness rms(y) / rms(throughput).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.optics.noise import relative_noise
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, require
from prismask.solvers.gap_tv import brightness_of
from prismask.solvers.wavelets import SCALING_FILTERS, CubeBasis

WEIGHT_OF_NOISE = 0.5
"""Automatic last weight: this times the relative noise …"""
LEAST_WEIGHT = 0.03
"""… but at least this, which is best without noise."""
FALLING = 0.7
"""Part of the run in which the weight falls."""
SHORTEST, LONGEST = 1e-3, 1e4
"""Bounds of the step a; without any, a flat direction would make it infinite."""


@dataclass(frozen=True)
class Gpsr(IterativeSolver):
    """Options of GPSR, and the solver itself: `Gpsr()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    iterations: int = 100
    """The most iterations to do; the weight falls over the first 70 % of them."""
    first_weight: float = 1.0
    """Weight τ at the start, in units of the scene's brightness; never below the last one."""
    weight: float | None = None
    """Weight of the last iterations; None: from the noise estimate."""
    smoothness: float = 1.0
    """How much more fast cosines of the spectrum pay than slow ones; 0: all the same."""
    wavelet: str = "sym4"
    """`haar`, `db2`, `db4` or `sym4`."""
    levels: int = 4
    """Levels of the wavelet transform; fewer where the scene is small."""
    monotone: bool = True
    """Whether steps are shortened so that the objective never rises."""
    nonnegative: bool = True
    """Whether negative light is set to zero in the cube; the coefficients do not feel it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self.wavelet, SCALING_FILTERS, "wavelet")
        first, last, levels = self.first_weight, self.weight, self.levels
        require(first > 0, f"first_weight is {first}; give a weight > 0.")
        require(last is None or last > 0, f"weight is {last}; give one > 0, or None to choose it.")
        require(levels >= 0, f"levels is {levels}; give 0 (no wavelets) or more.")
        require(self.smoothness >= 0, f"smoothness is {self.smoothness}; it cannot be negative.")

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration; its objective is f."""
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        brightness = brightness_of(measurement, throughput_power)
        start = camera.spread(measurement, mask)
        basis = CubeBasis((start.shape[-2], start.shape[-1]), self.wavelet, self.levels)
        # Divided by √L the operator has norm 1, and steps near 1 fit from the beginning.
        scale = camera.gram_bound(mask).amax((-1, -2), keepdim=True).sqrt()
        cube, theta = start, basis.analysis(start)
        prices = self._prices(basis, theta) * _column(brightness)
        residual = (measurement - camera.forward(cube, mask)) / scale
        step = torch.ones_like(brightness)
        for weight in self._weights(measurement, mask, camera, chosen):
            price = _column(weight) * prices
            slope = -basis.analysis(camera.adjoint(residual / scale, mask))
            up, down, fall, size = _way(theta, slope, price, _column(step))
            # S δ is also what the cube changes by, which saves one transform an iteration.
            change = basis.synthesis(up - down)
            ahead = camera.forward(change, mask) / scale
            curvature = _dot(ahead, ahead).clamp_min(torch.finfo(theta.dtype).tiny)
            length = (fall / curvature).clamp(0, 1) if self.monotone else torch.ones_like(fall)
            theta = theta + _column(length) * (up - down)
            cube = cube + _column(length) * change
            residual = residual - length[:, None, None] * ahead
            step = (size / curvature).clamp(SHORTEST, LONGEST)
            objective = _dot(residual, residual) / 2 + (price * theta.abs()).flatten(1).sum(1)
            light = cube.clamp_min(0) if self.nonnegative else cube
            yield Estimate(light, measurement - camera.forward(light, mask), objective)

    def _prices(self, basis: CubeBasis, like: Tensor) -> Tensor:
        """What every coefficient pays in units of the weight, `(C, padded H, padded W)`."""
        cosine = torch.arange(like.shape[1], dtype=like.dtype, device=like.device)
        prices = (1 + cosine[:, None, None]) ** self.smoothness
        return torch.where(basis.is_average(like), 0, prices)

    def _weights(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> list[Tensor]:
        """The weight of every iteration, `(B|1,)`: falling, then the last one."""
        if self.weight is not None:
            last = measurement.new_tensor([self.weight])
        else:
            noise = relative_noise(measurement, mask, camera)
            last = (WEIGHT_OF_NOISE * noise).clamp_min(LEAST_WEIGHT)
            chosen.note("noise", noise)
            chosen.note("weight", last)
        falling = round(FALLING * self.iterations)
        ratio = (self.first_weight / last).clamp_min(1)
        exponents = torch.linspace(1, 0, falling + 1)[:-1].tolist()
        return [last * ratio**one for one in exponents] + [last] * (self.iterations - falling)


def _way(
    theta: Tensor, slope: Tensor, price: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """δu, δv, how fast f falls along them, and ‖δu‖² + ‖δv‖²."""
    up, down = theta.clamp_min(0), (-theta).clamp_min(0)
    for_up, for_down = price + slope, price - slope
    # δu = [u − a (τ + s)]₊ − u,   δv = [v − a (τ − s)]₊ − v
    up = (up - step * for_up).clamp_min_(0).sub_(up)
    down = (down - step * for_down).clamp_min_(0).sub_(down)
    fall = -(_dot(up, for_up) + _dot(down, for_down))
    return up, down, fall, _dot(up, up) + _dot(down, down)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Inner product of every sample, `(B,)`."""
    return (one * other).flatten(1).sum(1)


def _column(values: Tensor) -> Tensor:
    """`(B,)` → `(B, 1, 1, 1)`."""
    return values[:, None, None, None]
