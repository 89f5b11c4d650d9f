"""What every solver shares: how it is called, when it stops, what it reports.

A solver is called like a model, `solver(measurement, mask, camera) → cube`. Iterative ones
derive from `IterativeSolver` and write their method as a generator that yields one estimate an
iteration; counting, stopping, history and progress are written here once.

Options that are None by default are automatic: the solver chooses them from the measurement, most
often from its noise (`noise.estimate_noise`), and says so through `Chosen.note`.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from prismask.checks import check_finite
from prismask.errors import ConfigError, DivergedError, ValuesError
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.progress import Progress

logger = logging.getLogger(__name__)

Reason = Literal["iterations", "tolerance", "seconds"]
"""Which rule ended a run."""


class Solver(Protocol):
    """Anything that turns a measurement into a cube without training."""

    def __call__(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask` as `CASSI` takes it → `cube (B, C, H, W)`."""

    def solve(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Solution:
        """Like calling it, with the history of the run."""


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
    objectives: Tensor | None = None
    """What the method minimises after each iteration, `(iterations, B)`; None: no one function."""
    chosen: dict[str, float | str] = field(default_factory=dict)
    """What the solver chose by itself, by name; text where the samples of a batch differ."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an iteration yields."""

    cube: Tensor
    """`(B, C, H, W)`."""
    residual: Tensor
    """What the cube does not explain, `y − A x (B, H, L)`."""
    objective: Tensor | None = None
    """The function that the method minimises `(B,)`, where there is one."""


class Chosen(dict[str, float | str]):
    """What a solver chose by itself. Noting it also logs it."""

    def note(self, name: str, value: float | str | Tensor) -> None:
        """Remember that `name` was set to `value`; a tensor holds one number per sample, `(B,)`."""
        if isinstance(value, Tensor):
            low, high = (float(f"{float(end):.4g}") for end in (value.min(), value.max()))
            value = low if low == high else f"{low:g} to {high:g} over the batch"
        self[name] = value
        logger.info("chosen: %s = %s", name, f"{value:.4g}" if isinstance(value, float) else value)


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
    def iterate(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, chosen: Chosen
    ) -> Iterator[Estimate]:
        """Yield an estimate after each iteration, `self.iterations` times.

        chosen: where to note what was set automatically.
        """

    @torch.no_grad()
    def solve(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, progress: Progress | None = None
    ) -> Solution:
        """Like calling the solver, with the history of the run.

        progress: after each iteration, with `residual`, `seconds`, and `objective` where the method
            has one; means over the batch.
        """
        measurement, mask = _prepared(measurement, mask, camera)
        started = time.perf_counter()
        norm = _norm(measurement)
        # A dark measurement is explained by a dark cube: its residual is 0, not 0 / 0.
        norm = torch.where(norm > 0, norm, torch.ones_like(norm))
        history: list[Tensor] = []
        objectives: list[Tensor] = []
        chosen = Chosen()
        previous: Tensor | None = None
        reason: Reason = "iterations"
        for estimate in self.iterate(measurement, mask, camera, chosen):
            cube = estimate.cube
            history.append(_norm(estimate.residual) / norm)
            if estimate.objective is not None:
                objectives.append(estimate.objective)
            if progress is not None:
                info = _info(started, history, objectives)
                progress(len(history), self.iterations, info)
            if self.tolerance and previous is not None and self._settled(cube, previous):
                reason = "tolerance"
                break
            if self.seconds is not None and _elapsed(started, cube) > self.seconds:
                reason = "seconds"
                break
            previous = cube.clone() if self.tolerance else None
        return Solution(
            cube,
            self._finite(history),
            len(history),
            _elapsed(started, cube),
            reason,
            torch.stack(objectives) if objectives else None,
            dict(chosen),
        )

    def _finite(self, history: list[Tensor]) -> Tensor:
        residuals = torch.stack(history)
        if not bool(torch.isfinite(residuals).all()):
            raise DivergedError(
                f"{type(self).__name__} did not stay finite on this snapshot. Check that mask and "
                "dispersion belong to it."
            )
        return residuals

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


def _info(started: float, history: list[Tensor], objectives: list[Tensor]) -> dict[str, float]:
    info = {"residual": float(history[-1].mean()), "seconds": time.perf_counter() - started}
    if objectives:
        info["objective"] = float(objectives[-1].mean())
    return info


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
