"""PnP-DIP: a deep image prior in a plug-and-play loop (Meng, Yu, Xu & Yuan, 2021).

An untrained network f_θ is fitted to the one snapshot y, in turn with a denoised cube x that
explains y. f_θ may be the mean of several, each with its own start: what only one of them paints is
not in the snapshot. With the penalty ρ and the multiplier u of ADMM, each iteration does

    θ ← Adam steps on  ‖(Φ + κ)^(−½) (y − A f_θ)‖² + ρ ‖f_θ − (x + u)‖²    Φ = diag(A Aᵀ)
    v ← denoise_tv(f_θ − u)
    x ← v + Aᵀ (Φ + κ)⁻¹ (y − A v)
    u ← u + x − f_θ.

The first x is the cube of a classical solver, so the network begins with what that knows. ρ falls
from iteration to iteration: at first the network follows x, in the end the measurement (u is
rescaled with it, as in ADMM). Weights, and the optimiser's memory of them, are never thrown away.
In place of f_θ stands the running average of the network's outputs, which swing about their mean as
long as the steps are long; it is also the result.

Fitting noise exactly would mean keeping it: κ = σ_y² / s² with the variance s² of what is expected
of a band, and the last ρ grows with the noise. κ counts the noise beyond 1 % alone, which is what
clean data are taken to have: from that much, κ cost a clean crop (stuffed_toys) 3 dB.

Nothing depends on the units of y: x, f and u count in units of the scene's brightness
rms(y) / rms(throughput).

The untrained network is an hourglass of convolutions with skip connections. Fitted to one snapshot
it draws shapes that repeat and edges that the bands share long before it
draws what the wrong bands leave behind: its structure is the prior. Nothing in it was learnt from
other scenes.

What it sees is noise alone. Shown the first cube as well it is ahead for some hundred steps,
but keeps that cube's faults for good: 2 dB behind after 1500 steps on one of two scenes, 0.3 dB
ahead on the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose
from prismask.models.fast import capture
from prismask.optics.camera import CASSI
from prismask.solvers.base import Chosen, Estimate, IterativeSolver, geometric, require
from prismask.solvers.desci import DeSci
from prismask.solvers.gap_tv import (
    LEAST_NOISE,
    GapTv,
    brightness_of,
    denoise_tv,
    divisor_of,
    require_noise,
    stated_noise,
)

Start = Literal["gap-tv", "desci"]
STARTS: tuple[Start, ...] = ("gap-tv", "desci")

PENALTY_PER_NOISE_POWER = 50.0
"""Automatic last ρ, per relative noise squared; from `LEAST_` up to `MOST_LAST_PENALTY`."""
LEAST_LAST_PENALTY = 1e-3
MOST_LAST_PENALTY = 0.2
HEADROOM = 1.5
"""The network's brightest value as a multiple of the start's."""
MOST_NETWORKS = 4
PAINTED = MOST_NETWORKS * 256**2
"""Automatic number of networks: as many as together paint about so many pixels."""
NEXT_NETWORK = 1_000_003
"""What the seeds of two networks of one scene differ by."""
VARIANCE = 0.1
"""How far bands are from what is expected of them (s²), in units of the brightness squared."""


@dataclass(frozen=True)
class PnpDip(IterativeSolver):
    """Options of PnP-DIP, and the solver itself: `PnpDip()(measurement, mask, camera) → cube`.

    The defaults were chosen on CAVE validation scenes, most on 64×96 crops of two or three of them
    in runs of 500 to 1500 steps, the number of networks and of iterations on 256×256 of two, none
    of them on a test scene.
    """

    iterations: int = 80
    """The most iterations to do; penalty and step length are laid out over this number."""
    steps: int = 30
    """Adam steps of the network an iteration; more draw the faults of the start as well."""
    networks: int | None = None
    """How many networks with different starts paint the scene; their mean is what counts.

    Four end 1.1 dB above one (two validation scenes of 256×256). None: four up to that size on a
    GPU, which fits them at the same time; fewer for larger frames, down to one; one on a CPU, where
    it takes long enough.
    """
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
    weight: float = 0.1
    """TV weight of the plug-and-play step, in units of the scene's brightness; 0: none.

    The same for every noise: at 5 % of it 0.1 ended 1.1 and 1.3 dB above 0.5 on two scenes, with
    a κ five times as large, which may be the reason.
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
        for name in ("steps", "networks", "width"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is {value}; at least 1 is needed.")
        require(self.levels >= 0, f"levels is {self.levels}; it cannot be negative.")
        require(self.rate > 0, f"rate is {self.rate}; it must be > 0.")
        last = self.penalty if self.last_penalty is None else self.last_penalty
        least = min(self.penalty, last)
        require(least > 0, f"penalties are {self.penalty} to {last}; both must be > 0.")
        require(self.weight >= 0, f"weight is {self.weight}; it cannot be negative.")
        require(0 <= self.average < 1, f"average is {self.average}; a share from 0 to below 1.")
        require_noise(self.noise)

    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield the running average after each iteration, one network a scene."""
        noise = stated_noise(self.noise, measurement, mask, camera, chosen)
        last_penalty = self._last_penalty(noise, chosen)
        first = self._start(measurement, mask, camera)
        problems = [
            _Problem(one_of(measurement, k), one_of(mask, k), camera, first[k : k + 1])
            for k in range(len(first))
        ]
        fits = [
            _Fit(self, problem, *(float(one_of(v, k)) for v in (noise, last_penalty)))
            for k, problem in enumerate(problems)
        ]
        chosen.note("levels", float(len(fits[0].painters[0].network.downs)))
        chosen.note("networks", float(len(fits[0].painters)))
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

    def _last_penalty(self, noise: Tensor, chosen: Chosen) -> Tensor:
        """ρ of the last iteration, `(B|1,)`: as given, or from the noise."""
        if self.last_penalty is not None:
            return noise.new_tensor([self.last_penalty])
        last = PENALTY_PER_NOISE_POWER * noise.square()
        last = last.clamp(LEAST_LAST_PENALTY, MOST_LAST_PENALTY).clamp_max(self.penalty)
        chosen.note("last_penalty", last)
        return last

    def _start(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        solver = DeSci(noise=self.noise) if self.start == "desci" else GapTv(noise=self.noise)
        return solver(measurement, mask, camera)


@dataclass(frozen=True)
class _Problem:
    """One scene as it was given."""

    measurement: Tensor
    mask: Tensor
    camera: CASSI
    first: Tensor


class _Fit:
    """One scene: its networks and the variables of ADMM, all in units of the brightness."""

    def __init__(
        self, options: PnpDip, problem: _Problem, noise: float, last_penalty: float
    ) -> None:
        self.options = options
        self.penalties = geometric(options.penalty, last_penalty, options.iterations)
        self._prepare(problem, noise)
        self.multiplier = torch.zeros_like(self.cube)
        # What changes from step to step lives on the device, where a recorded step finds it.
        self.target = torch.zeros_like(self.cube)
        self.pull = self.cube.new_zeros(())
        networks = options.networks or networks_for(self.cube)
        self.painters = [_Painter(self, number) for number in range(networks)]

    def _prepare(self, problem: _Problem, noise: float) -> None:
        self.camera, self.mask = problem.camera, problem.mask.float()
        power = self.camera.throughput(self.mask).square().mean((-1, -2))
        kappa = max(0.0, noise**2 - LEAST_NOISE**2) * power / VARIANCE
        # Φ + κ: next to no light reaches some pixels at the edge, and 1 / Φ alone would have their
        # noise explained at any price.
        self.divisor = divisor_of(self.camera.gram_bound(self.mask)) + kappa[:, None, None]
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
        self.target.copy_(self.cube + self.multiplier)
        self.pull.fill_(penalty)
        for painter in self.painters:
            painter.improve(done)
        for painter in self.painters:
            painter.repeat.join()
        self._plug_and_play()

    def painted(self) -> Tensor:
        """What the networks show in the mean, `(1, C, H, W)`."""
        return torch.stack([painter.average for painter in self.painters]).mean(0)

    def result(self) -> Tensor:
        """The estimate in the measurement's units, `(1, C, H, W)`."""
        return self.painted() * self.brightness

    def slope(self, output: Tensor) -> Tensor:
        """Gradient of ‖(Φ + κ)^(−½) (y − A f)‖² + ρ ‖f − (x + u)‖², each as a mean, at `output`."""
        left = self.measurement - self.camera.forward(output, self.mask)
        back = self.camera.adjoint(left / self.divisor, self.mask)
        towards = (output - self.target) * (self.pull * (2 / output.numel()))
        return torch.sub(towards, back, alpha=2 / left.numel())

    def _plug_and_play(self) -> None:
        painted = self.painted()
        cube = painted - self.multiplier
        if self.options.weight:
            cube = denoise_tv(cube, self.options.weight, 10, coupling="joint")
        # x = v + Aᵀ (Φ + κ)⁻¹ (y − A v)
        left = self.measurement - self.camera.forward(cube, self.mask)
        self.cube = cube + self.camera.adjoint(left / self.divisor, self.mask)
        if self.options.multiplier:
            self.multiplier = self.multiplier + self.cube - painted


class _Painter:
    """One network with its optimiser and the running average of its outputs."""

    def __init__(self, fit: _Fit, number: int) -> None:
        self.fit, self.options = fit, fit.options
        cube = fit.cube
        self.network, self.input = build_hourglass(
            fit.camera.bands,
            self.options.width,
            self.options.levels,
            (cube.shape[-2], cube.shape[-1]),
            # Apart from each other, and from those of the next seed.
            self.options.seed + NEXT_NETWORK * number,
            cube.device,
        )
        with torch.no_grad():  # the first output is as bright as the scene: sigmoid(b) = 1 / top
            assert self.network.tail.bias is not None
            self.network.tail.bias.add_(torch.logit(1 / fit.top))
        self.average = cube.clone()
        self.averaged = 0
        # On the device like `fit.target`: a recorded step finds them there.
        self.rate, self.share = (cube.new_zeros(()) for _ in range(2))
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), self.rate, fused=cube.is_cuda, capturable=cube.is_cuda
        )
        self.repeat = Repeated(cube.device)

    def improve(self, done: int) -> None:
        """The steps of an iteration, in parallel with other networks; `repeat.join` waits."""
        with self.repeat.apart():
            for step in range(self.options.steps):
                self.rate.fill_(self._rate(done + step / self.options.steps))
                # Early on a plain mean of the outputs so far, later a window of 1 / share steps.
                self.share.fill_(max(1 - self.options.average, 10 / (self.averaged + 10)))
                self.averaged += 1
                self.repeat(self.step)

    def step(self) -> None:
        """One step of Adam."""
        device, half = self.input.device.type, self.input.is_cuda and self.options.half
        with torch.enable_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            drawn = self.network(self.input)
        output = self.fit.top * drawn.detach()
        self.optimiser.zero_grad(set_to_none=True)
        drawn.backward(self.fit.top * self.fit.slope(output))
        self.optimiser.step()
        self.average.lerp_(output, self.share)

    def _rate(self, time: float) -> float:
        share = 0.5 + 0.5 * math.cos(math.pi * min(1.0, time / self.options.iterations))
        return self.options.rate * (0.05 + 0.95 * share)


