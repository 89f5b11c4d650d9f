"""Running one cell: photograph all scenes through one mask, reconstruct, score.

What a cell gives depends on the cell alone: scenes go through in batches of a fixed number, in
their order, and convolutions on a GPU are the deterministic ones. Who computes it, and
what was computed before, changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from prismask.errors import DeviceError, DivergedError
from prismask.evaluation.metrics import METRICS, score
from prismask.evaluation.protocol.conditions import Situation, arrange, photograph
from prismask.evaluation.protocol.scene_set import SceneSet
from prismask.evaluation.protocol.splits import Group
from prismask.evaluation.run.cells import Cell, CellResult
from prismask.evaluation.run.contenders import Contender
from prismask.inference.methods.protocol import Aligner, Method, check_cubes
from prismask.inference.methods.registry import Choice, as_aligner
from prismask.inference.options import Options
from prismask.inference.reconstruct import deliver_batch, delivered
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seed_of


@dataclass(frozen=True, eq=False)
class Cubes:
    """Cubes `(B, C, H, W)`, and the ends of their intervals where these are to be scored."""

    values: Tensor
    interval: tuple[Tensor, Tensor] | None = None
    """Lower and upper end; NaN for a method that gives none."""

    @classmethod
    def joined(cls, parts: Sequence[Cubes]) -> Cubes:
        """All cubes of all parts."""
        ends = [part.interval for part in parts]
        interval = None
        if None not in ends:
            lower, upper = (torch.cat(end) for end in zip(*ends, strict=True))
            interval = lower, upper
        return cls(torch.cat([part.values for part in parts]), interval)

    def __getitem__(self, chosen: Tensor) -> Cubes:
        interval = None
        if self.interval is not None:
            interval = self.interval[0][chosen], self.interval[1][chosen]
        return Cubes(self.values[chosen], interval)


Given = TypeVar("Given")
Reconstruct = Callable[[Tensor, Tensor, CASSI], Tensor]
"""`(measurement (B, H, L), mask (1, 1|C, H, W), camera) → cube (B, C, H, W)`."""

BATCH = 10
"""Scenes that go through a model at once: the ten of the field's test set."""


@dataclass(frozen=True, eq=False)
class Workload:
    """All that a process needs to compute any cell of a run. It travels between processes."""

    scenes: SceneSet
    camera: CASSI
    contenders: Mapping[str, Contender]
    groups: Mapping[str, Group]
    metrics: tuple[str, ...]
    seed: int = 0
    noise: float = 0.0
    """Measurement noise where no fault brings its own, relative to the cube's range."""
    batch: int = BATCH
    halves: frozenset[str] = field(default_factory=frozenset)
    """Contenders that run in half precision."""


