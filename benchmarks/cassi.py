"""Speed and memory of the camera operator, as ratios against `clone()` of the cube in this run.

    python benchmarks/cassi.py [--json FILE] [--device cpu|cuda|all]

Prints a table and exits with 1 when a target is missed. Needs torch, numpy and scipy only.

- time: forward and adjoint of a float32 batch 8×28×256×256, medians, at most 5 clones
- memory: the most held at any moment while the operator runs, the cube and the measurement
  themselves included, at most 3 cubes. On a GPU the allocator's own count; on the CPU the
  resident memory of a process of its own
- growth: time per pixel from 256² to 2048², at most 1.5 times that at 256²
Rows without a target are there to be seen.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from common import Row, machine, report, resident, table
from prismask.optics.camera import CASSI

BATCH, BANDS, SIDE, STEP = 8, 28, 256, 2.0
TIME_TARGET, MEMORY_TARGET, GROWTH_TARGET = 5.0, 3.0, 1.5
# Every growth row moves at least as many bytes as the first, so none fits a cache by being small.
GROWTH = ((256, 8), (512, 2), (1024, 1), (2048, 1))


@dataclass(frozen=True)
class Setup:
    """A camera with a batch for it."""

    camera: CASSI
    cube: Tensor
    mask: Tensor
    measurement: Tensor

    @classmethod
    def make(cls, camera: CASSI, batch: int, side: int, device: str) -> Setup:
        generator = torch.Generator(device).manual_seed(0)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=device)

        scene = (side, side)
        cube = uniform(batch, camera.bands, *scene)
        mask = uniform(*camera.mask_size(scene))
        return cls(camera, cube, mask, uniform(batch, *camera.measurement_size(scene)))

    def calls(self) -> dict[str, Callable[[], Tensor]]:
        return {
            "clone": self.cube.clone,
            "forward": lambda: self.camera.forward(self.cube, self.mask),
            "adjoint": lambda: self.camera.adjoint(self.measurement, self.mask),
        }


def seconds(call: Callable[[], Tensor], device: str) -> float:
    """Seconds of one call; on a GPU measured by its own clock over several calls."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    inner = 20
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(inner):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / inner


def medians(calls: dict[str, Callable[[], Tensor]], device: str, rounds: int) -> dict[str, float]:
    """Median seconds of each call, measured in turn so that a slow moment hits all alike."""
    for call in calls.values():
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(seconds(call, device))
    return {name: statistics.median(times) for name, times in found.items()}


def time_rows(device: str, rounds: int) -> Iterator[Row]:
    cameras = {
        "": CASSI.from_step(BANDS, STEP),
        "other direction ": CASSI.from_step(BANDS, -STEP),
        "along height ": CASSI.from_step(BANDS, STEP, axis="height"),
        "dual disperser ": CASSI.from_step(BANDS, STEP, design="dual"),
        "fractional ": CASSI.from_step(BANDS, STEP - 0.3),
    }
    for name, camera in cameras.items():
        setup = Setup.make(camera, BATCH, SIDE, device)
        target = TIME_TARGET if name == "" else None
        found = medians(setup.calls(), device, rounds if name == "" else max(rounds // 2, 3))
        if name == "":
            yield Row(device, "clone of the cube", found["clone"] * 1000, "ms")
        for call in ("forward", "adjoint"):
            yield Row(device, f"{name}{call}", found[call] / found["clone"], "clones", target)


def growth_rows(device: str, rounds: int) -> Iterator[Row]:
    first: dict[str, float] = {}
    for side, batch in GROWTH:
        setup = Setup.make(CASSI.from_step(BANDS, STEP), batch, side, device)
        calls = {name: call for name, call in setup.calls().items() if name != "clone"}
        found = medians(calls, device, rounds)
        for name, taken in found.items():
            each = taken / (batch * side * side)
            first.setdefault(name, each)
            if side != GROWTH[0][0]:
                what = f"{name} per pixel, {side}² against {GROWTH[0][0]}²"
                yield Row(device, what, each / first[name], "times", GROWTH_TARGET)


# --- memory ----------------------------------------------------------------------------------


def memory_rows(device: str) -> Iterator[Row]:
    for name in ("forward", "adjoint"):
        if device == "cpu":
            command = [sys.executable, __file__, "--measure-memory", name]
            held = float(subprocess.run(command, check=True, capture_output=True).stdout)
        else:
            held = cuda_memory(name)
        yield Row(device, f"{name}, most memory held", held, "cubes", MEMORY_TARGET)


def cuda_memory(name: str) -> float:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    setup = Setup.make(CASSI.from_step(BANDS, STEP), BATCH, SIDE, "cuda")
    torch.cuda.reset_peak_memory_stats()
    result = setup.calls()[name]()
    held = torch.cuda.max_memory_allocated() - before
    del result
    return held / (setup.cube.numel() * 4)


def cpu_memory(name: str) -> float:
    """Runs alone in a fresh process: the high-water mark cannot be somebody else's."""
    camera = CASSI.from_step(BANDS, STEP)
    Setup.make(camera, 1, 64, "cpu").calls()[name]()  # brings in what torch loads late
    before = resident("VmRSS")
    setup = Setup.make(camera, BATCH, SIDE, "cpu")
    result = setup.calls()[name]()
    after = resident("VmHWM")
    del result
    return (after - before) / (setup.cube.numel() * 4)


# --- the report ------------------------------------------------------------------------------


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--device", choices=("cpu", "cuda", "all"), default="all")
    parser.add_argument("--measure-memory", choices=("forward", "adjoint"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        print(cpu_memory(options.measure_memory))
        return 0
    has_gpu = torch.cuda.is_available()
    if options.device == "cuda" and not has_gpu:
        parser.error("no CUDA device here; leave --device out to measure the CPU")
    devices = [d for d in ("cpu", "cuda") if options.device in ("all", d)]
    rows: list[Row] = []
    for device in devices if has_gpu else ["cpu"]:
        rounds, growth_rounds = (9, 3) if device == "cpu" else (15, 5)
        rows += time_rows(device, rounds)
        rows += memory_rows(device)
        rows += growth_rows(device, growth_rounds)
    batch = f"{BATCH}x{BANDS}x{SIDE}x{SIDE} float32, {STEP:g} px a band"
    return report({**machine(), "batch": batch}, rows, table(rows), options.json)


if __name__ == "__main__":
    sys.exit(main())