def networks_for(cube: Tensor) -> int:
    """How many networks a scene gets by itself."""
    pixels = cube.shape[-2] * cube.shape[-1]
    return max(1, min(MOST_NETWORKS, round(PAINTED / pixels))) if cube.is_cuda else 1


def one_of(values: Tensor, sample: int) -> Tensor:
    """Sample of a batch, or the only one there is, as a batch of one."""
    return values[sample : sample + 1] if len(values) > 1 else values


def _norm(values: Tensor) -> Tensor:
    return values.square().sum((-1, -2)).sqrt()


INPUT_CHANNELS = 32
"""Planes of fixed noise that the network turns into a cube."""
SKIP_CHANNELS = 16
"""What passes from the way down to the way up on each level; few, so that the depth counts."""
LEAST_SIDE = 4
"""Shortest side of the deepest level in pixels: statistics over fewer say nothing."""
WARM_UP = 3
"""Steps before a recording: the first ones allocate what the later ones use again."""


class Hourglass(nn.Module):
    """`(1, INPUT_CHANNELS, H, W)` → `(1, bands, H, W)` in 0 … 1, for any size."""

    def __init__(self, bands: int, width: int, levels: int) -> None:
        super().__init__()
        self.head = _block(INPUT_CHANNELS, width)
        self.downs = nn.ModuleList(
            nn.Sequential(_block(width, width, stride=2), _block(width, width))
            for _ in range(levels)
        )
        self.skips = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, SKIP_CHANNELS, 1), nn.LeakyReLU(0.2))
            for _ in range(levels)
        )
        self.ups = nn.ModuleList(
            nn.Sequential(_block(width + SKIP_CHANNELS, width), _block(width, width))
            for _ in range(levels)
        )
        self.tail = nn.Conv2d(width, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Down by two on each level (sizes rounded up), and up again to the sizes kept."""
        x = self.head(x)
        kept = []
        for down, skip in zip(self.downs, self.skips, strict=True):
            kept.append(skip(x))
            x = down(x)
        for up in self.ups:
            beside = kept.pop()
            x = F.interpolate(x, size=beside.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([beside, x], dim=1))
        # In half precision a bright pixel would be rounded by 0.4 %.
        with torch.autocast(x.device.type, enabled=False):
            return torch.sigmoid(self.tail(x.float()))


class Repeated:
    """Repeats one step that takes no arguments and returns nothing.

    On CUDA it is recorded after `WARM_UP` calls and replayed from then on: Python needs several
    times as long to start the kernels of a step as the GPU to run them. The step has to work on
    the same tensors every time and must not ask for their values. Steps of several are done at
    the same time where they are called within `apart`, until `join`.
    """

    def __init__(self, device: torch.device) -> None:
        self._calls = 0
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch's own
        self._graph: torch.cuda.CUDAGraph | None = None
        self.refusals: list[str] = []
        """Why the step could not be recorded; it is done as it is then."""

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is started within runs on a stream of its own, after all that was started before."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is started from here on waits for what was done apart."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def __call__(self, step: Callable[[], None]) -> None:
        """Do the step once, on the stream of `apart`."""
        self._calls += 1
        if self._stream is not None and self._calls == WARM_UP + 1:
            # Where this fails it is not tried again.
            self._graph = capture(step, self._stream, self.refusals.append)
        if self._graph is not None:
            self._graph.replay()
        else:
            step()


def levels_for(levels: int, height: int, width: int) -> int:
    """`levels`, or as many as leave the deepest one `LEAST_SIDE` pixels; at least 0."""
    side, fit = min(height, width), 0
    while fit < levels and (side + 1) // 2 >= LEAST_SIDE:
        side, fit = (side + 1) // 2, fit + 1
    return fit


def build_hourglass(
    bands: int, width: int, levels: int, size: tuple[int, int], seed: int, device: torch.device
) -> tuple[Hourglass, Tensor]:
    """A network with its seeded start and its fixed input `(1, INPUT_CHANNELS, H, W)`.

    Both are drawn on the CPU: the same seed is the same start on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Hourglass(bands, width, levels_for(levels, *size))
        noise = 0.1 * torch.rand(1, INPUT_CHANNELS, *size)
    # Convolutions in bf16 run on tensor cores in this layout.
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    network.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return network, noise.to(device=device, memory_format=layout)


def _block(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    # Statistics of the one image at hand: there is no other, and none is to be remembered.
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
        nn.BatchNorm2d(channels_out, track_running_stats=False),
        nn.LeakyReLU(0.2),
    )
