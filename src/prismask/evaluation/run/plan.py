"""What a run will compute and what that costs: workload, cells in order, half precision.

Its settings are written once for Python, the command line and the record.

The cost of a method is seconds per sample, memory, parameters and multiply-adds. Half precision is
used where it makes no difference, and only there. On a GPU a network runs twice on the first mask's
scenes, in float32 and in half precision. Half is used for the run if no scene's PSNR ("paper")
moves by more than `TOLERANCE`; on a CPU never.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from prismask.checks import choose, nearest
from prismask.errors import ConfigError
from prismask.evaluation.protocol.conditions import FAULT_KINDS
from prismask.evaluation.protocol.splits import PROTOCOLS, Verdict, trained_on
from prismask.evaluation.run.cells import Cell
from prismask.evaluation.run.trials import BATCH, Bench, Ready, Workload, timed_call
from prismask.inference.options import MaskStd, Options
from prismask.optics.camera import CASSI, camera_attrs


@dataclass(frozen=True)
class Settings:
    """Options of an evaluation or a stress test."""

    protocol: str = "many-to-many"
    """one-to-one, one-to-many or many-to-many."""
    trials: int = 100
    """Masks per group; one-to-one has one."""
    seed: int = 0
    """Draws masks and noise and starts fresh networks."""
    metrics: tuple[str, ...] = ()
    """Names of `evaluation.metrics.METRICS`; empty: all that need a cube only."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 …"""
    precision: Precision = "auto"
    """Of networks: auto takes half precision on a GPU where it moves no PSNR by 0.005 dB."""
    batch: int = BATCH
    """Scenes that go through a model at once."""
    noise: float = 0.0
    """Measurement noise: std on 2/C times the snapshot, so relative to the cube's range; seeded."""
    workers: int = 1
    """Processes."""
    threads: int | None = None
    """CPU threads per process; None shares the cores out."""
    dask: str | None = None
    """Address of a Dask scheduler, or "local"."""
    timing: bool = True
    """Whether each method is timed by itself at the end."""
    allow_overlap: bool = False
    """Whether a model may be tested on what it was trained on; it is marked then."""
    resample: bool = False
    """Whether scenes may be brought to the bands of the models, or of the camera."""
    size: tuple[int, int] | None = None
    """Height and width of the middle of each scene that is taken; None: all of it."""
    align: bool = False
    """Whether the pose of the mask is found from every snapshot first, as by `reconstruct`."""
    adapt: int = 0
    """Steps in which networks first learn every scene, as with `reconstruct`."""
    mask_std: float | None = None
    """How far every mask may be wrong, for networks that use it; None: they estimate it."""

    def __post_init__(self) -> None:
        from prismask.evaluation.metrics import CUBE_METRICS, METRICS

        choose(self.protocol, PROTOCOLS, "protocol")
        choose(self.precision, PRECISIONS, "precision")
        names = tuple(choose(name, METRICS, "metric") for name in self.metrics) or CUBE_METRICS
        object.__setattr__(self, "metrics", names)
        for name in ("trials", "batch", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; at least 1 is needed.")
        if self.adapt < 0:
            raise ConfigError(f"adapt is {self.adapt} steps; 0 leaves networks as they are.")
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise is {self.noise:g}; it must be 0 (none) or more, and finite.")
        if self.mask_std is not None:
            MaskStd.of(self.mask_std)

    @property
    def options(self) -> Options:
        """What every model is to do with every snapshot."""
        return Options(align=self.align, adapt=self.adapt, mask_std=self.mask_std, check_mask=False)


def with_options(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    """Settings with some of them changed; an unknown name is an error with a suggestion."""
    known = [field.name for field in fields(Settings)]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"there is no option {name!r}.{nearest(name, known)} Known: {', '.join(known)}."
            )
    one_metric = isinstance(options.get("metrics"), str)
    changes = {**options, "metrics": (options["metrics"],)} if one_metric else options
    return replace(settings or Settings(), **changes)


Condition = tuple[str, float, str]
"""Fault, size, mask given."""
NOTHING_WRONG: Condition = ("", 0.0, "nominal")


@dataclass(frozen=True, eq=False)
class Plan:
    """An evaluation or a stress test, ready to run."""

    kind: Literal["evaluation", "stress"]
    work: Workload
    conditions: Mapping[str, tuple[Condition, ...]]
    """What is tried in each group."""
    verdicts: Mapping[tuple[str, str], Verdict]
    """How training and test masks relate, by model and group."""
    settings: Settings
    device: torch.device
    remarks: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """What tables call it."""
        return self.settings.protocol if self.kind == "evaluation" else "stress"

    def cells(self) -> Iterator[Cell]:
        """All cells, all models of a trial together: what is finished is comparable."""
        for name, group in self.work.groups.items():
            for trial in range(len(group)):
                for condition in self.conditions[name]:
                    for model in self.work.contenders:
                        yield Cell(model, name, trial, *condition)

    def cells_of(self, model: str) -> Iterator[Cell]:
        """The cells of one model in the order of the table."""
        for name, group in self.work.groups.items():
            for condition in self.conditions[name]:
                for trial in range(len(group)):
                    yield Cell(model, name, trial, *condition)

    def shown_as(self, group: str, condition: Condition) -> tuple[Condition, ...]:
        """How tables show a condition: where nothing is wrong, every fault's curve begins."""
        if self.kind == "evaluation" or condition != NOTHING_WRONG:
            return (condition,)
        faults = dict.fromkeys(fault for fault, _, _ in self.conditions[group])
        return tuple(
            (fault, FAULT_KINDS[fault].neutral, "nominal")
            for fault in faults
            if fault in FAULT_KINDS
        )

    def count(self) -> int:
        """How many cells there are."""
        each = sum(
            len(group) * len(self.conditions[name]) for name, group in self.work.groups.items()
        )
        return each * len(self.work.contenders)

    def identity(self) -> dict[str, Any]:
        """What must be equal for cells of an earlier run to count in this one.

        Trials, groups and models may be added, so they are not part of it.
        """
        return {
            "kind": self.kind,
            "protocol": self.protocol,
            "seed": self.work.seed,
            "scenes": dict(self.work.scenes.hashes),
            "camera": camera_attrs(self.work.camera),
            "metrics": list(self.work.metrics),
            "noise": self.work.noise,
            "batch": self.work.batch,
            "device": self.device.type,
        }

    def models_record(self) -> dict[str, dict[str, Any]]:
        """Who is compared: kind, identity, training masks, precision."""
        return {
            label: {
                "kind": found.kind,
                "identity": found.identity,
                "network": "half" in found.capabilities,
                "trained_on": trained_on(found),
                "precision": "float16" if label in self.work.halves else "float32",
                "record": {
                    key: found.record[key]
                    for key in ("name", "backbone", "bands", "posterior", "masks", "data", "seed")
                    if key in found.record
                },
            }
            for label, found in self.work.contenders.items()
        }


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

    "half" takes all of them, whatever it costs (None); "float32" takes none.
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
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what is freed goes back, so that its next use shows
    try:
        # Linux resets the high-water mark of a process that writes 5 here.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


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
