"""What a trained mask posterior does to masks, and what its network makes of them.

    python results/posterior.py WEIGHTS… [--data DIR]

For each weights file: how large g is where the mask is closed, half open and open; by how much
m' = m + g ⊙ ε then lies beside m (its mean and its spread over ε); and PSNR paper on the
validation scenes when the network is shown m itself, the mean of m', and one m' drawn from it.
Masks are two crops of the training region.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prismask.evaluation.metrics import psnr
from prismask.evaluation.run.training import validation_cubes
from prismask.models.inputs import Observation
from prismask.models.network import Reconstructor
from prismask.models.weights import load_weights
from prismask.optics.camera import CASSI
from prismask.scenes.datasets import data_folder, load_mask_file, load_scenes, read_split

CORNERS = ((40, 60), (120, 330))
PARTS = (("closed (m < 0.1)", 0.0, 0.1), ("half open", 0.1, 0.9), ("open (m > 0.9)", 0.9, 1.01))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("weights", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    given = parser.parse_args()
    folder = data_folder(given.data)
    place = read_split(folder).masks["train"]
    whole = torch.tensor(load_mask_file(folder, place.file).values)
    masks = [whole[None, None, y : y + 256, x : x + 256] for y, x in CORNERS]
    scenes = load_scenes(folder, "validation")
    cubes = validation_cubes(torch.from_numpy(np.stack([c.values for c in scenes.values()])), 256)
    for path in given.weights:
        print(f"\n{path}")
        with torch.inference_mode():
            told(load_weights(path).eval(), masks, cubes[: len(scenes)])


def told(model: Reconstructor, masks: list[Tensor], cubes: Tensor) -> None:
    config = model.posterior.config
    print("| where | g | mean of m' − m | spread |\n|---|---|---|---|")
    mask = torch.cat([m.flatten() for m in masks])
    size = torch.cat([model.posterior.std(m).flatten() for m in masks])
    for name, low, high in PARTS:
        here = float(size[(mask >= low) & (mask < high)].mean())
        moved, spread = here * config.prior_mean, here * config.prior_std
        print(f"| {name} | {here:.3g} | {moved:+.2g} | {spread:.2g} |")
    print(f"g and m go together by {float(np.corrcoef(mask, size)[0, 1]):+.2f}\n")
    generator = torch.Generator().manual_seed(0)
    shown = {
        "m": lambda m: m,
        "mean of m'": model.posterior.mean,
        "m' drawn": lambda m: model.posterior.sample(m, 1, generator=generator)[0],
    }
    for name, changed in shown.items():
        print(f"shown {name}: {score(model, cubes, masks, changed):.2f} dB", flush=True)


def score(
    model: Reconstructor, cubes: Tensor, masks: list[Tensor], changed: Callable[[Tensor], Tensor]
) -> float:
    camera, found = CASSI.from_step(), []
    for mask in masks:
        for cube in cubes:
            light = camera.forward(cube[None], mask)
            estimate = model.reconstruct(Observation(light, changed(mask), camera))
            found.append(float(psnr(estimate, cube[None], convention="paper").mean()))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
