"""Epistemic uncertainty: how much a reconstruction moves when the mask does.

Two sources, both as the variance of each value, in one pass and in memory that does not grow with
the number of masks:

- **over masks**: the same scene photographed through many masks of a group and reconstructed from
  each snapshot. This is the paper's measure; it needs the scene and therefore a simulation.
- **over samples**: one snapshot, reconstructed with masks drawn around the mask that is known, by a
  network's posterior q_φ or by a network that says itself how wrong a mask may be. This is what a
  user with one camera can have.

With a posterior the second is moved by what that makes of its prior. Before training the mask noise
is ε ~ N(μ, σ), the prior. What the network puts on the mask is g·ε, a mixture of normal
distributions N(μ·g, σ·g) over the pixels of a mask, whose density and moments are known exactly;
nothing has to be sampled:

    mean = μ·E[g]        variance = σ²·E[g²] + μ²·Var[g]

A mask lies in [0, 1], so clamp(m + g·ε, 0, 1) − m is less: real masks have a third of their pixels
at exactly 1, where half of the noise is cut off. That part is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError, DivergedError, ShapeError, ValuesError
from prismask.evaluation.run.trials import Reconstruct
from prismask.inference.engine import RunningMoments
from prismask.inference.inspection import Snapshot
from prismask.inference.methods.network import NetworkMethod, read_back
from prismask.models.posterior import perturb, prior_noise
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded

Photograph = Callable[[int, Tensor], Tensor]
"""`(number, mask (1, 1|C, H, W)) → measurement (1, H, L)` of the one scene that is looked at."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Reconstructions of one scene, summarised; all `(C, H, W)`."""

    first: Tensor
    """The first reconstruction; of drawn masks the mean, which is what people get."""
    mean: Tensor
    """Mean over all."""
    std: Tensor
    """Standard deviation over all, n − 1 in the denominator."""
    count: int
    """How many there were."""

    @property
    def pixel_std(self) -> Tensor:
        """Root mean square of the std over the bands of each pixel, `(H, W)`."""
        return self.std.square().mean(0).sqrt()

    @property
    def total(self) -> float:
        """Root mean square of the std over the whole cube: one number for a scene."""
        return float(self.std.double().square().mean().sqrt())


def spread_over_masks(
    method: Reconstruct, photograph: Photograph, masks: Iterable[Tensor], camera: CASSI
) -> Spread:
    """Photograph a scene through each mask, reconstruct it, and keep moments only."""
    cubes = (method(photograph(number, mask), mask, camera)[0] for number, mask in enumerate(masks))
    return spread_of(cubes)


def spread_over_samples(
    network: NetworkMethod, snapshot: Snapshot, count: int, seed: int
) -> Spread:
    """Of one snapshot with `count` masks that the network draws, as `reconstruct --samples`."""
    if "samples" not in network.capabilities:
        raise ConfigError("this network has no mask posterior, so no masks can be drawn from it.")
    seen = network.view_of(snapshot)
    made = network.engine.run(seen.shown, samples=count, seed=seed)
    mean, std = (torch.from_numpy(part) for part in read_back(seen, made)[:2] if part is not None)
    return Spread(mean, mean, std, count)


def spread_of(cubes: Iterable[Tensor]) -> Spread:
    """Moments of cubes `(C, H, W)` that come one after the other."""
    moments = RunningMoments()
    first: Tensor | None = None
    for cube in cubes:
        if not bool(torch.isfinite(cube).all()):
            raise DivergedError(f"reconstruction {moments.count + 1} holds NaN or infinite values.")
        # Double precision: the spread can be a thousandth of the values.
        moments.add(cube.double())
        if first is None:
            first = cube.float().clone()
    if first is None:
        raise ConfigError("a spread needs at least one reconstruction.")
    return Spread(first, moments.mean.float(), moments.std.float(), moments.count)


