"""Sizes of lumen that a CPU can run: weights, multiply-adds and CPU seconds of a frame.

    python benchmarks/small_networks.py [--only NAME …] [--step 1.7]

CPU seconds are those of one thread, so other programs on the machine change them little. The
candidates' weights are random: only their number matters.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from prismask.inference.engine import Engine
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.registry import count_multiply_adds, count_parameters, create_model
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import STEP

LARGE = "lumen.m2m"
CANDIDATES: dict[str, dict[str, Any]] = {
    "deep": {"width": 16, "stages": 4, "levels": 4, "widest": 96},
    "shallow": {"width": 24, "stages": 3, "levels": 3, "widest": 64},
    "folded": {"width": 40, "stages": 3, "levels": 3, "widest": 72, "fold": 2},
    "folded, two looks": {"width": 48, "stages": 2, "levels": 3, "widest": 96, "fold": 2},
}
FRAMES = {(256, 256): 3, (660, 660): 1}
"""Scenes, and how often each is timed; the quickest counts."""


def build(name: str) -> Reconstructor:
    if name == LARGE:
        return load_model(name)
    return create_model("lumen", seed=0, encode=False, **CANDIDATES[name])


def cpu_seconds(engine: Engine, camera: CASSI, size: tuple[int, int], repeats: int) -> float:
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(1, 1, *size, generator=generator)
    shot = camera.forward(torch.rand(1, camera.bands, *size, generator=generator), mask)
    seen = Observation(shot, mask, camera, torch.tensor([0.01]))
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        engine.run(seen)
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    names = [LARGE, *CANDIDATES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--step", type=float, default=STEP, help="pixels per band")
    given = parser.parse_args()
    camera = CASSI.from_step(step=given.step)
    torch.set_num_threads(1)
    print("| network | weights | multiply-adds | 256×256 | 660×714 |\n|---|---|---|---|---|")
    for name in given.only:
        model = build(name)
        engine = Engine(model, torch.device("cpu"), "half")
        times = [cpu_seconds(engine, camera, size, repeats) for size, repeats in FRAMES.items()]
        facts = (
            f"{count_parameters(model) / 1e6:.2f} M",
            f"{count_multiply_adds(model, CASSI.from_step()) / 1e9:.1f} G",
            *(f"{seconds:.2f} s" for seconds in times),
        )
        print(f"| {name} | {' | '.join(facts)} |", flush=True)


if __name__ == "__main__":
    main()
