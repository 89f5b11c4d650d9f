"""Is the uncertainty true? Coverage, reliability, sparsification.

All of it compares errors with what was predicted about them. Errors of neighbouring values go
together, so a single scene says little however many pixels it has; compare the spread over scenes.

- **coverage**: share of the truth inside the central interval of a nominal level. A Gaussian
  interval is estimate ± z·std. Below nominal: over-confident.
- **reliability**: values are sorted by predicted std into bins a tenth of a decade wide; in each,
  the root mean square error is set against the root mean square of the predicted std. True
  uncertainty lies on the diagonal. Their ratio over all values says how many times too small the
  std is.
- **sparsification**: the most uncertain pixels are dropped and the error of the rest is looked at.
  It falls if uncertainty knows where the errors are, whatever its scale. The oracle drops the
  largest errors first. AUSE is the area between the two curves, each relative to the error of all
  pixels; chance, which drops pixels blindly, has a flat curve. AUSE relative to chance's is 0 for
  a perfect order, 1 for a useless one, above 1 for a misleading one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError

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
