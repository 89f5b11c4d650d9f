"""Where the time of a training step goes: making the batch, the step, and the kernels in it.

    python benchmarks/train_profile.py CONFIG.toml [--set KEY=VALUE …] [--steps 50] [--kernels 25]

Takes a real configuration with its scenes, masks and faults. Prints milliseconds for making a batch
by itself, for the step with and without it, and on CUDA the kernels that take longest. Needs
torch, NumPy, SciPy and safetensors only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common import synchronise
from prismask.models.machine import choose_device
from prismask.training.config import read_config
from prismask.training.distributed import World
from prismask.training.run import _batches
from prismask.training.setup import build_model, prepare
from prismask.training.state import new_state, phase_of_epoch
from prismask.training.step import STEPS_BEFORE_RECORDING, Stepper, Training


def seconds_of(run: Callable[[], Any], count: int, device: torch.device) -> float:
    synchronise(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    synchronise(device)
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=25)
    given = parser.parse_args()
    config = read_config(given.config, given.changes)
    device = choose_device(config.speed.device)
    torch.backends.cudnn.benchmark = True
    prepared = prepare(config, device)
    whole = slice(0, config.schedule.batch)
    batches = _batches(config, prepared, prepared.train_scenes, "training", whole)
    state = new_state(build_model(config, device), config)
    run = Training(config, prepared.camera, batches, batches, device, World(), None)
    step = Stepper(state, run)
    phase = phase_of_epoch(config.schedule.warmup_epochs, config.schedule)
    start = time.perf_counter()
    for _ in range(STEPS_BEFORE_RECORDING + 2):
        step(phase)
    synchronise(device)
    print(f"{config.name}: first steps, compiling included: {time.perf_counter() - start:.1f} s")

    def one_step() -> None:
        step(phase)
        state.step += 1

    both = seconds_of(one_step, given.steps, device)
    making = seconds_of(lambda: batches.make(state.step), given.steps, device)
    kept = batches.make(state.step)
    batches.make = lambda _: kept  # type: ignore[method-assign]
    alone = seconds_of(one_step, given.steps, device)
    print(
        f"step with its batch {1e3 * both:.2f} ms ({1 / both:.1f} per second), without making it "
        f"{1e3 * alone:.2f} ms, making it by itself {1e3 * making:.2f} ms"
    )
    if device.type == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(5):
                one_step()
            synchronise(device)
        table = profile.key_averages().table(
            sort_by="self_device_time_total", row_limit=given.kernels, max_name_column_width=90
        )
        print(table)


if __name__ == "__main__":
    main()
