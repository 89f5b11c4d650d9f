"""Mean, spread and paired differences over trials, one trial at a time.

What the numbers mean:

- **std** is the standard deviation (n − 1 in the denominator) of the values of single trials. For
  the average over scenes these values are the per-trial means over all scenes. It says how much a
  score changes from mask to mask. The std of *running* means, which some papers print, shrinks
  with every trial and says nothing of the kind.
- **standard error** is std / √n: how well the mean over all masks of the group is known.
- **paired difference** of two methods: both saw the same measurements, so their difference is
  taken trial by trial, and its interval is mean ± t · std / √n with Student's t of n − 1 degrees
  of freedom. It assumes that trials are independent draws and that their differences are not far
  from normal (for a hundred trials that hardly matters). Masks are drawn without replacement,
  which makes the interval slightly too wide. It speaks about masks of the same group and about
  these scenes; it says nothing about other instruments or other scenes.

Nothing grows with the number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEVEL = 0.95
"""Probability that an interval is meant to cover."""


@dataclass
class Moments:
    """Mean and standard deviation of numbers that come one by one (Welford's update)."""

    count: int = 0
    """Numbers that were taken."""
    failed: int = 0
    """NaNs that were not: trials without a result."""
    infinite: int = 0
    """How many of the numbers were infinite, such as the PSNR of a perfect band."""
    _mean: float = 0.0
    _squares: float = 0.0
    _beyond: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Moments:
        """The moments of `values`."""
        moments = cls()
        for value in values:
            moments.add(value)
        return moments

    def add(self, value: float) -> None:
        """Take one number; NaN counts as failed."""
        if math.isnan(value):
            self.failed += 1
            return
        self.count += 1
        if math.isinf(value):
            self.infinite += 1
            self._beyond += value
            return
        step = value - self._mean
        self._mean += step / (self.count - self.infinite)
        self._squares += step * (value - self._mean)

    @property
    def mean(self) -> float:
        """Mean; NaN of nothing, and where numbers are infinite in both directions."""
        if self.count == 0:
            return math.nan
        return self._beyond if self.infinite else self._mean

    @property
    def std(self) -> float:
        """Standard deviation with n − 1; NaN below two numbers."""
        if self.count < 2 or self.infinite:
            return math.nan
        return math.sqrt(self._squares / (self.count - 1))

    @property
    def standard_error(self) -> float:
        """std / √n: how well the mean is known."""
        return self.std / math.sqrt(self.count) if self.count else math.nan

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Student's t interval of the mean; NaN below two numbers."""
        if self.count < 2:
            return math.nan, math.nan
        half = student_t(level, self.count - 1) * self.standard_error
        return self.mean - half, self.mean + half


def student_t(level: float, freedom: int) -> float:
    """How many standard errors a two-sided interval of `level` reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def paired_difference(first: Iterable[float], second: Iterable[float]) -> Moments:
    """Moments of first − second, trial by trial; a pair with a NaN counts as failed."""
    return Moments.of(difference(a, b) for a, b in zip(first, second, strict=True))


def difference(first: float, second: float) -> float:
    """first − second; equal scores differ by nothing, infinite ones too."""
    return 0.0 if first == second else first - second


def scene_average(values: Iterable[float]) -> float:
    """Mean over the scenes of one trial; NaN if one scene has no result.

    Leaving a failed scene out would compare averages over different scenes.
    """
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else math.nan
