"""TwIST: two-step iterative shrinkage/thresholding with a TV prior.

After Bioucas-Dias & Figueiredo (2007). It minimises, among the cubes without negative light,

    f(x) = ½ ‖y − A x‖² + τ TV(x).

A plain step goes down the data term's slope and denoises,

    Γ(x) = prox_{τ TV / L}(x + Aᵀ (y − A x) / L),          L ≥ ‖A‖²,

which always lowers f, but slowly. A two-step one also remembers the estimate before the last,

    x_{t+1} = (1 − α) x_{t−1} + (α − β) x_t + β Γ(x_t),

with α and β made for eigenvalues of AᵀA / L between κ and 1. This is the monotone variant: where
the two-step estimate would raise f, the plain one Γ(x_t) takes its place.

‖A‖² is the greatest entry of A Aᵀ where that is diagonal; else the greatest row sum bounds it.
The TV weight is τ / L in units of the scene's brightness rms(y) / rms(throughput), so nothing
depends on the units of y.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.optics.noise import relative_noise
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, require
from prismask.solvers.gap_tv import (
    COUPLINGS,
    Coupling,
    TvDual,
    brightness_of,
    denoise_tv,
    total_variation,
)

WEIGHT_OF_NOISE = 0.2
"""Automatic weight: this times the relative noise …"""
LEAST_WEIGHT = 0.003
"""… but at least this, which is best without noise. A smaller one needs more iterations too."""
_ATTEMPTS = 3
"""How often the TV steps of a plain step may go on until it lowers f, as the exact one does."""


@dataclass(frozen=True)
class Twist(IterativeSolver):
    """Options of TwIST, and the solver itself: `Twist()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    iterations: int = 200
    """The most iterations to do."""
    weight: float | None = None
    """TV weight τ / L in units of the scene's brightness; None: from the noise estimate."""
    least_eigenvalue: float = 1e-4
    """κ, below 1; the smaller, the longer the steps: for weak priors on hard problems."""
    inner_iterations: int = 5
    """TV steps per iteration; few are enough, as each call resumes where the last one stopped."""
    coupling: Coupling = "joint"
    """`joint`: all bands share their edges; `band`: each by itself, as in the original."""
    nonnegative: bool = True
    """Whether negative light is ruled out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self.coupling, COUPLINGS, "coupling")
        weight, least, inner = self.weight, self.least_eigenvalue, self.inner_iterations
        fits = weight is None or (weight > 0 and math.isfinite(weight))
        require(fits, f"weight is {weight}; give a TV weight > 0, or None to choose it.")
        require(0 < least < 1, f"least_eigenvalue is {least}; it lies between 0 and 1.")
        require(inner >= 1, f"inner_iterations is {inner}; at least 1 is needed.")

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration; its objective is f."""
        bound = camera.gram_bound(mask).amax((-1, -2))
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        weight = self._weight(measurement, mask, camera, chosen)
        weight = weight * brightness_of(measurement, throughput_power)
        alpha, beta = two_step_factors(self.least_eigenvalue)

        def judged(cube: Tensor) -> _Judged:
            # f(x) = ½ ‖y − A x‖² + τ TV(x),   τ = L · weight
            residual = measurement - camera.forward(cube, mask)
            fit = residual.square().sum((-1, -2)) / 2
            variation = total_variation(cube, self.coupling)
            return _Judged(cube, residual, fit + bound * weight * variation)

        now = judged(camera.spread(measurement, mask).contiguous())
        before, dual = now.cube, TvDual.zeros(now.cube)
        # With negative light it may lie below all cubes without: it is left in any case.
        is_left = now.cube.flatten(1).amin(1) < (0 if self.nonnegative else -math.inf)
        for _ in range(self.iterations):
            # Γ(x) = prox_{τ TV / L}(x + Aᵀ (y − A x) / L)
            moved = now.cube + camera.adjoint(now.residual / bound[:, None, None], mask)
            plain = self._denoised(moved, weight, dual)
            # (1 − α) x_{t−1} + (α − β) x_t + β Γ(x_t)
            two_step = (1 - alpha) * before + (alpha - beta) * now.cube + beta * plain
            tried = judged(two_step.clamp_min_(0) if self.nonnegative else two_step)
            lower = tried.not_above(now)
            for attempt in range(_ATTEMPTS):
                if bool(lower.all()):
                    break
                if attempt:
                    plain = self._denoised(moved, weight, dual)
                tried = tried.or_else(judged(plain), lower)
                lower = tried.not_above(now)
            before, now = now.cube, tried.or_else(now, lower | is_left)
            is_left = torch.zeros_like(is_left)
            yield Estimate(now.cube, now.residual, now.objective)

    def _denoised(self, cube: Tensor, weight: Tensor, dual: TvDual) -> Tensor:
        return denoise_tv(
            cube,
            weight,
            self.inner_iterations,
            coupling=self.coupling,
            momentum=False,
            dual=dual,
            nonnegative=self.nonnegative,
        )

    def _weight(self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen) -> Tensor:
        if self.weight is not None:
            return measurement.new_tensor([self.weight])
        noise = relative_noise(measurement, mask, camera)
        weight = (WEIGHT_OF_NOISE * noise).clamp_min(LEAST_WEIGHT)
        chosen.note("noise", noise)
        chosen.note("weight", weight)
        return weight


def two_step_factors(least_eigenvalue: float) -> tuple[float, float]:
    """α and β for eigenvalues between κ = `least_eigenvalue` and 1."""
    # ρ = (1 − √κ) / (1 + √κ),   α = ρ² + 1,   β = 2 α / (1 + κ)
    root = math.sqrt(least_eigenvalue)
    alpha = ((1 - root) / (1 + root)) ** 2 + 1
    return alpha, 2 * alpha / (1 + least_eigenvalue)


@dataclass(frozen=True, eq=False)
class _Judged:
    """A cube with its residual and f."""

    cube: Tensor
    residual: Tensor
    objective: Tensor

    def not_above(self, other: _Judged) -> Tensor:
        """Which samples have no greater f than those of `other`, `(B,)`."""
        return self.objective <= other.objective

    def or_else(self, other: _Judged, take_this: Tensor) -> _Judged:
        """Samples of this where `take_this (B,)` says so, of `other` elsewhere."""
        if bool(take_this.all()):
            return self
        return _Judged(
            torch.where(take_this[:, None, None, None], self.cube, other.cube),
            torch.where(take_this[:, None, None], self.residual, other.residual),
            torch.where(take_this, self.objective, other.objective),
        )
