"""What bad pixels of the sensor cost, by what is done about them.

    python results/bad_pixels.py [--data DIR] [--methods lumen.m2m gap-tv …]

Validation scenes (CAVE) are photographed through fabricated masks that nobody has seen, with noise
of σ = 0.01 (docs/method.md), by a sensor of which `SHARE` of the pixels are hot or dead, half each.
Every snapshot is reconstructed as if all pixels were sound (`sound`), as it is (`kept`), with bad
pixels filled from their neighbours and then taken as measured (`filled`), and as `reconstruct` does
it with the map of bad pixels (`left_out`). `found`: share of them that it finds without a map.

PSNR paper and the share of true values inside the 90 % interval: of all values, and of those whose
light falls on a bad pixel.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismask.inference import raw_frames
from prismask.inference.engine import throughput
from prismask.inference.reconstruct import reconstruct
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_scenes
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.solvers import list_solvers

HERE = Path(__file__).resolve().parent
SIZE = (160, 256)
CAMERA = CASSI.from_step()
SHARE, NOISE, HOT = 0.005, 0.01, 3.0
SEED = 515_151


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--methods", nargs="+", default=["lumen.m2m", "gap-tv"])
    parser.add_argument("--scenes", type=int, default=6, help="the first of them")
    parser.add_argument("--out", type=Path, default=HERE / "bad-pixels.json")
    options = parser.parse_args()
    generator, rows = torch.Generator().manual_seed(SEED), []
    scenes = load_scenes(data_folder(options.data), "validation")
    for name, cube in list(scenes.items())[: options.scenes]:
        for row in of_scene(name, cube, options.methods, generator):
            rows.append(row)
            print(json.dumps(row), flush=True)
    record = {
        "command": f"python results/bad_pixels.py --methods {' '.join(options.methods)}",
        "summary": summary(rows),
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["summary"], indent=1))


def of_scene(
    name: str, cube: Cube, methods: list[str], generator: torch.Generator
) -> list[dict[str, Any]]:
    """One snapshot, by each method and with each treatment."""
    top, left = ((have - want) // 2 for have, want in zip(cube.size, SIZE, strict=True))
    truth = torch.tensor(cube.values[:, top : top + SIZE[0], left : left + SIZE[1]])
    mask = fabricate_mask(CAMERA.mask_size(SIZE), generator, random_aperture(generator))[None, None]
    sound = CAMERA.forward(truth[None], mask)[0]
    sound = sound + NOISE / network_scale(CAMERA.bands) * torch.randn(
        sound.shape, generator=generator
    )
    drawn = torch.rand(sound.shape, generator=generator)
    bad = drawn < SHARE
    spoilt = torch.where(bad, torch.where(drawn < SHARE / 2, HOT * sound.max(), 0.0), sound)
    light = throughput(mask, CAMERA).numpy()
    filled = raw_frames.filled(spoilt.numpy(), bad.numpy(), light)
    found = raw_frames.outliers(spoilt.numpy(), light)
    hit = CAMERA.unshear(bad[None].float())[0].bool()
    frames: dict[str, tuple[Any, Any]] = {
        "sound": (sound.numpy(), "none"),
        "kept": (spoilt.numpy(), "none"),
        "filled": (filled, "none"),
        "left_out": (spoilt.numpy(), bad.numpy()),
    }
    rows = []
    for method in methods:
        which = {"method": method} if method in list_solvers() else {"model": method}
        for treatment, (values, marks) in frames.items():
            made = reconstruct(
                Measurement(values), Mask(mask[0, 0].numpy()), CAMERA,
                bad_pixels=marks, check_mask=False, dark=0.0, **which,
            )  # fmt: skip
            rows.append({
                "scene": name, "method": method, "treatment": treatment,
                "found": round(float(found[bad.numpy()].mean()), 3),
                "wrongly_found": int(found[~bad.numpy()].sum()),
                **{
                    f"{what}_{where}": number
                    for where, part in (("all", torch.ones_like(hit)), ("hit", hit))
                    for what, number in scores(made, truth, part).items()
                },
            })  # fmt: skip
    return rows


def scores(cube: Cube, truth: torch.Tensor, part: torch.Tensor) -> dict[str, float]:
    """PSNR with a peak of 1 over a part of the values, and the share of them that is inside."""
    wrong = (torch.tensor(cube.values) - truth)[part].double().square().mean()
    scored = {"psnr": round(float(-10 * torch.log10(wrong)), 3)}
    if cube.lower is not None and cube.upper is not None:
        within = (np.asarray(cube.lower) <= truth.numpy()) & (truth.numpy() <= cube.upper)
        scored["inside"] = round(float(within[part.numpy()].mean()), 4)
    return scored


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the scenes."""
    made: dict[str, Any] = {}
    for row in rows:
        made.setdefault(row["method"], {}).setdefault(row["treatment"], []).append(row)
    return {
        method: {
            treatment: {
                key: round(float(np.mean([row[key] for row in several])), 3)
                for key in several[0]
                if key not in ("scene", "method", "treatment")
            }
            for treatment, several in treatments.items()
        }
        for method, treatments in made.items()
    }


if __name__ == "__main__":
    main()
