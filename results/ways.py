"""Ask networks up to four ways round on the validation scenes.

    python results/ways.py WEIGHTS… [--data DIR] [--json FILE]

As it is, mirrored across the dispersion, along it with the spectrum reversed (which is right for
cameras with equal steps between bands), and both; then the means that could be given instead. Six
scenes, native and averaged 2×2, and enlarged twice; two masks of the training region and two
fabricated ones; PSNR paper in dB.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.evaluation.metrics import psnr
from prismask.evaluation.run.training import fabricated_masks, region_masks, validation_cubes
from prismask.models.network import Reconstructor
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import SIZE
from prismask.training.config import TrainConfig, with_changes
from prismask.training.setup import prepare

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAMES = ("as it is", "across", "reversed", "both", "two: across", "two: reversed", "four")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("weights", nargs="+")
    parser.add_argument("--data", default="", help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    prepared = prepare(with_changes(TrainConfig(), data={"folder": given.data}), DEVICE)
    assert prepared.region is not None, "the data folder has a training region"
    scenes = prepared.validation_scenes
    larger = F.interpolate(scenes, scale_factor=2, mode="bilinear")
    # Of enlarged scenes the middle alone: averaged 2×2 the whole would be the scene as it was.
    sets = {
        "native": validation_cubes(scenes, SIZE),
        "enlarged": validation_cubes(larger, SIZE)[: len(scenes)],
    }
    region, camera = torch.tensor(prepared.region.values, device=DEVICE), prepared.camera
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in given.weights:
        network = load_model(name).to(DEVICE)
        found[Path(name).name] = {}
        for what, cubes in sets.items():
            known, new = region_masks(region, cubes, camera, 2), fabricated_masks(cubes, camera, 2)
            rows = [
                scores(network, cube[None], mask[None], camera)
                for mask in torch.cat([known, new])
                for cube in cubes
            ]
            mean = torch.stack(rows).mean(0).tolist()
            found[Path(name).name][what] = dict(zip(NAMES, mean, strict=True))
            print(
                name, what, {key: round(value, 2) for key, value in zip(NAMES, mean, strict=True)}
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def scores(network: Reconstructor, cube: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """PSNR of every answer and of the means, in the order of `NAMES`."""
    measurement = camera.forward(cube, mask)
    answers = []
    for flips in ((), (-2,), (-1,), (-2, -1)):
        answer = network(measurement.flip(flips), mask.flip(flips), camera).flip(flips)
        answers.append(answer.flip(1) if -1 in flips else answer)
    plain, across, reverse, both = answers
    means = [(plain + across) / 2, (plain + reverse) / 2, (plain + across + reverse + both) / 4]
    return torch.cat([psnr(one, cube, convention="paper") for one in (*answers, *means)])


if __name__ == "__main__":
    main()
