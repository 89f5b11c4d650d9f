"""PnP-DIP: a deep image prior in a plug-and-play loop (Meng, Yu, Xu & Yuan, 2021).

An untrained network f_θ is fitted to the one snapshot y, in turn with a denoised cube x that
explains y. With the penalty ρ and the multiplier u of ADMM, each iteration does

    θ ← Adam steps on  ‖Φ^(−½) (y − A f_θ)‖² + ρ ‖f_θ − (x + u)‖²          Φ = diag(A Aᵀ)
    v ← denoise_tv(f_θ − u)
    x ← v + Aᵀ (Φ + κ)⁻¹ (y − A v)
    u ← u + x − f_θ.

The first x is the cube of a classical solver, so the network begins with what that knows. ρ falls
from iteration to iteration: at first the network follows that cube, in the end the measurement
(u is rescaled with it, as ADMM asks). Weights, and the optimiser's memory of them, are never
thrown away. In place of f_θ stands the running average of the network's outputs, which swing
about their mean as long as the steps are long; it is also the result.

Fitting noise exactly would mean keeping it: κ = noise² · mean(throughput²) / weight as in GAP-TV,
the TV weight and the last ρ grow with the noise, and a scene's run ends when the average explains
the measurement as well as the noise allows, and as well as its start does.

Nothing depends on the units of y: x, f and u count in units of the scene's brightness
rms(y) / rms(throughput).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.desci import DeSci
from prismask.solvers.dip_network import build_hourglass
from prismask.solvers.gap_tv import (
    GapTv,
    brightness_of,
    divisor_of,
    require_noise,
    stated_noise,
)
from prismask.solvers.tv import denoise_tv

Start = Literal["gap-tv", "desci"]
STARTS: tuple[Start, ...] = ("gap-tv", "desci")

WEIGHT_PER_NOISE = 10.0
"""Automatic TV weight, per relative noise; up to `MOST_WEIGHT`."""
MOST_WEIGHT = 0.5
PENALTY_PER_NOISE_POWER = 50.0
"""Automatic last ρ, per relative noise squared; up to `MOST_LAST_PENALTY`."""
MOST_LAST_PENALTY = 0.2
HEADROOM = 1.5
"""The network's brightest value as a multiple of the start's."""
LEAST_WEIGHT = 1e-6
"""TV weight by which the noise is divided at least."""


@dataclass(frozen=True)
class PnpDip(IterativeSolver):
    """Options of PnP-DIP, and the solver itself: `PnpDip()(measurement, mask, camera) → cube`.

    The defaults were chosen on a crop of one CAVE validation scene (flowers) and looked at on three
    more, none of them on a test scene.
    """

    iterations: int = 50
    """The most iterations to do; penalty and step length are laid out over this number."""
    steps: int = 30
    """Adam steps of the network an iteration."""
    start: Start = "desci"
    """Which solver makes the first cube; `gap-tv` is quicker and not as good."""
    width: int = 96
    """Channels of the network."""
    levels: int = 4
    """How often the network halves the image; fewer where it is too small for that."""
    rate: float = 6e-3
    """Length of the first Adam steps; it falls as a cosine to a twentieth."""
    penalty: float = 1.0
    """ρ of the first iteration."""
    last_penalty: float | None = None
    """ρ of the last iteration; in between it falls geometrically. None: from the noise."""
    multiplier: bool = True
    """Whether u is used (ADMM); without it the loop is half-quadratic splitting."""
    weight: float | None = None
    """TV weight of the plug-and-play step, in units of the scene's brightness; 0: none.

    None: from the noise.
    """
    average: float = 0.98
    """How much of the running average of outputs is kept at each step."""
    noise: float | None = None
    """Standard deviation of the measurement's noise as a fraction of its rms value; 0: exact.

    None: estimated from the measurement, but at least 0.01.
    """
    stop_at_noise: bool = True
    """Whether to end when no more than the noise is left of the measurement."""
    seed: int = 0
    """Seed of the network's first weights and its input."""
    half: bool = True
    """Whether a GPU computes the network in bf16; other devices always use float32."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self.start, STARTS, "start")
        for name in ("steps", "width"):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}; at least 1 is needed.")
        require(self.levels >= 0, f"levels is {self.levels}; it cannot be negative.")
        require(self.rate > 0, f"rate is {self.rate}; it must be > 0.")
        last = self.penalty if self.last_penalty is None else self.last_penalty
        least = min(self.penalty, last)
        require(least > 0, f"penalties are {self.penalty} to {last}; both must be > 0.")
        weight = 0.0 if self.weight is None else self.weight
        require(weight >= 0, f"weight is {weight}; it cannot be negative.")
        require(0 <= self.average < 1, f"average is {self.average}; a share from 0 to below 1.")
        require_noise(self.noise)

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield the running average after each iteration, one network a scene."""
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        weight, last_penalty = self._strengths(noise, chosen)
        first = self._start(measurement, mask, camera)
        problems = [
            _Problem(one_of(measurement, k), one_of(mask, k), camera, first[k : k + 1])
            for k in range(len(first))
        ]
        fits = [
            _Fit(self, problem, *(float(one_of(v, k)) for v in (noise, weight, last_penalty)))
            for k, problem in enumerate(problems)
        ]
        chosen.note("levels", float(len(fits[0].network.downs)))
        # Texture passes for noise. A network that stops for such a reason before it explains the
        # measurement as well as its start is worse than that.
        bar = torch.minimum(
            noise * _norm(measurement), _norm(measurement - camera.forward(first, mask))
        )
        enough = [False] * len(fits)
        for done in range(self.iterations):
            for fit, finished in zip(fits, enough, strict=True):
                if not finished:
                    fit.improve(done)
            cube = torch.cat([fit.result() for fit in fits]).to(measurement.dtype)
            residual = measurement - camera.forward(cube, mask)
            yield Estimate(cube, residual)
            if self.stop_at_noise:
                enough = (_norm(residual) <= bar).tolist()
            if all(enough):
                chosen.note("stopped", "the residual is down to the noise")
                return

    def _strengths(self, noise: Tensor, chosen: Chosen) -> tuple[Tensor, Tensor]:
        """TV weight and last penalty, `(B|1,)` each: as given, or from the noise."""
        weight = (WEIGHT_PER_NOISE * noise).clamp_max(MOST_WEIGHT)
        most = min(self.penalty, MOST_LAST_PENALTY)
        last = (PENALTY_PER_NOISE_POWER * noise.square()).clamp(min(1e-3, most), most)
        if self.weight is None:
            chosen.note("weight", weight)
        else:
            weight = noise.new_tensor([self.weight])
        if self.last_penalty is None:
            chosen.note("last_penalty", last)
        else:
            last = noise.new_tensor([self.last_penalty])
        return weight, last

    def _start(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        if self.start == "desci":
            return DeSci(noise=self.noise)(measurement, mask, camera)
        return GapTv(noise=self.noise)(measurement, mask, camera)


@dataclass(frozen=True)
class _Problem:
    """One scene as it was given."""

    measurement: Tensor
    mask: Tensor
    camera: CASSI
    first: Tensor


class _Fit:
    """One scene: its network and the variables of ADMM, all in units of the brightness."""

    def __init__(
        self,
        options: PnpDip,
        problem: _Problem,
        noise: float,
        weight: float,
        last_penalty: float,
    ) -> None:
        self.options, self.weight = options, weight
        self.penalties = geometric(options.penalty, last_penalty, options.iterations)
        self._prepare(problem, noise)
        self.multiplier = torch.zeros_like(self.cube)
        self.average = self.cube
        self.averaged = 0
        self.network, self.input = build_hourglass(
            self.camera.bands,
            options.width,
            options.levels,
            (self.cube.shape[-2], self.cube.shape[-1]),
            options.seed,
            self.cube.device,
        )
        with torch.no_grad():  # the first output is as bright as the scene: sigmoid(b) = 1 / top
            assert self.network.tail.bias is not None
            self.network.tail.bias.add_(torch.logit(1 / self.top))
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), options.rate, fused=self.cube.is_cuda
        )

    def _prepare(self, problem: _Problem, noise: float) -> None:
        self.camera, self.mask = problem.camera, problem.mask.float()
        self.gram = divisor_of(self.camera.gram_bound(self.mask))
        power = self.camera.throughput(self.mask).square().mean((-1, -2))
        self.kappa = (noise**2 * power / max(self.weight, LEAST_WEIGHT))[:, None, None]
        brightness = brightness_of(problem.measurement.float(), power)
        self.brightness = torch.where(brightness > 0, brightness, 1.0)[:, None, None, None]
        self.measurement = problem.measurement.float() / self.brightness[:, 0]
        self.cube = problem.first.float() / self.brightness
        self.top = HEADROOM * self.cube.amax().clamp_min(1.0)

    def improve(self, done: int) -> None:
        """One iteration: `done` were before it."""
        penalty = self.penalties[done]
        # The scaled multiplier is u = λ / ρ, so it grows as ρ falls.
        self.multiplier = self.multiplier * (self.penalties[max(0, done - 1)] / penalty)
        target = self.cube + self.multiplier
        with torch.enable_grad():
            for step in range(self.options.steps):
                self._set_rate(done + step / self.options.steps)
                self._step(target, penalty)
        self._plug_and_play()

    def result(self) -> Tensor:
        """The estimate in the measurement's units, `(1, C, H, W)`."""
        return self.average * self.brightness

    def _step(self, target: Tensor, penalty: float) -> None:
        on_gpu = target.is_cuda and self.options.half
        with torch.autocast(target.device.type, torch.bfloat16, enabled=on_gpu):
            drawn = self.network(self.input)
        output = self.top * drawn.float()
        left = self.measurement - self.camera.forward(output, self.mask)
        # ‖Φ^(−½) (y − A f)‖² + ρ ‖f − (x + u)‖², each as a mean
        loss = (left.square() / self.gram).mean() + penalty * (output - target).square().mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        output = output.detach()
        # Early on a plain mean of the outputs so far, later a window of 1 / (1 − keep) steps.
        keep = min(self.options.average, self.averaged / (self.averaged + 10))
        self.average = torch.lerp(output, self.average, keep)
        self.averaged += 1

    def _set_rate(self, time: float) -> None:
        share = 0.5 + 0.5 * math.cos(math.pi * min(1.0, time / self.options.iterations))
        for group in self.optimiser.param_groups:
            group["lr"] = self.options.rate * (0.05 + 0.95 * share)

    def _plug_and_play(self) -> None:
        cube = self.average - self.multiplier
        if self.weight:
            cube = denoise_tv(cube, self.weight, 10, coupling="joint")
        # x = v + Aᵀ (Φ + κ)⁻¹ (y − A v)
        left = self.measurement - self.camera.forward(cube, self.mask)
        self.cube = cube + self.camera.adjoint(left / (self.gram + self.kappa), self.mask)
        if self.options.multiplier:
            self.multiplier = self.multiplier + self.cube - self.average


def one_of(values: Tensor, sample: int) -> Tensor:
    """Sample of a batch, or the only one there is, as a batch of one."""
    return values[sample : sample + 1] if len(values) > 1 else values


def _norm(values: Tensor) -> Tensor:
    return values.square().sum((-1, -2)).sqrt()