class Ready:
    """A contender on its device; called like a model, it gives the cubes that people get."""

    def __init__(self, contender: Contender, device: torch.device, half: bool = False) -> None:
        self.method: Method = contender.build(device, half)
        self.options = contender.options
        self._default: Choice | None = None
        if self.options.align and "align" not in self.method.capabilities:
            # As in `reconstruct`, the network that ships for the camera aligns for a solver.
            self._default = Choice(Options(align=True, precision="float32"), device)

    @property
    def is_single_pass(self) -> bool:
        """Whether its cube is what the method says of the snapshot and the mask as they are."""
        return not (self.options.adapt or self.options.align)

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        """`measurement (B, H, L)`, `mask (1, 1|C, H, W)` → cubes `(B, C, H, W)`."""
        aligner = self._aligner(camera)
        return deliver_batch(self.method, aligner, measurement, mask, camera, self.options)

    def plain(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Cubes:
        """The same as `Cubes`."""
        return Cubes(self(measurement, mask, camera))

    def with_interval(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Cubes:
        """The same cubes with their intervals, one snapshot at a time."""
        found: dict[str, list[Tensor]] = {"values": [], "lower": [], "upper": []}
        aligner = self._aligner(camera)
        for made in delivered(self.method, aligner, measurement, mask, camera, self.options):
            nothing = np.full_like(made.values, np.nan)
            for name, listed in found.items():
                part = getattr(made, name)
                listed.append(torch.from_numpy(nothing if part is None else part))
        values, lower, upper = (
            torch.stack(listed).to(measurement.device) for listed in found.values()
        )
        return Cubes(values, (lower, upper))

    def _aligner(self, camera: CASSI) -> Aligner | None:
        if self._default is not None:
            return self._default.aligner(camera)
        return as_aligner(self.method)


class Bench:
    """Scenes and models of a workload on one device."""

    def __init__(self, work: Workload, device: torch.device) -> None:
        self.work = work
        self.device = device
        self._cubes = torch.from_numpy(work.scenes.values).to(device)
        self._needs_interval = any(METRICS[name].of_interval for name in work.metrics)
        self._ready: dict[str, Ready] = {}
        self._warm: set[str] = set()

    def run(self, cell: Cell) -> CellResult:
        """Photograph, reconstruct and score all scenes of a cell."""
        group = self.work.groups[cell.group]
        nominal = group.mask(cell.trial, self.device)
        other = None if group.other is None else group.other.to_tensor(self.device)
        situation = arrange(cell, nominal, self.work.camera, self.work.seed, other)
        values: dict[str, list[float]] = {name: [] for name in self.work.metrics}
        failed: dict[str, str] = {}
        digest = hashlib.sha256()
        seconds = 0.0
        for start in range(0, len(self.work.scenes.names), self.work.batch):
            names = self.work.scenes.names[start : start + self.work.batch]
            cubes = self._cubes[start : start + self.work.batch]
            measurement = self._photograph(cell, situation, cubes, names)
            digest.update(measurement.cpu().numpy().tobytes())
            estimate, taken, reasons = self._reconstruct(cell, measurement, situation.given, names)
            seconds += taken
            failed |= reasons
            for name, scores in self._score(estimate, cubes).items():
                values[name] += scores
        return CellResult(
            cell,
            group.masks.entries[cell.trial].mask_id,
            digest.hexdigest()[:12],
            seconds / len(self.work.scenes.names),
            values,
            failed,
        )

    def ready(self, label: str) -> Ready:
        """The contender on this device, built when first needed."""
        if label not in self._ready:
            half = label in self.work.halves
            self._ready[label] = Ready(self.work.contenders[label], self.device, half)
        return self._ready[label]

    def _photograph(
        self, cell: Cell, situation: Situation, cubes: Tensor, names: tuple[str, ...]
    ) -> Tensor:
        if cell.fault != "measurement_noise" and self.work.noise:
            situation = replace(situation, noise=self.work.noise)
        seeds = [seed_of(self.work.seed, "noise", cell.group, cell.trial, name) for name in names]
        return photograph(cubes, situation, self.work.camera, seeds)

    def _reconstruct(
        self, cell: Cell, measurement: Tensor, mask: Tensor, names: tuple[str, ...]
    ) -> tuple[Cubes, float, dict[str, str]]:
        """Cubes with NaN where there is none, seconds, and reasons by scene."""
        ready = self.ready(cell.model)
        method = ready.with_interval if self._needs_interval else ready.plain
        camera = self.work.camera
        try:
            if self.device.type == "cuda" and cell.model not in self._warm:
                timed_call(method, measurement, mask, camera)  # loads kernels, which is not timed
                self._warm.add(cell.model)
            estimate, seconds = timed_call(method, measurement, mask, camera)
        except DivergedError:
            return self._one_by_one(method, measurement, mask, names)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"{cell.model} on {len(names)} scenes at once does not fit into the memory of "
                f"{self.device}. Use a smaller --batch."
            ) from error
        check_cubes(estimate.values, measurement, camera, cell.model)
        finite = torch.isfinite(estimate.values).flatten(1).all(1).tolist()
        bad = [name for name, good in zip(names, finite, strict=True) if not good]
        return estimate, seconds, dict.fromkeys(bad, "the cube holds NaN or infinite values")

    def _one_by_one(
        self,
        method: Callable[[Tensor, Tensor, CASSI], Cubes],
        measurement: Tensor,
        mask: Tensor,
        names: tuple[str, ...],
    ) -> tuple[Cubes, float, dict[str, str]]:
        """A solver stopped at one scene of the batch: find out which, keep the others."""
        estimates, total, reasons = [], 0.0, {}
        size = self._cubes.shape[1:]
        for name, single in zip(names, torch.split(measurement, 1), strict=True):
            try:
                estimate, seconds = timed_call(method, single, mask, self.work.camera)
            except DivergedError as error:
                nothing, seconds = single.new_full((1, *size), math.nan), 0.0
                estimate = Cubes(nothing, (nothing, nothing) if self._needs_interval else None)
                reasons[name] = str(error)
            estimates.append(estimate)
            total += seconds
        return Cubes.joined(estimates), total, reasons

    def _score(self, estimate: Cubes, truth: Tensor) -> dict[str, list[float]]:
        """Values by metric and scene; NaN where the cube is not finite."""
        good = torch.isfinite(estimate.values).flatten(1).all(1)
        found = {name: [math.nan] * len(truth) for name in self.work.metrics}
        indices = good.nonzero()[:, 0].tolist()
        if not indices:
            return found
        if len(indices) < len(truth):
            estimate, truth = estimate[good], truth[good]
        with exact_convolutions():
            scores = score(estimate.values, truth, self.work.metrics, estimate.interval)
        # One transfer for all metrics: a GPU waits for each number that is read by itself.
        listed = torch.stack([scores[name].double() for name in self.work.metrics]).tolist()
        for name, column in zip(self.work.metrics, listed, strict=True):
            for index, value in zip(indices, column, strict=True):
                found[name][index] = value
        return found


def timed_call(
    method: Callable[[Tensor, Tensor, CASSI], Given],
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
) -> tuple[Given, float]:
    """The cubes, and the seconds they took with the device's queue drained before and after."""
    synchronise(measurement.device)
    started = time.perf_counter()
    with torch.no_grad(), exact_convolutions():
        estimate = method(measurement, mask, camera)
    synchronise(measurement.device)
    return estimate, time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@contextlib.contextmanager
def exact_convolutions() -> Iterator[None]:
    """Float32 convolutions in float32 (a GPU likes to use fewer bits), and always the same kind."""
    if not torch.cuda.is_available():
        yield
        return
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield
