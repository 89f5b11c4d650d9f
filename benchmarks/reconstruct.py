"""Speed and memory of reconstruction with SRN, against the plain network in the same run.

    python benchmarks/reconstruct.py [--json FILE] [--device cpu|cuda|all] [--threads 2] [--quick]
                                     [--against CHECKOUT] [--command-only]

Prints a table and exits with 1 when a target is missed. Needs torch, numpy, scipy and
safetensors; rows of the command also need what the command line needs and are left out otherwise.

- a 660×714 snapshot on the CPU: tiles in half precision at least twice as fast as the plain
  float32 network over the whole frame. What half precision changes is printed beside it
- the same snapshot on a GPU, from the snapshot in host memory to the cube in host memory: at
  most 100 ms
- 2048²: the most memory held beside the cube itself, at most 2.2 times that at 1024² (strips are
  twice as long, tiles are not; a whole frame would take 4 times as much)
- the command `prismask reconstruct` from the shell to the written file: at most 2 s on a tiny
  snapshot, at most 1.5 GB on one of 660×714; with --against the same of another checkout (`git
  worktree add FOLDER COMMIT`), in turn
Rows without a target are there to be seen.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import common
import prismask
from common import machine, report, resident, table, timed
from prismask.inference.engine import Engine
from prismask.inference.reconstruct import reconstruct
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.optics.camera import CASSI
from prismask.scenes.records import Mask, Measurement

SIDE, CAMERA = 660, CASSI.from_step()
SPEED_TARGET, GPU_TARGET_MS, MEMORY_TARGET, START_TARGET, PEAK_TARGET = 2.0, 100.0, 2.2, 2.0, 1.5
LARGE = (1024, 2048)


@dataclass(frozen=True)
class Row(common.Row):
    """One line of the table; some targets are to be exceeded."""

    at_least: bool = False


def network() -> Reconstructor:
    return create_model("srn", mask_posterior="gst", seed=0).eval()


def shot(side: int) -> tuple[Tensor, Tensor]:
    """A snapshot `(H, L)` and its mask `(1, 1, H, W)`."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(1, 1, side, side, generator=generator)
    return CAMERA.throughput(mask)[0] * 0.3, mask


# --- one real-sized snapshot ---------------------------------------------------------------------


def cpu_rows(rounds: int) -> Iterator[Row]:
    model, (snapshot, mask) = network(), shot(SIDE)
    engine = Engine(model, torch.device("cpu"), "half")

    def plain() -> Tensor:
        with torch.inference_mode():
            cube: Tensor = model(snapshot[None], mask, CAMERA)
        return cube

    def fast() -> Tensor:
        return engine.run(Observation(snapshot[None], mask, CAMERA)).values

    # In turn, so that a slow moment of the machine hits both.
    pairs = [(timed(plain, "cpu", 1, 0), timed(fast, "cpu", 1, 0)) for _ in range(rounds + 1)][1:]
    slow, quick = (statistics.median(times) for times in zip(*pairs, strict=True))
    change = fast() - plain()[0]
    yield Row("cpu", "plain float32 network, whole frame", slow, "s")
    yield Row("cpu", f"tiles in {str(engine._fast.dtype).removeprefix('torch.')}", quick, "s")
    yield Row("cpu", "times as fast", slow / quick, "times", SPEED_TARGET, at_least=True)
    relative = float(change.square().mean().sqrt() / plain().std())
    yield Row("cpu", "what half precision and tiles change, rms", 100 * relative, "%")
    yield from whole_rows("cpu", 1, model, snapshot, mask)


def cuda_rows(rounds: int) -> Iterator[Row]:
    model, (snapshot, mask) = network(), shot(SIDE)
    engine = Engine(model, torch.device("cuda"), "half")
    taken = timed(lambda: engine.run(Observation(snapshot[None], mask, CAMERA)), "cuda", rounds, 5)
    yield Row("cuda", "660×714 snapshot to cube, host to host", 1000 * taken, "ms", GPU_TARGET_MS)
    plain = model.to("cuda")
    on_gpu = snapshot[None].to("cuda"), mask.to("cuda")

    @torch.inference_mode()
    def whole() -> Tensor:
        cube: Tensor = plain(*on_gpu, CAMERA)
        return cube

    yield Row("cuda", "plain float32 network alone", 1000 * timed(whole, "cuda", rounds, 5), "ms")
    yield from whole_rows("cuda", rounds, network(), snapshot, mask)


def whole_rows(
    device: str, rounds: int, model: Reconstructor, snapshot: Tensor, mask: Tensor
) -> Iterator[Row]:
    """Everything a person waits for: loading the network, all checks, the cube as a record."""
    records = Measurement(snapshot.numpy()), Mask(mask[0, 0].numpy())

    def everything() -> object:
        return reconstruct(*records, CAMERA, model=model, device=device, precision="half")

    yield Row(device, "with checks and self-check", timed(everything, device, rounds), "s")


