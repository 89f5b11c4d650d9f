"""GAP-TV: generalised alternating projection with total-variation denoising (Yuan, 2016).

It minimises TV(x) among the cubes that explain the measurement y. Each iteration moves the cube
towards the measurement, b ← keep · (b + r) with the residual r = y − A x, then

    x ← denoise_tv(x + Aᵀ Φ⁻¹ (b + keep · r)),          Φ = diag(A Aᵀ).

The accumulated residual b is the "accelerated" part; without it the denoiser's bias would stay.
With noise of variance σ² in y, fitting it exactly means fitting the noise. Writing the noise as
an unknown with a Gaussian prior beside a TV prior of scale s turns the same iteration into

    keep = Φ / (Φ + κ),          κ = σ² / (s · weight),

which is 1 without noise and forgets where little light arrives. It costs nothing on clean data.

Nothing depends on the units of y: the TV weight counts in units of the scene's brightness
rms(y) / rms(throughput), the noise σ as a fraction of rms(y), and s is that brightness. In these
units κ = noise² · mean(throughput²) / weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.optics.noise import relative_noise
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.tv import COUPLINGS, Coupling, TvDual, denoise_tv

LEAST_NOISE = 0.01
"""What automatic noise is at least: on clean data this costs nothing, and no estimate is exact."""
_FLOOR = 1e-6
"""Least Φ, as a fraction of its mean, by which a residual is divided: 0 / 0 where no light is."""


@dataclass(frozen=True)
class GapTv(IterativeSolver):
    """Options of GAP-TV, and the solver itself: `GapTv()(measurement, mask, camera) → cube`.

    The defaults were chosen on the CAVE validation scenes, none of them on a test scene.
    """

    weight: float = 3.0
    """TV weight at the start, in units of the scene's brightness: large shapes first."""
    last_weight: float = 0.25
    """TV weight of the last iteration; in between it falls geometrically."""
    inner_iterations: int = 5
    """TV steps per iteration; few are enough, as each call resumes where the last one stopped."""
    coupling: Coupling = "joint"
    """`joint`: all bands share their edges; `band`: each by itself, as in the original."""
    noise: float | None = None
    """Standard deviation of the measurement's noise as a fraction of its rms value; 0: exact.

    None: estimated from the measurement, but at least 0.01. Too small a value costs decibels on
    noisy data; twice the true one costs a tenth or two.
    """
    nonnegative: bool = True
    """Whether negative light is set to zero after each iteration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self.coupling, COUPLINGS, "coupling")
        weights = (self.weight, self.last_weight)
        require(min(weights) > 0, f"TV weights are {weights[0]} to {weights[1]}; both must be > 0.")
        inner = self.inner_iterations
        require(inner >= 1, f"inner_iterations is {inner}; at least 1 is needed.")
        require_noise(self.noise)

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration."""
        divisor = divisor_of(camera.gram_bound(mask))
        throughput_power = camera.throughput(mask).square().mean((-1, -2))
        brightness = brightness_of(measurement, throughput_power)
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        cube = camera.spread(measurement, mask).contiguous()
        dual = TvDual.zeros(cube)
        pull = torch.zeros_like(measurement)
        residual = measurement - camera.forward(cube, mask)
        for weight in geometric(self.weight, self.last_weight, self.iterations):
            kappa = noise.square() * throughput_power / weight
            keep = divisor / (divisor + kappa[:, None, None])
            residual = keep * residual
            pull = keep * pull + residual
            cube += camera.adjoint((pull + residual) / divisor, mask)
            cube = denoise_tv(
                cube,
                weight * brightness,
                self.inner_iterations,
                coupling=self.coupling,
                momentum=False,
                dual=dual,
            )
            if self.nonnegative:
                cube.clamp_min_(0)
            residual = measurement - camera.forward(cube, mask)
            yield Estimate(cube, residual)


def stated_noise(
    given: float | None, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
) -> Tensor:
    """The noise as a fraction of the measurement's rms value, `(B|1,)`: given, or estimated."""
    if given is not None:
        return measurement.new_tensor([given])
    noise = relative_noise(measurement, mask, camera).clamp_min(LEAST_NOISE)
    chosen.note("noise", noise)
    return noise


def require_noise(noise: float | None) -> None:
    """Raise `ConfigError` unless this is a possible noise level, or None for automatic."""
    fits = noise is None or noise >= 0
    require(fits, f"noise is {noise}; a fraction of the signal, 0 or more, or None: estimated.")


def divisor_of(gram: Tensor) -> Tensor:
    """Φ `(B|1, H, L)` with a floor, so that residuals can be divided by it."""
    return torch.maximum(gram, _FLOOR * gram.mean((-1, -2), keepdim=True))


def brightness_of(measurement: Tensor, throughput_power: Tensor) -> Tensor:
    """Brightness `(B,)` of a grey scene that would give a measurement of this rms value."""
    power = measurement.square().mean((-1, -2))
    return (power / throughput_power.clamp_min(torch.finfo(power.dtype).tiny)).sqrt()
