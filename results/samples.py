#!/usr/bin/env python
"""What the spread over drawn masks says of the error, and what it costs, on validation scenes.

    python results/samples.py [--model lumen.m2m] [--samples 16] [--rows 96] [--data DIR]

The middle of the six CAVE validation scenes, 256 columns wide, with noise σ = 0.005 of the cube's
range. The masks are a fabricated one, the same half a pixel aside, and the two real calibrations
of one aperture, each given where the light went through the other. Printed are PSNR paper of a
single pass and of the mean over the samples; the rank correlation of standard deviation and
absolute error, value by value; the slope of the error over the standard deviation in double
logarithms, over tenths of the values from the smallest deviation to the largest (1: the error
follows it); how many times the error is the standard deviation, rms; and the time of all samples
over that of a single pass of the network.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from prismask.evaluation.metrics import score
from prismask.inference.inspection import prepare
from prismask.inference.methods.network import NetworkMethod, read_back
from prismask.inference.methods.registry import network_method
from prismask.inference.options import Options
from prismask.models.inputs import network_scale
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Shift
from prismask.optics.masks import KNOWN_ALIASES
from prismask.optics.randomness import seeded
from prismask.scenes.datasets import data_folder, load_mask_file, load_scenes

CAMERA, COLUMNS, NOISE, MARGIN = CASSI.from_step(), 256, 0.005, 4
NAMES = ("single", "mean", "rank", "slope", "error / std", "time")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="lumen.m2m")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    given = parser.parse_args()
    folder = data_folder(given.data)
    method = network_method(load_model(given.model), torch.device("cpu"), Options())
    scenes = [middle(torch.from_numpy(cube.values.copy()), given.rows)
              for cube in load_scenes(folder, "validation").values()]  # fmt: skip
    print("| mask | " + " | ".join(NAMES) + " |\n|---" + "|---" * len(NAMES) + "|")
    for name, (coded, known, told) in masks(folder, given.rows).items():
        found = [judged(method, scene, coded, known, told, given.samples) for scene in scenes]
        means = np.mean(found, axis=0)
        print(f"| {name} | " + " | ".join(f"{value:.3g}" if k > 1 else f"{value:.2f}"
                                          for k, value in enumerate(means)) + " |")  # fmt: skip


def middle(image: Tensor, rows: int) -> Tensor:
    top, left = (image.shape[-2] - rows) // 2, (image.shape[-1] - COLUMNS) // 2
    return image[..., top : top + rows, left : left + COLUMNS].contiguous()


def masks(folder: Path, rows: int) -> dict[str, tuple[Tensor, Tensor, float | None]]:
    """What the light meets, what the network is given, and what it is told."""
    draw = seeded(123)
    larger = (rows + 2 * MARGIN, COLUMNS + 2 * MARGIN)
    whole = fabricate_mask(larger, draw, random_aperture(draw))[None, None]
    right, aside = middle(whole, rows), middle(Shift(rows=0.3, columns=0.4).apply(whole), rows)
    off = float((aside - right).square().mean().sqrt())
    alias = KNOWN_ALIASES[0]
    real, single = (
        torch.from_numpy(load_mask_file(folder, f"masks/{name}.mat").values.copy())[None, None]
        for name in ("tsanet_real_660", "tsanet_sim_256")
    )
    size = single.shape[-2:]
    real = real[..., alias.row : alias.row + size[0], alias.column : alias.column + size[1]]
    real, single = middle(real, rows), middle(single, rows)
    return {
        "right": (right, right, None),
        "half a pixel aside": (aside, right, None),
        f"the same, mask_std {off:.2f} stated": (aside, right, off),
        "the other calibration given, one way": (single, real, None),
        "and the other": (real, single, None),
    }


def judged(
    method: NetworkMethod, scene: Tensor, coded: Tensor, known: Tensor, told: float | None,
    samples: int,
) -> list[float]:  # fmt: skip
    shot = CAMERA.forward(scene[None], coded)
    std = NOISE / network_scale(CAMERA.bands)
    shot = shot + std * torch.randn(shot.shape, generator=seeded(7))
    (snapshot,) = prepare(shot, known, CAMERA, Options(mask_std=told)).snapshots()
    seen = method.view_of(snapshot)
    cubes, seconds, spread = [], [], None
    for count in (0, samples):
        started = time.perf_counter()
        made = method.engine.run(seen.shown, samples=count)
        seconds.append(time.perf_counter() - started)
        values, spread, *_ = read_back(seen, made)
        cubes.append(torch.from_numpy(values))
    assert spread is not None
    psnr = [float(score(one[None], scene[None], ("psnr_paper",))["psnr_paper"][0]) for one in cubes]
    error = (cubes[1] - scene).abs().flatten().double().numpy()
    return [*psnr, *followed(error, spread.ravel().astype(float)), seconds[1] / seconds[0]]


def followed(error: np.ndarray, std: np.ndarray) -> tuple[float, float, float]:
    rank = float(np.corrcoef(rankdata(error), rankdata(std))[0, 1])
    tenths = np.array_split(np.argsort(std), 10)
    size, deviation = (
        np.log([np.sqrt(np.square(of[part]).mean()) for part in tenths]) for of in (error, std)
    )
    slope = float(np.polyfit(deviation, size, 1)[0])
    return rank, slope, float(np.sqrt(np.square(error).mean() / np.square(std).mean()))


if __name__ == "__main__":
    main()