POINTS = 201
REACH = 4.0
"""Standard deviations to either side at which densities are tabulated."""
_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class NoiseDistribution:
    """The prior of ε and the noise g·ε over one mask."""

    at: Tensor
    """Values `(K,)` at which the learned noise's density is tabulated."""
    learned: Tensor
    """Its density there."""
    prior_mean: float
    prior_std: float
    learned_mean: float
    learned_std: float
    g_min: float
    g_mean: float
    g_max: float
    g_std: float
    """Spread of g over the mask's pixels: 0 where every pixel gets the same noise."""
    effective_std: float
    """Standard deviation of what is left of the noise after clamping to [0, 1]."""
    clamped_share: float
    """Share of perturbed pixels that were clamped."""

    def to_record(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        record = asdict(self)
        record["at"], record["learned"] = self.at.tolist(), self.learned.tolist()
        return record


def noise_distribution(
    mask: Tensor,
    mask_std: Tensor,
    prior_mean: float,
    prior_std: float,
    points: int = POINTS,
    seed: int = 0,
) -> NoiseDistribution:
    """The noise that g = `mask_std` puts on `mask`, both `(…, H, W)`."""
    g = mask_std.detach().double().flatten()
    if prior_std <= 0 or float(g.min()) <= 0:
        raise ValuesError(
            f"g goes down to {float(g.min()):g} and the prior's std is {prior_std:g}: where one of "
            "them is 0 there is no noise and no density."
        )
    mean = prior_mean * float(g.mean())
    std = math.sqrt(
        prior_std**2 * float(g.square().mean()) + prior_mean**2 * float(g.var(correction=0))
    )
    at = torch.linspace(-REACH, REACH, points, dtype=torch.float64) * std + mean
    learned = torch.zeros_like(at)
    for part in torch.split(g.cpu(), _CHUNK):
        learned += _normal(at[:, None], prior_mean * part, prior_std * part).sum(1)
    noise = prior_noise(tuple(mask.shape), prior_mean, prior_std, seeded(seed), mask.cpu())
    wished = mask.cpu() + mask_std.detach().cpu() * noise
    kept = perturb(mask.cpu(), mask_std.detach().cpu(), noise)
    return NoiseDistribution(
        at, learned / len(g), prior_mean, prior_std, mean, std, float(g.min()), float(g.mean()),
        float(g.max()), float(g.std(correction=0)), float((kept - mask.cpu()).double().std()),
        float((kept != wished).double().mean()),
    )  # fmt: skip


def g_by_transmission(mask: Tensor, mask_std: Tensor, bins: int = 20) -> dict[str, list[float]]:
    """Mean, least and largest g over pixels of like transmission: what g depends on.

    Bins without a pixel are left out. Gives lists `at, mean, low, high, share`.
    """
    m, g = (part.detach().cpu().double().flatten() for part in (mask, mask_std))
    bin_of = (m * bins).long().clamp(0, bins - 1)
    found: dict[str, list[float]] = {name: [] for name in ("at", "mean", "low", "high", "share")}
    for number in range(bins):
        inside = g[bin_of == number]
        if len(inside):
            found["at"].append((number + 0.5) / bins)
            found["mean"].append(float(inside.mean()))
            found["low"].append(float(inside.min()))
            found["high"].append(float(inside.max()))
            found["share"].append(len(inside) / len(g))
    return found


def _normal(at: Tensor, mean: float | Tensor, std: float | Tensor) -> Tensor:
    return torch.exp(-0.5 * ((at - mean) / std).square()) / (math.sqrt(2 * math.pi) * std)


# --- is the uncertainty true? Coverage, reliability, sparsification -------------------------------
#
# All of it compares errors with what was predicted about them. Errors of neighbouring values go
# together, so a single scene says little however many pixels it has; compare the spread over
# scenes.
#
# - **coverage**: share of the truth inside the central interval of a nominal level. A Gaussian
#   interval is estimate ± z·std. Below nominal: over-confident.
# - **reliability**: values are sorted by predicted std into bins a tenth of a decade wide; in each,
#   the root mean square error is set against the root mean square of the predicted std. True
#   uncertainty lies on the diagonal. Their ratio over all values says how many times too small the
#   std is.
# - **sparsification**: the most uncertain pixels are dropped and the error of the rest is looked
# at.
#   It falls if uncertainty knows where the errors are, whatever its scale. The oracle drops the
#   largest errors first. AUSE is the area between the two curves, each relative to the error of all
#   pixels; chance, which drops pixels blindly, has a flat curve. AUSE relative to chance's is 0 for
#   a perfect order, 1 for a useless one, above 1 for a misleading one.


LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Nominal coverages that are looked at."""
DROPPED = 50
"""Points of a sparsification curve, from nothing dropped to 98 %."""
_LOWEST, _HIGHEST, _PER_DECADE = -6, 1, 10


def gaussian_factor(level: float) -> float:
    """z such that mean ± z·std holds `level` of a normal distribution."""
    if not 0 < level < 1:
        raise ConfigError(f"a level of {level:g} is no coverage; it lies between 0 and 1.")
    return float(math.sqrt(2) * torch.special.erfinv(torch.tensor(level, dtype=torch.float64)))


def coverage(error: Tensor, half_width: Tensor) -> float:
    """Share of errors that stay within their interval's half width, both of one shape."""
    _check_pair(error, half_width)
    return float((error.abs() <= half_width).double().mean())


def expected_coverage(level: float, draws: int) -> float:
    """What estimate ± z·std covers at best if std is that of `draws` random draws.

    A std from few draws is itself uncertain, and intervals made of it cover less than they say
    even where everything else is right: P(|t| ≤ z) of Student's t with n − 1 degrees of freedom.
    """
    from scipy.special import stdtr

    if draws < 2:
        return 0.0
    return float(1 - 2 * stdtr(draws - 1, -gaussian_factor(level)))


# --- reliability ---------------------------------------------------------------------------------


@dataclass
class Reliability:
    """Errors against predicted std, in bins, over any number of scenes."""

    count: Tensor = field(default_factory=lambda: _zeros())
    std_squares: Tensor = field(default_factory=lambda: _zeros())
    error_squares: Tensor = field(default_factory=lambda: _zeros())

    def add(self, error: Tensor, std: Tensor) -> None:
        """Take the values of one scene, both of one shape."""
        _check_pair(error, std)
        s, e = (part.detach().cpu().double().flatten() for part in (std, error))
        bins = ((s.clamp_min(10.0**_LOWEST).log10() - _LOWEST) * _PER_DECADE).long()
        bins = bins.clamp(0, len(self.count) - 1)
        self.count.index_add_(0, bins, torch.ones_like(s))
        self.std_squares.index_add_(0, bins, s.square())
        self.error_squares.index_add_(0, bins, e.square())

    @property
    def ratio(self) -> float:
        """Root mean square error over root mean square std: 1 is true, 2 is half as wide as due."""
        squares = float(self.std_squares.sum())
        return math.sqrt(float(self.error_squares.sum()) / squares) if squares else math.inf

    def to_record(self, least_share: float = 1e-3) -> dict[str, list[float]]:
        """Lists `std, error, share` of the bins that hold at least `least_share` of the values."""
        total = float(self.count.sum())
        kept = (self.count >= max(1.0, least_share * total)).nonzero()[:, 0]
        count = self.count[kept]
        return {
            "std": (self.std_squares[kept] / count).sqrt().tolist(),
            "error": (self.error_squares[kept] / count).sqrt().tolist(),
            "share": (count / total).tolist(),
        }


def _zeros() -> Tensor:
    return torch.zeros((_HIGHEST - _LOWEST) * _PER_DECADE, dtype=torch.float64)


# --- sparsification ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sparsification:
    """Error of what is kept, relative to the error of everything."""

    dropped: tuple[float, ...]
    """Share of pixels that was dropped."""
    curve: tuple[float, ...]
    """The most uncertain first."""
    oracle: tuple[float, ...]
    """The worst first."""

    @property
    def ause(self) -> float:
        """Area between curve and oracle."""
        return _area(self.dropped, [c - o for c, o in zip(self.curve, self.oracle, strict=True)])

    @property
    def chance(self) -> float:
        """The same area for an order that knows nothing: its curve stays at 1."""
        return _area(self.dropped, [1 - value for value in self.oracle])

    @property
    def relative(self) -> float:
        """AUSE in units of chance's; NaN where all errors are equal."""
        return self.ause / self.chance if self.chance > 1e-12 else math.nan


def sparsify(error: Tensor, uncertainty: Tensor, points: int = DROPPED) -> Sparsification:
    """Drop values in the order of their uncertainty, and in the order of their error."""
    _check_pair(error, uncertainty)
    squares = error.detach().cpu().double().flatten().square()
    by_uncertainty = _tied_means(squares, uncertainty.detach().cpu().double().flatten())
    count = len(squares)
    dropped = tuple(k / points for k in range(points))
    kept = torch.tensor([max(1, round((1 - share) * count)) for share in dropped])
    whole = math.sqrt(float(squares.mean()))

    def curve(ordered: Tensor) -> tuple[float, ...]:
        if not whole:
            return (1.0,) * points
        sums = ordered.cumsum(0)[kept - 1]
        return tuple(((sums / kept).clamp_min(0).sqrt() / whole).tolist())

    return Sparsification(dropped, curve(by_uncertainty), curve(squares.sort().values))


def _tied_means(squares: Tensor, uncertainty: Tensor) -> Tensor:
    """Squared errors from certain to uncertain; equal uncertainties share the mean of theirs.

    Without that, a map that says nothing (all equal) would be judged by where its pixels lie.
    """
    order = torch.argsort(uncertainty, stable=True)
    _, bins, counts = torch.unique_consecutive(
        uncertainty[order], return_inverse=True, return_counts=True
    )
    sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, bins, squares[order])
    shared: Tensor = (sums / counts)[bins]
    return shared


