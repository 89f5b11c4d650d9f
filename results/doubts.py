"""Are wrong masks found out, and does the interval hold then?

    python results/doubts.py [--data DIR] [--model srn-looks.m2m] [--scenes validation test]

Scenes are photographed through masks that are right, beside their place, out of focus, or behind a
prism that spreads the spectrum further; `reconstruct` is given the mask as calibrated. Counted: how
often the snapshot contradicts its mask, and how many true values lie inside the 90 % interval, by
the quantile of right masks ("before") and as `reconstruct` gives it. Validation scenes (CAVE) are
seen through crops of training masks and fabricated ones, test scenes (KAIST) through masks of the
other instrument; noise of 0.02 on the sum over the bands (σ = 0.0014 of docs/method.md). Nothing is
chosen here. Scores go to doubts.json.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask.evaluation.metrics import score
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.intervals.learned import coverage
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_mask_file, load_scenes, read_split
from prismask.scenes.records import Cube, Mask, Measurement

HERE = Path(__file__).resolve().parent
SIZE = (192, 224)
NOISE = 0.02
CAMERA = CASSI.from_step()
RIGHT = 2
"""Right masks that each scene meets."""
SHIFTS, BLURS, SPREADS = (0.25, 0.5, 1.0), (0.5, 0.7), (0.005, 0.01, 0.02)
"""Pixels aside and of blur; by how much further the spectrum spreads."""
OTHER = "test_other_hardware"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="srn-looks.m2m")
    parser.add_argument("--scenes", nargs="+", default=["validation", "test"])
    parser.add_argument("--json", type=Path, default=HERE / "doubts.json")
    options = parser.parse_args()
    folder = data_folder(options.data)
    work = [
        (folder, options.model, part, number)
        for part in options.scenes
        for number in range(len(load_scenes(folder, part)))
    ]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 1) as pool:
        rows = [row for found in pool.imap(_scene, work, 1) for row in found]
    record = {
        "command": "python results/doubts.py --data DIR",
        "model": options.model,
        "weights_sha256": load_model(options.model).record["sha256"],
        "rows": rows,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


def cases(generator: torch.Generator) -> list[tuple[str, MaskPose]]:
    """What the mask is really like, by name."""
    found = [("right", MaskPose())] * RIGHT
    for shift in SHIFTS:
        angle = 2 * math.pi * float(torch.rand((), generator=generator))
        place = MaskPose(shift * math.sin(angle), shift * math.cos(angle))
        found.append((f"beside by {shift:g} px", place))
    found += [(f"blurred by {blur:g} px", MaskPose(blur=blur**2)) for blur in BLURS]
    over = max(CAMERA.offsets) / 2
    return found + [
        (f"dispersion {100 * more:+g} %", MaskPose(spread=more * over)) for more in SPREADS
    ]


def _scene(given: tuple[Path, str, str, int]) -> list[dict[str, Any]]:
    """All cases of one scene, with random numbers of its own."""
    folder, model, part, number = given
    torch.set_num_threads(1)
    asked, unasked = (
        Reconstruction(Options(model=model, device="cpu", check_mask=ask)) for ask in (True, False)
    )
    generator = torch.Generator().manual_seed(1000 + number)
    name, cube = list(load_scenes(folder, part).items())[number]
    top, left = ((n - s) // 2 for n, s in zip(cube.size, SIZE, strict=True))
    truth = torch.tensor(cube.values)[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    rows = []
    for at, (case, place) in enumerate(cases(generator)):
        nominal = _mask(folder, part, number + at, generator)
        signal = CAMERA.forward(place.shown(truth, CAMERA), place.read(nominal, CAMERA))[0]
        signal = signal + NOISE * torch.randn(signal.shape, generator=generator)
        shot, mask = Measurement(signal.numpy()), Mask(nominal[0, 0].numpy())
        before, now = (ready.run(shot, mask, CAMERA) for ready in (unasked, asked))
        values = torch.tensor(now.values)[None]
        rows.append(
            {
                "scenes": part,
                "scene": name,
                "case": case,
                "psnr_paper": round(float(score(values, truth)["psnr_paper"][0]), 3),
                "residual_over_noise": now.attrs["residual_over_noise"],
                "gain": now.attrs["mask_probe_gain"],
                "doubted": now.attrs["mask_inconsistent"],
                "inside_before": _inside(before, truth),
                "inside": _inside(now, truth),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _mask(folder: Path, part: str, number: int, generator: torch.Generator) -> Tensor:
    """A crop of the training masks or, in turn, a fabricated one; one of the other instrument."""
    if part == "validation" and number % 2:
        return fabricate_mask(SIZE, generator, random_aperture(generator))[None, None]
    place = read_split(folder).masks["train" if part == "validation" else OTHER]
    region = torch.tensor(load_mask_file(folder, place.file).values)
    if place.rows:
        region = region[place.rows[0] : place.rows[1]]
    top, left = (int(torch.randint(n - s + 1, (), generator=generator))
                 for n, s in zip(region.shape, SIZE, strict=True))  # fmt: skip
    return region[None, None, top : top + SIZE[0], left : left + SIZE[1]]


def _inside(cube: Cube, truth: Tensor) -> float:
    assert cube.lower is not None
    assert cube.upper is not None
    return round(coverage(truth[0], torch.tensor(cube.lower), torch.tensor(cube.upper)), 4)


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| scenes | mask | doubted | PSNR paper [dB] | residual / noise | before | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, case in dict.fromkeys((row["scenes"], row["case"]) for row in rows):
        of = [row for row in rows if (row["scenes"], row["case"]) == (part, case)]
        mean = {
            key: sum(row[key] for row in of) / len(of)
            for key in ("psnr_paper", "inside_before", "inside")
        }
        left = sorted(row["residual_over_noise"] for row in of)
        lines.append(
            f"| {part} | {case} | {sum(row['doubted'] for row in of)} of {len(of)} | "
            f"{mean['psnr_paper']:.2f} | {left[0]:.1f} to {left[-1]:.1f} | "
            f"{100 * mean['inside_before']:.1f} % | {100 * mean['inside']:.1f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
