"""What every solver shares: how it is called, when it stops, what it reports.

A solver is called like a model, `solver(measurement, mask, camera) → cube`. Iterative ones
derive from `IterativeSolver` and write their method as a generator that yields one estimate an
iteration; counting, stopping, history and progress are written here once.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from prismask.checks import check_finite
from prismask.errors import ConfigError, DivergedError, ValuesError
from prismask.optics.camera import CASSI, as_mask_batch

Progress = Callable[[int, int, dict[str, float]], None]
"""`progress(iteration, iterations, info)`: after each iteration, counted from 1."""

Reason = Literal["iterations", "tolerance", "seconds"]
"""Which rule ended a run."""


class Solver(Protocol):
    """Anything that turns a measurement into a cube without training."""

    def __call__(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask` as `CASSI` takes it → `cube (B, C, H, W)`."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A cube and how it came about."""

    cube: Tensor
    """The estimate, `(B, C, H, W)`."""
    residuals: Tensor
    """`‖y − A x‖ / ‖y‖` after each iteration, `(iterations, B)`."""
    iterations: int
    """How many were done."""
    seconds: float
    """How long they took, with the device's queue drained."""
    reason: Reason
    """Which rule ended the run."""


Estimate = tuple[Tensor, Tensor]
"""What an iteration yields: cube `(B, C, H, W)` and measurement residual `y − A x (B, H, L)`."""


@dataclass(frozen=True)
class IterativeSolver(ABC):
    """The loop around a method that improves an estimate step by step."""

    iterations: int = 60
    """The most iterations to do; schedules are laid out over this number."""
    tolerance: float = 0.0
    """Stop when no cube of the batch changes by more than this fraction of its norm; 0: never."""
    seconds: float | None = None
    """Stop after the first iteration that ends later than this; None: no limit."""

    def __post_init__(self) -> None:
        require(self.iterations >= 1, f"iterations is {self.iterations}; at least 1 is needed.")
        require(self.tolerance >= 0, f"tolerance is {self.tolerance}; it cannot be negative.")
        limit = self.seconds
        require(limit is None or limit > 0, f"seconds is {limit}; give a positive time or None.")

    def __call__(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask` as `CASSI` takes it → `cube (B, C, H, W)`."""
        return self.solve(measurement, mask, camera, progress).cube

    @abstractmethod
    def iterate(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Iterator[Estimate]:
        """Yield `(cube, residual)` after each iteration, `self.iterations` times."""

    @torch.no_grad()
    def solve(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Solution:
        """Like calling the solver, with the history of the run."""
        measurement, mask = _prepared(measurement, mask, camera)
        started = time.perf_counter()
        norm = _norm(measurement)
        # A dark measurement is explained by a dark cube: its residual is 0, not 0 / 0.
        norm = torch.where(norm > 0, norm, torch.ones_like(norm))
        history: list[Tensor] = []
        previous: Tensor | None = None
        reason: Reason = "iterations"
        for cube, residual in self.iterate(measurement, mask, camera):
            history.append(_norm(residual) / norm)
            if progress is not None:
                info = {
                    "residual": float(history[-1].mean()),
                    "seconds": time.perf_counter() - started,
                }
                progress(len(history), self.iterations, info)
            if self.tolerance and previous is not None and self._settled(cube, previous):
                reason = "tolerance"
                break
            if self.seconds is not None and _elapsed(started, cube) > self.seconds:
                reason = "seconds"
                break
            previous = cube.clone() if self.tolerance else None
        residuals = torch.stack(history)
        if not bool(torch.isfinite(residuals).all()):
            raise DivergedError(
                f"{type(self).__name__} did not stay finite on this snapshot. Check that mask and "
                "dispersion belong to it."
            )
        return Solution(cube, residuals, len(history), _elapsed(started, cube), reason)

    def _settled(self, cube: Tensor, previous: Tensor) -> bool:
        return bool((_norm(cube - previous) <= self.tolerance * _norm(cube)).all())


def require(holds: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless an option's condition holds."""
    if not holds:
        raise ConfigError(message)


def geometric(first: float, last: float, count: int) -> list[float]:
    """`count` numbers from `first` to `last` with a constant ratio."""
    if count == 1:
        return [last]
    ratio = math.log(last / first) / (count - 1)
    return [first * math.exp(ratio * k) for k in range(count)]


def _prepared(measurement: Tensor, mask: Tensor, camera: CASSI) -> tuple[Tensor, Tensor]:
    """Both as floating point of one precision, checked against each other and the camera."""
    mask = as_mask_batch(mask)
    camera.check_measurement_and_mask(measurement, mask)
    for name, values in (("measurement", measurement), ("mask", mask)):
        if not bool(torch.isfinite(values).all()):
            check_finite(values, name)
    low, high = float(mask.min()), float(mask.flatten(1).amax(1).min())
    if low < 0 or high <= 0:
        what = (
            f"holds {low:.4g}; transmission lies in [0, 1]" if low < 0 else "lets no light through"
        )
        raise ValuesError(f"the mask {what}. Check that the right variable of the file was read.")
    double = torch.float64 in (measurement.dtype, mask.dtype)
    dtype = torch.float64 if double else torch.float32
    return measurement.to(dtype), mask.to(dtype)


def _norm(values: Tensor) -> Tensor:
    return values.flatten(1).square().sum(1).sqrt()


def _elapsed(started: float, cube: Tensor) -> float:
    if cube.is_cuda:
        torch.cuda.synchronize(cube.device)
    return time.perf_counter() - started
