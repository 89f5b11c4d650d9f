"""Speed and memory of an evaluation: SRN + GST on 100 masks × 10 scenes with all metrics.

    python benchmarks/evaluate.py [--json FILE] [--device cpu|cuda] [--masks N] [--scenes N]

Synthetic scenes and masks, so nothing has to be downloaded. Everything counts: measuring,
reconstructing, scoring, the journal on the disk, tables and summary. Beside it, in the same run,
the way published test scripts go: one snapshot at a time in float32, one metric after the other,
timed on a few masks and scaled. Exits with 1 when a target is missed (GPU only):

- time: at most 30 s for 100 masks × 10 scenes of 28×256×256
- memory: the most held with all masks, against a quarter of them, at most 1.05 times

Needs torch, numpy, scipy and safetensors only (`PYTHONPATH=src`). On a CPU the default is small.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common import report
from prismask.evaluation.metrics import METRICS, score
from prismask.evaluation.run.runner import Evaluation, evaluate
from prismask.evaluation.run.trials import exact_convolutions, synchronise
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.records import Cube, Mask
from prismask.scenes.synthetic.demo import random_scene

TIME_TARGET, MEMORY_TARGET = 30.0, 1.05
FULL = {"masks": 100, "scenes": 10, "size": 256}
SMALL = {"masks": 4, "scenes": 2, "size": 64}
MODEL = "srn:mask_posterior=gst"
LABEL = "SRN + GST"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    value: float
    unit: str
    target: float | None = None

    @property
    def met(self) -> bool:
        return self.target is None or self.value <= self.target


@dataclass(frozen=True)
class Job:
    """What is evaluated."""

    scenes: dict[str, Cube]
    mask: Mask
    trials: int
    device: str

    def run(self, trials: int, precision: str = "auto") -> tuple[Evaluation, float]:
        """A whole evaluation, and its seconds."""
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            found = evaluate(
                {LABEL: MODEL},
                scenes=self.scenes,
                masks={"fabricated": self.mask},
                out=Path(folder) / "run",
                trials=trials,
                device=self.device,
                precision=precision,
                timing=False,
            )
            return found, time.perf_counter() - started


def make_job(masks: int, scenes: int, size: int, device: str) -> Job:
    """Scenes of many things and one large fabricated aperture; the same every time."""
    made = {
        f"synthetic{number:02d}": random_scene(number, (size, size), WAVELENGTHS_NM)
        for number in range(scenes)
    }
    generator = torch.Generator().manual_seed(0)
    side = size * 5 // 2
    aperture = fabricate_mask((side, side), generator, random_aperture(generator))
    return Job(made, Mask(aperture.numpy()), masks, device)


@torch.no_grad()
def one_by_one(job: Job, found: Evaluation, masks: int) -> float:
    """Seconds a mask of the plain way: float32, one snapshot and one metric at a time."""
    device = torch.device(job.device)
    camera = CASSI.from_step()
    model = create_model("srn", mask_posterior="gst", seed=0).to(device).eval()
    group = found.plan.work.groups["fabricated"]
    cubes = [torch.tensor(cube.values, device=device)[None] for cube in job.scenes.values()]

    def one_mask(trial: int) -> list[float]:
        mask = group.mask(trial, device)
        values = []
        for cube in cubes:
            estimate = model(camera.forward(cube, mask), mask, camera)
            values += [float(score(estimate, cube, [name])[name]) for name in METRICS]
        return values

    with exact_convolutions():
        one_mask(0)
        synchronise(device)
        started = time.perf_counter()
        for trial in range(masks):
            one_mask(trial)
        synchronise(device)
    return (time.perf_counter() - started) / masks


def measure(job: Job) -> list[Row]:
    """All lines of the table."""
    few = max(1, job.trials // 4)
    on_gpu = job.device == "cuda"
    _, first = job.run(few)
    few_held = most_held(on_gpu)
    found, seconds = job.run(job.trials)
    all_held = most_held(on_gpu)
    samples = job.trials * len(job.scenes)
    inside = found.summary.seconds[LABEL] * samples
    plain = one_by_one(job, found, min(few, 3)) * job.trials
    size = next(iter(job.scenes.values())).size
    is_full = on_gpu and (job.trials, len(job.scenes), size[0]) == tuple(FULL.values())
    rows = [
        Row(f"{job.trials} masks × {len(job.scenes)} scenes, everything", seconds, "s",
            TIME_TARGET if is_full else None),
        Row("of it inside the network", inside, "s"),
        Row("the plain way, scaled", plain, "s"),
        Row("the plain way against ours", plain / seconds, "times"),
        Row(f"first run with {few} masks, start-up included", first, "s"),
    ]  # fmt: skip
    if on_gpu:
        rows.append(Row("most memory held", all_held / 2**30, "GiB"))
        rows.append(Row("memory against a quarter", all_held / few_held, "times", MEMORY_TARGET))
        full, _ = job.run(few, "float32")
        half, _ = job.run(few, "auto")
        moved = abs(full.mean(LABEL, "fabricated") - half.mean(LABEL, "fabricated"))
        rows.append(Row("half precision moves PSNR paper by", moved, "dB", 0.005))
    return rows


def most_held(on_gpu: bool) -> float:
    """The GPU allocator's highest mark since the last call."""
    if not on_gpu:
        return 1.0
    held = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return float(held)


def table(rows: list[Row]) -> str:
    lines = [f"{'what':<48} {'value':>9} {'unit':<6} {'target':>7}"]
    for row in rows:
        target = "" if row.target is None else f"≤ {row.target:g}"
        verdict = "" if row.target is None else ("  met" if row.met else "  MISSED")
        lines.append(f"{row.what:<48} {row.value:>9.3f} {row.unit:<6} {target:>7}{verdict}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu_threads": torch.get_num_threads(),
        "gpu": gpu,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    for name in FULL:
        parser.add_argument(f"--{name}", type=int)
    given = parser.parse_args()
    has_gpu = torch.cuda.is_available()
    if given.device == "cuda" and not has_gpu:
        parser.error("no CUDA device here; leave --device out to measure the CPU")
    logging.basicConfig(level=logging.WARNING)
    device = given.device or ("cuda" if has_gpu else "cpu")
    usual = FULL if device == "cuda" else SMALL
    sizes = {name: getattr(given, name) or usual[name] for name in FULL}
    rows = measure(make_job(sizes["masks"], sizes["scenes"], sizes["size"], device))
    facts = {**machine(), **sizes, "device": device}
    return report(facts, rows, table(rows), given.json)


if __name__ == "__main__":
    sys.exit(main())
