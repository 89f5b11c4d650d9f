#!/usr/bin/env python
"""How much of what a wrong mask costs comes back when it is refined from snapshots.

    python results/refine.py [--data DIR] [--model lumen.m2m] [--cases sim real …] [--counts 10 3 1]

CAVE training scenes (128×160 from their middle) are what the lab photographs, through a mask that
is not as it was calibrated: the other of two real calibrations of one aperture, both ways, or one
with a planted fault. `refine_mask` is given the snapshots and the calibration. Scores are PSNR
paper [dB] of the network on the six CAVE validation scenes behind the true mask, told the
calibration, the refined mask with its `mask_std`, and the true mask; and how many pixels of the
refined mask lie within 1.64 of its `mask_std`. "unseen" takes its snapshots from the other
validation scenes, of which the network has learned nothing. Noise of σ = 0.0014 of docs/method.md.
Scores go to refine.json, and a table is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.evaluation.metrics import score
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.inference.refinement.refine import refine_mask
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.faults import Blur, DeadPixels, Rotation, Shift
from prismask.scenes.datasets import MaskRegion, data_folder, load_mask_file, load_scenes
from prismask.scenes.records import Mask, Measurement

HERE = Path(__file__).resolve().parent
SIZE, CAMERA, NOISE, SEED = (128, 160), CASSI.from_step(), 0.02, 28
FIRST = MaskRegion("masks/tsanet_sim_256.mat", (64, 192), (48, 208))
SECOND = MaskRegion("masks/tsanet_real_660.mat", (266, 394), (249, 409))
"""Two calibrations of the same part of one aperture."""
DUST = 0.01
"""Share of the pixels that dust closes."""
FAULTS = ("nothing", "shift", "turn", "blur", "dust", "gradient")
CASES = ("sim", "real", *FAULTS)


def masks(folder: Path, case: str) -> tuple[Tensor, Tensor]:
    """The true mask and the calibration, `(1, 1, H, W)` each."""
    first, second = (
        torch.tensor(load_mask_file(folder, region).values)[None, None]
        for region in (FIRST, SECOND)
    )
    if case in ("sim", "real"):
        return (first, second) if case == "sim" else (second, first)
    generator = torch.Generator().manual_seed(SEED)
    ramp = torch.linspace(0.8, 1.0, SIZE[1]).expand(1, 1, *SIZE)
    true = {
        "nothing": lambda: first,
        "shift": lambda: Shift(rows=0.6, columns=-0.8).apply(first),
        "turn": lambda: Rotation(0.5).apply(first),
        "blur": lambda: Blur(0.7).apply(first),
        "dust": lambda: DeadPixels(DUST).apply(first, generator),
        "gradient": lambda: first * ramp,
    }[case]()
    return true, first


def middle(values: Any) -> Tensor:
    """`(1, C, H, W)` up to 1."""
    array = np.asarray(values, np.float32)
    top, left = ((have - want) // 2 for have, want in zip(array.shape[1:], SIZE, strict=True))
    cut = array[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    return torch.tensor(cut / array.max())


def photographed(scenes: list[Tensor], mask: Tensor, seed: int) -> list[Measurement]:
    generator = torch.Generator().manual_seed(seed)
    seen = [CAMERA.forward(scene, mask)[0] for scene in scenes]
    noisy = [one + NOISE * torch.randn(one.shape, generator=generator) for one in seen]
    return [Measurement(one.numpy()) for one in noisy]


class Lab:
    """Scenes, and a network that is scored behind any mask."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.network = load_model(model)
        self.engine = Reconstruction(Options(device="cpu", check_mask=False), self.network)
        train, self.validation = (
            {name: middle(cube.values) for name, cube in load_scenes(folder, group).items()}
            for group in ("train", "validation")
        )
        self.train = dict(sorted(train.items())[::2])

    def scored(self, mask: Mask, true: Tensor, leave: str = "") -> float:
        """Mean over the validation scenes."""
        scenes = [scene for name, scene in self.validation.items() if leave in ("", name)]
        shots = photographed(scenes, true, SEED + 1)
        found = []
        for shot, scene in zip(shots, scenes, strict=True):
            cube = self.engine.run(shot, mask, CAMERA)
            found.append(float(score(torch.tensor(cube.values)[None], scene)["psnr_paper"][0]))
        return mean(found)

    def tried(self, case: str, count: int, unseen: str = "") -> dict[str, Any]:
        """One mask refined from `count` snapshots; `unseen`: the scene to score, others refine."""
        true, told = masks(self.folder, case)
        scenes = list(self.train.values())[:count]
        if unseen:
            scenes = [scene for name, scene in self.validation.items() if name != unseen][:count]
        if count == 1 and not unseen:
            scenes = [self.train["glass_tiles"]]
        calibrated = Mask(told[0, 0].numpy())
        started = time.perf_counter()
        found = refine_mask(
            photographed(scenes, true, SEED), calibrated, CAMERA, model=self.network, device="cpu"
        )
        seconds = time.perf_counter() - started
        error = torch.tensor(found.mask.values) - true[0, 0]
        levels = {"told": calibrated, "refined": found.mask, "true": Mask(true[0, 0].numpy())}
        row = {"case": case, "count": count, "unseen": unseen, "seconds": round(seconds, 1)}
        for name, mask in levels.items():
            row[name] = round(self.scored(mask, true, unseen), 3)
        spread = None if found.mask.std is None else torch.tensor(found.mask.std)
        return {
            **row, "rms_told": rms(told - true), "rms": rms(error),
            "inside": None if spread is None
            else round(float((error.abs() <= 1.64 * spread).float().mean()), 4),
            "kept": found.kept, "levels": [round(level, 5) for level in found.levels],
            "pose": [round(number, 3) for number in found.pose.numbers],
        }  # fmt: skip


def rms(values: Tensor) -> float:
    return round(float(values.double().square().mean().sqrt()), 5)


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        lost = row["true"] - row["told"]
        share = f"{100 * (row['refined'] - row['told']) / lost:.0f} %" if lost > 0.1 else "–"
        inside = "–" if row["inside"] is None else f"{100 * row['inside']:.1f} %"
        what = f"{row['case']}, {row['unseen']}" if row["unseen"] else row["case"]
        cells = [what, row["count"], *(f"{row[key]:.2f}" for key in ("told", "refined", "true")),
                 share, f"{row['rms_told']:.3f}", f"{row['rms']:.3f}", inside,
                 f"{row['seconds']:.0f}"]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="lumen.m2m")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--counts", nargs="+", type=int, default=[10, 3, 1])
    parser.add_argument("--unseen", nargs="*", default=["flowers", "beads"])
    parser.add_argument("--out", type=Path, default=HERE / "refine.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lab = Lab(data_folder(options.data), options.model)
    plan = [(case, count, "") for case in options.cases for count in options.counts]
    plan += [("sim", count, name) for name in options.unseen for count in (5, 3)]
    rows: list[dict[str, Any]] = []
    record = {
        "command": "python results/refine.py", "model": options.model,
        "weights_sha256": lab.network.record["sha256"], "rows": rows,
    }  # fmt: skip
    for case, count, unseen in plan:
        rows.append(lab.tried(case, count, unseen))
        print(json.dumps(rows[-1]), flush=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
