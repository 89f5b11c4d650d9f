"""Speed of GAP-TV, against a straightforward implementation of the same iteration in this run.

    python benchmarks/gap_tv.py [--json FILE] [--device cpu|cuda|all] [--quick]

Prints seconds of a whole reconstruction with the default options, iterations per second, and how
many times faster an iteration is than the reference: the operator as a loop over the bands, and
scikit-image's `denoise_tv_chambolle` band by band with as many inner iterations (where it is not
installed, the same steps in plain NumPy). The reference always runs on the CPU. Exits with 1 when
a 256×256×28 reconstruction takes 10 s or more. Data are synthetic. `--quick` leaves out 660×660.

The machine must be otherwise idle: torch's threads wait for each other after every operation, so
two threads that share their cores with other work are slower than one (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from prismask.optics.camera import CASSI
from prismask.solvers.gap_tv import GapTv

BANDS, STEP = 28, 2
SIDES = (256, 660)
TARGET_SECONDS = 10.0
REFERENCE_ITERATIONS = 3

Array = NDArray[np.float32]
Denoiser = Callable[[Array, float, int], Array]


@dataclass(frozen=True)
class Row:
    """One size on one device."""

    device: str
    scene: str
    measurement: str
    iterations: int
    seconds: float
    iterations_per_second: float
    reference: str
    times_faster_than_reference: float


def problem(side: int) -> tuple[Tensor, Tensor, Tensor, CASSI]:
    """A smooth random cube, a random mask, their measurement."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, BANDS, 9, 9, generator=generator)
    cube = F.interpolate(coarse, (side, side), mode="bicubic", align_corners=True).clamp(0, 1)
    mask = torch.where(torch.rand(side, side, generator=generator) < 0.5, 0.05, 0.95)
    camera = CASSI.from_step(BANDS, STEP)
    return cube, mask, camera.forward(cube, mask), camera


# --- the reference ---------------------------------------------------------------------------


def loop_forward(cube: Array, mask: Array) -> Array:
    height, width = mask.shape
    image = np.zeros((height, width + STEP * (BANDS - 1)), np.float32)
    for band in range(BANDS):
        image[:, STEP * band : STEP * band + width] += cube[band] * mask
    return image


def loop_adjoint(image: Array, mask: Array) -> Array:
    width = mask.shape[1]
    return np.stack([image[:, STEP * b : STEP * b + width] * mask for b in range(BANDS)])


def numpy_tv(plane: Array, weight: float, iterations: int) -> Array:
    """Chambolle's iteration, for machines without scikit-image."""
    down, right = np.zeros_like(plane), np.zeros_like(plane)
    for _ in range(iterations):
        estimate = plane + _divergence(down, right)
        gradient_down = np.diff(estimate, axis=0, append=estimate[-1:])
        gradient_right = np.diff(estimate, axis=1, append=estimate[:, -1:])
        length = 1 + 0.25 / weight * np.hypot(gradient_down, gradient_right)
        down = (down + 0.25 * gradient_down) / length
        right = (right + 0.25 * gradient_right) / length
    return plane + _divergence(down, right)


def _divergence(down: Array, right: Array) -> Array:
    return np.diff(down, axis=0, prepend=0) + np.diff(right, axis=1, prepend=0)


def reference_denoiser() -> tuple[str, Denoiser]:
    try:
        from skimage.restoration import denoise_tv_chambolle
    except ImportError:
        return "band loop + NumPy TV", numpy_tv

    def denoise(plane: Array, weight: float, iterations: int) -> Array:
        result: Array = denoise_tv_chambolle(plane, weight, eps=0, max_num_iter=iterations)
        return result

    return "band loop + skimage denoise_tv_chambolle", denoise


def reference_iteration_seconds(measurement: Tensor, mask: Tensor, inner: int) -> float:
    """Seconds of one straightforward GAP-TV iteration."""
    y, m = measurement[0].numpy(), mask.numpy()
    gram = loop_forward(loop_adjoint(np.ones_like(y), m), m)
    cube, pull = loop_adjoint(y / gram, m), np.zeros_like(y)
    _, denoise = reference_denoiser()
    times = []
    for _ in range(REFERENCE_ITERATIONS):
        start = time.perf_counter()
        residual = y - loop_forward(cube, m)
        pull += residual
        cube = cube + loop_adjoint((pull + residual) / gram, m)
        cube = np.stack([denoise(plane, 0.1, inner) for plane in cube])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# --- ours ------------------------------------------------------------------------------------


def measure(side: int, device: str, rounds: int) -> Row:
    _, mask, measurement, camera = problem(side)
    solver = GapTv()
    reference = reference_iteration_seconds(measurement, mask, solver.inner_iterations)
    here = measurement.to(device), mask.to(device)
    GapTv(iterations=2)(*here, camera)
    taken = statistics.median(solver.solve(*here, camera).seconds for _ in range(rounds))
    height, width = measurement.shape[1:]
    return Row(
        device=device,
        scene=f"{side}×{side}×{BANDS}",
        measurement=f"{height}×{width}",
        iterations=solver.iterations,
        seconds=round(taken, 4),
        iterations_per_second=round(solver.iterations / taken, 2),
        reference=reference_denoiser()[0],
        times_faster_than_reference=round(reference / (taken / solver.iterations), 2),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    parser.add_argument("--device", choices=("cpu", "cuda", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    devices = ["cpu", "cuda"] if options.device == "all" else [options.device]
    if not torch.cuda.is_available():
        devices = [device for device in devices if device != "cuda"]
    rows = [
        measure(side, device, options.rounds)
        for device in devices
        for side in (SIDES[:1] if options.quick else SIDES)
    ]
    for row in rows:
        print(
            f"{row.device:4} {row.scene:11} {row.iterations} iterations in {row.seconds:7.3f} s "
            f"({row.iterations_per_second:7.1f} a second), an iteration "
            f"{row.times_faster_than_reference:.1f} times faster than {row.reference}"
        )
    if options.json:
        facts = {
            "command": "python benchmarks/gap_tv.py",
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "machine": platform.processor() or platform.machine(),
            "gpu": torch.cuda.get_device_name() if "cuda" in devices else None,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    slow = [row for row in rows if row.scene.startswith("256") and row.seconds >= TARGET_SECONDS]
    for row in slow:
        print(f"too slow: {row.scene} on {row.device} took {row.seconds:.1f} s")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
