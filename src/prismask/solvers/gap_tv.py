"""GAP-TV: generalised alternating projection with total-variation denoising (Yuan, 2016).

It minimises TV(x) among the cubes that explain the measurement y. Each iteration moves the cube
towards the measurement, b ← keep · (b + r) with the residual r = y − A x, then

    x ← denoise_tv(x + Aᵀ Φ⁻¹ (b + keep · r)),          Φ = diag(A Aᵀ).

The accumulated residual b is the "accelerated" part; without it the denoiser's bias would stay.
With noise of variance σ² in y, fitting it exactly means fitting the noise. Writing the noise as
an unknown with a Gaussian prior, next to a TV prior of scale s turns the same iteration into

    keep = Φ / (Φ + κ),          κ = σ² / (s · weight),

which is 1 without noise and forgets where little light arrives. It costs nothing on clean data.

Nothing depends on the units of y: the TV weight counts in units of the scene's brightness
rms(y) / rms(throughput), the noise σ as a fraction of rms(y), and s is that brightness. In these
units κ = noise² · mean(throughput²) / weight.

The denoiser by total variation (TV), batched over samples and bands, serves other solvers too. Its
estimate minimises

    ½ ‖x − image‖² + weight · TV(x),

with forward differences and nothing beyond the edge. TV is isotropic, in one of two couplings:

    band    Σ_λ Σ_pixels |∇x_λ|                each band by itself
    joint   √C · Σ_pixels √(Σ_λ |∇x_λ|²)      bands share their edges, as the things in a scene do

Both agree when all bands are alike, so a weight means the same in either. The problem is solved
in its dual (Chambolle, 2004): a field p with |p| ≤ 1 at every pixel and x = image − weight · ∇ᵀp,
by projected gradient steps, or by the fast ones of Beck & Teboulle (2009). Where the estimate must
not be negative, x is the nonnegative part of that difference, in every step as at the end.

Gradients do not flow through `denoise_tv`: solvers need none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, choose
from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI
from prismask.optics.noise import relative_noise
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require

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


Coupling = Literal["band", "joint"]
COUPLINGS: tuple[Coupling, ...] = ("band", "joint")

FAST_STEP = 1 / 8
"""1 / ‖∇‖², the longest step for which the momentum of Beck & Teboulle is proven."""
PLAIN_STEP = 1.5 / 8
"""Without momentum anything below 2 / ‖∇‖² converges; three quarters of it damps well too."""


@dataclass
class TvDual:
    """The dual field p: where a next call may start. Its tensors are updated in place.

    Both have a margin of zeros on either side, so that ∇ᵀ is one difference of two views.
    """

    down: Tensor
    """Component along the height, `(B, C, H + 1, W)`."""
    right: Tensor
    """Component along the width, `(B, C, H, W + 1)`."""

    @classmethod
    def zeros(cls, image: Tensor) -> TvDual:
        """The field of a fresh start for `image (B, C, H, W)`."""
        batch, bands, height, width = image.shape
        return cls(
            image.new_zeros(batch, bands, height + 1, width),
            image.new_zeros(batch, bands, height, width + 1),
        )

    def clone(self) -> TvDual:
        """A copy that shares no memory."""
        return TvDual(self.down.clone(), self.right.clone())


@torch.no_grad()
def denoise_tv(
    image: Tensor,
    weight: float | Tensor,
    iterations: int = 50,
    *,
    coupling: Coupling = "band",
    momentum: bool = True,
    dual: TvDual | None = None,
    nonnegative: bool = False,
) -> Tensor:
    """The TV-denoised `image (B, C, H, W)`.

    weight: one number, or one per sample `(B,)`; 0 leaves the image as it is.
    momentum: fast steps, best from a fresh start; plain ones suit a few steps from a warm start.
    dual: start from this field and leave the final one in it; None starts from zero.
    nonnegative: minimise among the images without negative values.
    """
    check_shape(image, ("B", "C", "H", "W"), "image")
    choose(coupling, COUPLINGS, "coupling")
    weights = _weights(weight, image)
    field = TvDual.zeros(image) if dual is None else dual
    if field.right.shape[:-1] != image.shape[:-1] or field.down.shape[-1] != image.shape[-1]:
        raise ShapeError("the dual field belongs to an image of another size; start without one.")
    # The problem is solved for image / weight, whose weight is 1, so samples may differ in it.
    active = weights > 0
    safe = torch.where(active, weights, torch.ones_like(weights))
    scaled = image / safe
    estimate = torch.empty_like(scaled)
    _steps(scaled, field, estimate, iterations, coupling, momentum, nonnegative)
    _primal(scaled, field, estimate, nonnegative)
    estimate *= safe
    if bool(active.all()):
        return estimate
    return torch.where(active, estimate, image.clamp_min(0) if nonnegative else image)


@torch.no_grad()
def total_variation(image: Tensor, coupling: Coupling = "band") -> Tensor:
    """TV of `image (B, C, H, W)` as defined above, one value per sample `(B,)`."""
    check_shape(image, ("B", "C", "H", "W"), "image")
    choose(coupling, COUPLINGS, "coupling")
    down = F.pad(image.diff(dim=-2), (0, 0, 0, 1))
    right = F.pad(image.diff(dim=-1), (0, 1))
    squares = down.square() + right.square()
    if coupling == "joint":
        return squares.sum(1).sqrt().sum((-1, -2)) * math.sqrt(image.shape[1])
    return squares.sqrt().sum((-1, -2, -3))


def _weights(weight: float | Tensor, image: Tensor) -> Tensor:
    """The weights as `(B|1, 1, 1, 1)`, checked."""
    values = torch.as_tensor(weight, dtype=image.dtype, device=image.device)
    if values.ndim > 1 or (values.ndim == 1 and values.shape[0] not in (1, image.shape[0])):
        raise ShapeError(
            f"TV weight has shape {tuple(values.shape)}; give one number or one for each of "
            f"{image.shape[0]} samples."
        )
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise ConfigError(f"TV weight is {weight}; it must be finite and not negative.")
    return values.reshape(-1, 1, 1, 1)


def _steps(
    scaled: Tensor,
    field: TvDual,
    estimate: Tensor,
    iterations: int,
    coupling: Coupling,
    momentum: bool,
    nonnegative: bool,
) -> None:
    squares = torch.empty_like(scaled)
    ahead, behind = (field.clone() if momentum else field), field
    t = 1.0
    for _ in range(iterations):
        _primal(scaled, ahead, estimate, nonnegative)
        _ascend(ahead, estimate, FAST_STEP if momentum else PLAIN_STEP)
        _project(ahead, squares, coupling)
        if momentum:
            following = (1 + math.sqrt(1 + 4 * t * t)) / 2
            # new + β (new − old) is a lerp beyond its end; it lands in the old field's memory.
            beyond = 1 + (t - 1) / following
            behind.down.lerp_(ahead.down, beyond)
            behind.right.lerp_(ahead.right, beyond)
            ahead, behind, t = behind, ahead, following
    field.down, field.right = behind.down, behind.right


def _primal(scaled: Tensor, field: TvDual, estimate: Tensor, nonnegative: bool) -> None:
    """estimate = scaled − ∇ᵀp, or the nonnegative part of it."""
    torch.add(scaled, field.down[..., 1:, :], out=estimate)
    estimate.sub_(field.down[..., :-1, :])
    estimate.add_(field.right[..., 1:])
    estimate.sub_(field.right[..., :-1])
    if nonnegative:
        estimate.clamp_min_(0)


def _ascend(field: TvDual, estimate: Tensor, step: float) -> None:
    """p += step · ∇ estimate; the margins of zeros stay."""
    inner = field.down[..., 1:-1, :]
    inner.add_(estimate[..., 1:, :], alpha=step).sub_(estimate[..., :-1, :], alpha=step)
    inner = field.right[..., 1:-1]
    inner.add_(estimate[..., 1:], alpha=step).sub_(estimate[..., :-1], alpha=step)


def _project(field: TvDual, squares: Tensor, coupling: Coupling) -> None:
    """Shorten p to |p| ≤ 1 at every pixel; in joint coupling the mean over bands of |p|² ≤ 1."""
    down, right = field.down[..., 1:, :], field.right[..., 1:]
    torch.mul(down, down, out=squares).addcmul_(right, right)
    length = squares.mean(1, keepdim=True) if coupling == "joint" else squares
    length.clamp_min_(1).rsqrt_()
    down.mul_(length)
    right.mul_(length)