# --- memory --------------------------------------------------------------------------------------


def memory_rows(device: str) -> Iterator[Row]:
    held = []
    for side in LARGE:
        if device == "cpu":
            command = [sys.executable, __file__, "--measure-memory", str(side)]
            command += ["--threads", str(torch.get_num_threads())]
            held.append(float(subprocess.run(command, check=True, capture_output=True).stdout))
        else:
            held.append(cuda_memory(side))
        yield Row(device, f"{side}², memory beside the cube", held[-1] / 1e6, "MB")
    what = f"{LARGE[1]}² against {LARGE[0]}²"
    yield Row(device, what, held[1] / held[0], "times", MEMORY_TARGET)


def cpu_memory(side: int) -> float:
    """Runs alone in a fresh process: the high-water mark cannot be somebody else's."""
    snapshot, mask = shot(side)
    # Memory does not ask how deep a network is; a shallow one makes this quick.
    engine = Engine(create_model("srn", seed=0, blocks=1).eval(), torch.device("cpu"), "half")
    small, code = shot(64)
    engine.run(Observation(small[None], code, CAMERA))  # brings in what torch loads late
    before = resident("VmRSS")
    cube = engine.run(Observation(snapshot[None], mask, CAMERA)).values
    return resident("VmHWM") - before - cube.numel() * 4


def cuda_memory(side: int) -> float:
    snapshot, mask = shot(side)
    engine = Engine(network(), torch.device("cuda"), "half")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    cube = engine.run(Observation(snapshot[None], mask, CAMERA)).values
    return torch.cuda.max_memory_allocated() - before - cube.numel() * 4


# --- the command itself --------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    """What a process took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: float


def run_command(folder: str, source: Path, threads: int) -> Used:
    """`prismask reconstruct` of a checkout, from the shell to the written file."""
    command = [sys.executable, "-m", "prismask", "reconstruct", f"{folder}/measurement.npy",
               "--mask", f"{folder}/mask.npy", "-o", f"{folder}/cube.nc", "--overwrite",
               "--device", "cpu"]  # fmt: skip
    here = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    taken = time.perf_counter() - start
    return Used(taken, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def command_rows(rounds: int, threads: int, against: Path | None) -> Iterator[Row]:
    """Start-up and a whole frame, of this checkout and of another in turn.

    The least of the rounds: whatever else a machine does only ever adds.
    """
    needed = ("cyclopts", "h5netcdf", "PIL", "colour")
    if any(importlib.util.find_spec(name) is None for name in needed):
        return
    own = Path(prismask.__file__).parents[1]
    sources = {"": own} if against is None else {"before: ": against / "src", "": own}
    for side, what in ((32, "tiny snapshot"), (SIDE, "660×714")):
        with tempfile.TemporaryDirectory() as folder:
            snapshot, mask = shot(side)
            noise = torch.randn(snapshot.shape, generator=torch.Generator().manual_seed(1))
            np.save(f"{folder}/measurement.npy", (snapshot + 0.05 * noise).numpy())
            np.save(f"{folder}/mask.npy", mask[0, 0].numpy())
            found: dict[str, list[Used]] = {name: [] for name in sources}
            for _ in range(rounds):
                for name, source in sources.items():
                    found[name].append(run_command(folder, source, threads))
        for name, used in found.items():
            tiny, ours = side != SIDE, not name
            words, start = f"{name}the command, {what}", START_TARGET if tiny and ours else None
            peak = None if tiny or not ours else PEAK_TARGET
            yield Row("cpu", words, min(one.seconds for one in used), "s", start)
            yield Row("cpu", f"{words}, all cores", min(one.cpu_seconds for one in used), "s")
            yield Row(
                "cpu", f"{words}, peak", min(one.peak_bytes for one in used) / 1e9, "GB", peak
            )


# --- the report ----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--device", choices=("cpu", "cuda", "all"), default="all")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch")
    parser.add_argument("--quick", action="store_true", help="one round, no memory rows")
    parser.add_argument("--against", type=Path, help="another checkout, to run its command in turn")
    parser.add_argument("--command-only", action="store_true", help="only rows of the command")
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure_memory:
        print(cpu_memory(options.measure_memory))
        return 0
    has_gpu = torch.cuda.is_available()
    if options.device == "cuda" and not has_gpu:
        parser.error("no CUDA device here; leave --device out to measure the CPU")
    rows: list[Row] = []
    if options.device in ("cpu", "all") and not options.command_only:
        rows += cpu_rows(1 if options.quick else 3)
        rows += [] if options.quick else memory_rows("cpu")
    if options.device in ("cpu", "all"):
        rows += command_rows(1 if options.quick else 3, options.threads, options.against)
    if has_gpu and options.device in ("cuda", "all"):
        rows += cuda_rows(10)
        rows += memory_rows("cuda")
    return report(machine(), rows, table(rows), options.json)


if __name__ == "__main__":
    sys.exit(main())
