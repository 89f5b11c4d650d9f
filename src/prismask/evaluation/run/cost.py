"""What a method costs (seconds per sample, memory, parameters, multiply-adds), and half precision.

Half precision is used where it makes no difference, and only there. On a GPU a network runs twice
on the first mask's scenes, in float32 and in half precision. Half is used for the run if no scene's
PSNR ("paper") moves by more than `TOLERANCE`; on a CPU never.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.evaluation.run.cells import Cell
from prismask.evaluation.run.trials import Bench, Ready, Workload, timed_call
from prismask.optics.camera import CASSI

log = logging.getLogger(__name__)

Precision = Literal["auto", "float32", "half"]
PRECISIONS: tuple[Precision, ...] = ("auto", "float32", "half")
TOLERANCE = 0.005
"""Decibels by which half precision may move a scene's PSNR."""
METRIC = "psnr_paper"


def choose_halves(
    work: Workload, device: torch.device, precision: Precision
) -> dict[str, float | None]:
    """The networks to run in half precision, each with the decibels it costs at most.

    "half" does not ask (None), "float32" gives nobody.
    """
    choose(precision, PRECISIONS, "precision")
    if precision == "half" and device.type != "cuda":
        raise ConfigError(f"half precision is for GPUs; on {device} use auto or float32.")
    networks = [label for label, found in work.contenders.items() if "half" in found.capabilities]
    if precision == "float32" or device.type != "cuda":
        return {}
    if precision == "half":
        return dict.fromkeys(networks)
    halves: dict[str, float | None] = {}
    for label in networks:
        cost = half_cost(work, device, label)
        if cost <= TOLERANCE:
            halves[label] = cost
        else:
            log.warning("%s runs in float32: half precision would move its PSNR by %.3g dB.",
                        label, cost)  # fmt: skip
    return halves


def half_cost(work: Workload, device: torch.device, label: str) -> float:
    """Largest change of a scene's PSNR in dB on the first mask; infinite if half overflows."""
    group = next(iter(work.groups))
    cell = Cell(label, group, 0)
    scores = []
    for halves in (frozenset[str](), frozenset({label})):
        changed = replace(work, metrics=(METRIC,), halves=halves)
        scores.append(Bench(changed, device).run(cell).values[METRIC])
    worst = 0.0
    for full, half in zip(*scores, strict=True):
        if math.isfinite(full):
            worst = max(worst, abs(full - half) if math.isfinite(half) else math.inf)
    return worst


REPEATS = 10
PATIENCE = 2.0
"""Seconds after which no further repeat is started."""


@dataclass(frozen=True)
class Cost:
    """The cost of one snapshot, one at a time (batch 1)."""

    seconds_per_sample: float
    """Median over the repeats, after a first call that does not count, the queue drained."""
    repeats: int
    peak_memory_bytes: int | None
    """GPU: the most the allocator held, the weights included. CPU: by how much the process grew;
    None where the system does not say."""
    parameters: int | None = None
    """Learnable values; None for a solver."""
    multiply_adds: int | None = None
    """Of one snapshot, the mask posterior included; None where it cannot be counted."""

    def to_record(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)


def measure_cost(ready: Ready, measurement: Tensor, mask: Tensor, camera: CASSI) -> Cost:
    """Time a contender on one `measurement (1, H, L)`, and count what can be counted."""
    device = measurement.device
    _, first = timed_call(ready, measurement, mask, camera)
    before = _start_watching(device)
    taken: list[float] = []
    while len(taken) < REPEATS and (not taken or sum(taken) + first < PATIENCE):
        taken.append(timed_call(ready, measurement, mask, camera)[1])
    scene = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
    parameters, multiply_adds = ready.method.work(camera, scene)
    return Cost(
        statistics.median(taken),
        len(taken),
        _most_held(device, before),
        parameters,
        multiply_adds,
    )


def _start_watching(device: torch.device) -> int | None:
    """Forget the highest mark so far; give what is held now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return 0
    _give_back_memory()
    try:
        # Linux resets the high-water mark of a process that writes 5 here.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


def _give_back_memory() -> None:
    """Return freed memory to the system, so that using it again shows as growth."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _most_held(device: torch.device, before: int | None) -> int | None:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    most = _status("VmHWM")
    return None if before is None or most is None else max(most - before, 0)


def _status(name: str) -> int | None:
    """A number of bytes from Linux's page about this process."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return found[0] if found else None
