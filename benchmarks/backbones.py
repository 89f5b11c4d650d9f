"""Speed and memory of every network, training and inference, against its plain self.

    python benchmarks/backbones.py [--networks srn gsm …] [--device cuda] [--json FILE]

The plain version is the same network in eager float32 with contiguous tensors and attention
written out (PyTorch's math backend). Prints milliseconds per sample, the ratio of the two, peak
memory above what was held before, and how far the fast result is from the plain one. Frames are
64×64 on a CPU and 256×256 on a GPU unless told otherwise; multiply-adds are always those of a
256×256 snapshot. Needs torch, numpy, scipy and safetensors only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import timed
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import Observation
from prismask.models.machine import choose_device
from prismask.models.network import compile_parts
from prismask.models.registry import create_model, describe, list_models
from prismask.optics.camera import CASSI
from prismask.training.config import from_table
from prismask.training.losses import reconstruction_loss
from prismask.training.setup import build_model


class Peak:
    """Most memory held since it was made, above what was held then, in GiB."""

    def __init__(self, device: torch.device) -> None:
        gc.collect()
        self.device = device
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        elif self._counts():
            # Give freed memory back, and let Linux forget the highest resident size so far.
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
        self.before = self._held("VmRSS")

    def above(self) -> float | None:
        """GiB, or None where the system does not say."""
        held = self._held("VmHWM")
        return None if held is None or self.before is None else (held - self.before) / 2**30

    def _counts(self) -> bool:
        return Path("/proc/self/clear_refs").exists()

    def _held(self, what: str) -> float | None:
        if self.device.type == "cuda":
            now = what == "VmRSS"
            return torch.cuda.memory_allocated() if now else torch.cuda.max_memory_allocated()
        if not self._counts():
            return None
        status = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in status if line.startswith(what))


class Snapshot:
    """A random scene, its mask and its measurement on the device."""

    def __init__(self, device: torch.device, size: int, batch: int) -> None:
        self.camera = CASSI.from_step()
        generator = torch.Generator().manual_seed(0)
        self.mask = torch.rand(1, 1, size, size, generator=generator).to(device)
        shape = (batch, self.camera.bands, size, size)
        self.cube = torch.rand(shape, generator=generator).to(device)
        self.measurement = self.camera.forward(self.cube, self.mask)
        self.batch = batch


def training_step(name: str, seen: Snapshot, device: torch.device, plain: bool, compiled: bool):
    """A ready θ-step, plainly or as `prismask train` sets it up."""
    table = {"model": {"backbone": name}, "posterior": {"kind": "none"}}
    config = from_table({**table, "schedule": {"mode": "plain"}})
    model = create_model(name, seed=0).to(device) if plain else build_model(config, device)
    half = device.type == "cuda" and not plain
    fused = device.type == "cuda" and not plain
    optimiser = torch.optim.Adam(model.backbone.parameters(), lr=1e-5, fused=fused)

    def loss_of() -> torch.Tensor:
        cube = model.reconstruct(Observation(seen.measurement, seen.mask, seen.camera))
        return reconstruction_loss(cube, seen.cube, "l2")

    chosen = loss_of
    if compiled and not plain and not compile_parts(model.backbone):
        # As `prismask train` does with speed.compile and speed.graphs.
        graphs = {"triton.cudagraphs": True} if device.type == "cuda" else None
        chosen = torch.compile(loss_of, dynamic=False, options=graphs)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = chosen()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def compared(
    makers: dict[str, Callable[[], Callable[[], Any]]],
    device: torch.device,
    repeats: int,
    batch: int,
) -> dict[str, Any]:
    """Milliseconds per sample and peak memory of two versions, called in turn.

    In turn, because a machine that others use is now fast and now slow.
    """
    made: dict[str, Callable[[], Any]] = {}
    results: dict[str, Any] = {}
    for how, make in makers.items():
        peak = Peak(device)
        made[how] = make()
        with attention_of(how):
            first = timed(made[how], device, 1, 0)
        results[how] = {"first_s": first, "peak_GiB": peak.above()}
    taken: dict[str, list[float]] = {how: [] for how in made}
    for _ in range(repeats):
        for how, function in made.items():
            with attention_of(how):
                taken[how].append(timed(function, device, 1, 0))
    for how, times in taken.items():
        results[how]["ms"] = sorted(times)[len(times) // 2] * 1e3 / batch
    results["faster"] = results["plain"]["ms"] / results["ours"]["ms"]
    return results


def attention_of(how: str) -> AbstractContextManager[Any]:
    """The plain version writes attention out."""
    return sdpa_kernel(SDPBackend.MATH) if how == "plain" else nullcontext()


def training_row(name: str, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    seen = Snapshot(device, given.size, given.train_batch)
    makers = {
        how: partial(training_step, name, seen, device, how == "plain", given.compile)
        for how in ("plain", "ours")
    }
    return compared(makers, device, given.repeats, seen.batch)


@torch.inference_mode()
def inference_row(name: str, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    seen = Snapshot(device, given.size, given.batch)
    shown = (seen.measurement, seen.mask, seen.camera)
    plain = create_model(name, seed=0).eval().requires_grad_(False).to(device)
    fast = FastReconstructor(plain, device)
    if given.compile and not compile_parts(fast.backbone):
        fast.backbone = torch.compile(fast.backbone, dynamic=False)
    makers = {
        how: partial(partial, network, *shown)
        for how, network in (("plain", plain), ("ours", fast))
    }
    results = compared(makers, device, given.repeats, seen.batch)
    reference = plain(*shown)
    results["ours"]["precision"] = str(fast.dtype).removeprefix("torch.")
    error = (fast(*shown) - reference).norm() / reference.norm()
    results["ours"]["relative_error"] = float(error)
    return results


def row_of(name: str, given: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    told = describe(name)
    row: dict[str, Any] = {
        "network": name,
        "parameters_M": told.parameters / 1e6,
        "multiply_adds_G": told.multiply_adds / 1e9,
    }
    parts = {"inference": inference_row}
    if not given.no_training:
        parts["training"] = training_row
    for part, measure in parts.items():
        row[part] = measure(name, given, device)
    return row


HEADINGS = (
    f"{'network':14}{'params':>9}{'MACs':>9}"
    f" | {'train: plain':>13}{'ours':>9}{'faster':>8}{'plain':>9}{'ours':>8}"
    f" | {'infer: plain':>13}{'ours':>9}{'faster':>8}{'plain':>9}{'ours':>8}{'error':>9}\n"
    f"{'':14}{'M':>9}{'G':>9}"
    f" | {'ms/sample':>13}{'':>9}{'':>8}{'peak GiB':>9}{'':>8}"
    f" | {'ms/sample':>13}{'':>9}{'':>8}{'peak GiB':>9}{'':>8}{'rel.':>9}"
)


def as_line(row: dict[str, Any]) -> str:
    line = f"{row['network']:14}{row['parameters_M']:9.2f}{row['multiply_adds_G']:9.1f}"
    for part in ("training", "inference"):
        found = row.get(part)
        if found is None:
            line += f" | {'–':>13}{'':34}"
            continue
        plain, ours = found["plain"], found["ours"]
        line += f" | {plain['ms']:13.2f}{ours['ms']:9.2f}{found['faster']:7.2f}×"
        line += f"{memory(plain):>9}{memory(ours):>8}"
    return line + f"{row['inference']['ours']['relative_error']:9.1e}"


def memory(result: dict[str, Any]) -> str:
    return "–" if result["peak_GiB"] is None else f"{result['peak_GiB']:.2f}"


def arguments() -> argparse.Namespace:
    names = [name for name in list_models() if not name.endswith("+")]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=names, choices=list_models())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", type=int, help="height and width (64 on a CPU, 256 on a GPU)")
    parser.add_argument("--batch", type=int, help="snapshots at once in inference (1)")
    parser.add_argument("--train-batch", type=int, help="crops a step (1 on a CPU, 4 on a GPU)")
    parser.add_argument("--repeats", type=int, help="timed calls (3 on a CPU, 10 on a GPU)")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile our side, replayed as CUDA graphs"
    )
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--json", help="also write the numbers here")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    device = choose_device(given.device)
    on_gpu = device.type == "cuda"
    given.size = given.size or (256 if on_gpu else 64)
    given.batch = given.batch or 1
    given.train_batch = given.train_batch or (4 if on_gpu else 1)
    given.repeats = given.repeats or (10 if on_gpu else 3)
    torch.backends.cudnn.benchmark = True
    where = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{where}, torch {torch.__version__}, {given.size}×{given.size}, "
        f"batch {given.train_batch} in training and {given.batch} in inference"
        f"{', ours compiled' if given.compile else ''}"
    )
    print(HEADINGS)
    rows = []
    for name in given.networks:
        rows.append(row_of(name, given, device))
        print(as_line(rows[-1]), flush=True)
    if given.json:
        facts = {
            "device": where,
            "torch": torch.__version__,
            "size": given.size,
            "train_batch": given.train_batch,
            "batch": given.batch,
            "compiled": given.compile,
            "rows": rows,
        }
        Path(given.json).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