def mean_curve(found: Sequence[Sparsification]) -> Sparsification:
    """The mean of several scenes' curves, each relative to its own error."""
    if not found:
        raise ConfigError("there is no curve to take the mean of.")
    columns = ([getattr(one, name) for one in found] for name in ("curve", "oracle"))
    means = [tuple(math.fsum(part) / len(found) for part in zip(*column)) for column in columns]  # noqa: B905
    return Sparsification(found[0].dropped, *means)


def _area(at: Sequence[float], values: Sequence[float]) -> float:
    """Trapezoid rule."""
    steps = zip(at[:-1], at[1:], values[:-1], values[1:], strict=True)
    return math.fsum((b - a) * (v + w) / 2 for a, b, v, w in steps)


# --- all of it -----------------------------------------------------------------------------------


class Calibration:
    """All checks of one kind of error bar, fed scene by scene."""

    def __init__(self, levels: Sequence[float] = LEVELS) -> None:
        self.levels = tuple(levels)
        self.coverages: dict[str, dict[float, float]] = {}
        self.reliability = Reliability()
        self.sparsifications: dict[str, Sparsification] = {}

    def add(
        self,
        scene: str,
        error: Tensor,
        std: Tensor,
        half_widths: Mapping[float, Tensor] | None = None,
    ) -> None:
        """Take one scene: `error` and `std (C, H, W)`; `half_widths` by level, else z·std."""
        self.coverages[scene] = {
            level: coverage(
                error, half_widths[level] if half_widths else gaussian_factor(level) * std
            )
            for level in self.levels
        }
        self.reliability.add(error, std)
        by_pixel = [part.double().square().mean(0).sqrt() for part in (error, std)]
        self.sparsifications[scene] = sparsify(by_pixel[0], by_pixel[1])

    def to_record(self, draws: int | None = None) -> dict[str, Any]:
        """Numbers and curves; `draws` is what the std was made of, where it was made of draws."""
        scenes = list(self.coverages)
        mean = mean_curve(list(self.sparsifications.values()))
        by_level = []
        for level in self.levels:
            found = [self.coverages[scene][level] for scene in scenes]
            by_level.append(
                {
                    "nominal": level,
                    "expected": level if draws is None else expected_coverage(level, draws),
                    "observed": math.fsum(found) / len(found),
                    "lowest_scene": min(found),
                    "highest_scene": max(found),
                }
            )
        return {
            "draws": draws,
            "coverage": by_level,
            "error_over_std": self.reliability.ratio,
            "reliability": self.reliability.to_record(),
            "sparsification": {
                "dropped": list(mean.dropped),
                "curve": list(mean.curve),
                "oracle": list(mean.oracle),
            },
            "ause": mean.ause,
            "ause_over_chance": mean.relative,
            "scenes": {
                scene: {
                    "coverage": {f"{k:g}": share for k, share in self.coverages[scene].items()},
                    "ause": self.sparsifications[scene].ause,
                    "ause_over_chance": self.sparsifications[scene].relative,
                }
                for scene in scenes
            },
        }  # fmt: skip


def _check_pair(first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape or not first.numel():
        raise ShapeError(
            f"errors are {tuple(first.shape)} and their uncertainty {tuple(second.shape)}; they "
            "belong together value by value."
        )
