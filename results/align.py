#!/usr/bin/env python
"""What `--align` finds where the truth is known: CAVE validation scenes behind planted poses.

    python results/align.py [--data DIR] [--scenes cloth flowers] [--noise 0.01]

The middle 128×256 pixels of each scene, photographed through a fabricated mask that is read in
another pose than calibrated, or through one of two real calibrations of one aperture while the
other is told. PSNR paper [dB] of lumen.m2m with the mask as told, as found and the true one, how
far the numbers found are off (shift, angle, width of the spectrum), in standard deviations as told,
and the seconds of one core that the search took. Scores go to align.json; means are printed.

    python results/align.py --real tsanet smem

asks the real snapshots whose names begin so, and writes align-real.json.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from real import INSTRUMENTS
from torch import Tensor

from prismask.evaluation.metrics import psnr
from prismask.inference.alignment.pose import FIELDS, MaskPose
from prismask.inference.engine import Engine
from prismask.inference.inspection import inspect, prepare
from prismask.inference.methods.network import NetworkMethod
from prismask.inference.options import Options
from prismask.models.inputs import network_scale
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_scenes
from prismask.scenes.formats.files import load_mask, load_measurement

HERE = Path(__file__).resolve().parent
SIZE, CAMERA, SEED = (128, 256), CASSI.from_step(), 57


def turned(degrees: float, down: float = 0.0, right: float = 0.0) -> MaskPose:
    by = math.sin(math.radians(degrees))
    return MaskPose(down, right, down_by_column=by * SIZE[1] / 2, right_by_row=-by * SIZE[0] / 2)


def spread(percent: float) -> MaskPose:
    """A spectrum that is wider about its middle."""
    return MaskPose(spread=percent / 100 * max(CAMERA.offsets) / 2)


PLANTED = {
    "nothing": MaskPose(),
    "0.25 px": MaskPose(-0.15, 0.2),
    "0.5 px": MaskPose(-0.3, -0.4),
    "1 px": MaskPose(0.6, -0.8),
    "1.5 px": MaskPose(1.0, 1.1),
    "3 px": MaskPose(-1.8, 2.4),
    "0.3°": turned(0.3),
    "0.5°": turned(-0.5),
    **{f"dispersion {percent:+} %": spread(percent) for percent in (1, -1, 2, -2)},
    "blur 0.7 px": MaskPose(blur=0.49),
    "1.5 / 1.0 px, 0.3°": turned(0.3, -1.0, -1.5),
    "closed cells let 10 % through": MaskPose(haze=0.1),
}
REAL = {"two calibrations": False, "two calibrations, the other way": True}
"""Whether the smaller one is the true one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--scenes", nargs="+", default=["cloth", "flowers"])
    parser.add_argument("--noise", type=float, default=0.01, help="as in docs/method.md")
    parser.add_argument("--faults", nargs="+", default=[*PLANTED, *REAL])
    parser.add_argument("--real", nargs="+", default=[], help="how names of real snapshots begin")
    parser.add_argument("--out", type=Path, default=HERE / "align.json")
    options = parser.parse_args()
    folder = data_folder(options.data)
    if options.real:
        of_real_snapshots(folder, options.real)
        return
    scenes, method = load_scenes(folder, "validation"), lumen()
    rows: list[dict[str, Any]] = []
    for fault in options.faults:
        for name in options.scenes:
            seed = SEED + 100 * list(scenes).index(name) + [*PLANTED, *REAL].index(fault)
            truth = middle(np.asarray(scenes[name].values, np.float32))
            case = (truth, *masks(folder, fault, seed), options.noise, seed)
            rows.append({"scene": name, "fault": fault, **tried(method, *case)})
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            options.out.write_text(f'{{"noise": {options.noise}, "rows": [\n{lines}\n]}}\n')
    print(table(rows))


def of_real_snapshots(folder: Path, names: list[str]) -> None:
    """The pose that each says, what is left of the lines held out, and the seconds of one core."""
    method, out = lumen(), HERE / "align-real.json"
    rows = json.loads(out.read_text()) if out.exists() else {}
    for path in sorted((folder / "measurements").glob("*.mat")):
        if not path.stem.startswith(tuple(names)):
            continue
        mask, bands = INSTRUMENTS[path.stem.split("_")[0]]
        told, camera = load_mask(folder / "masks" / f"{mask}.mat"), CASSI.from_step(bands)
        shot = inspect(load_measurement(path), told, camera, Options(), method.engine.device)
        started = time.process_time()
        found = method.align(shot.snapshot)
        rows[path.stem] = {
            "pose": rounded(found.pose), "std": rounded(found.std),
            "left": [round(found.before, 4), round(found.after, 4)],
            "seconds": round(time.process_time() - started, 1),
        }  # fmt: skip
        print(path.stem, json.dumps(rows[path.stem]), flush=True)
        out.write_text(json.dumps(rows, indent=1) + "\n")


def lumen() -> NetworkMethod:
    return NetworkMethod(Engine(load_model("lumen.m2m"), torch.device("cpu")), "lumen.m2m")


def middle(values: np.ndarray[Any, np.dtype[np.float32]]) -> Tensor:
    """`(1, C, H, W)` up to 1."""
    top, left = ((have - want) // 2 for have, want in zip(values.shape[1:], SIZE, strict=True))
    cut = values[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    return torch.tensor(cut / values.max())


def masks(folder: Path, fault: str, seed: int) -> tuple[Tensor, Tensor, MaskPose]:
    """The mask that is told, the one that is met, and the pose of the latter."""
    if fault in PLANTED:
        numbers = torch.Generator().manual_seed(seed)
        told = fabricate_mask(SIZE, numbers, random_aperture(numbers))[None, None]
        return told, replace(PLANTED[fault], spread=0.0).moved(told), PLANTED[fault]
    small = load_mask(folder / "masks" / "tsanet_sim_256.mat").values
    large = load_mask(folder / "masks" / "tsanet_real_660.mat").values[202:458, 201:457]
    both = [torch.tensor(one[64 : 64 + SIZE[0]])[None, None] for one in (small, large)]
    return (*(both[::-1] if REAL[fault] else both), MaskPose())


def tried(
    method: NetworkMethod,
    truth: Tensor,
    told: Tensor,
    met: Tensor,
    pose: MaskPose,
    noise: float,
    seed: int,
) -> dict[str, Any]:
    """One snapshot of `truth (1, C, H, W)`, its pose found, and what cubes are worth."""
    wider = MaskPose(spread=pose.spread)
    signal = CAMERA.forward(wider.shown(truth, CAMERA), wider.read(met, CAMERA))
    std = noise / network_scale(CAMERA.bands)
    signal = signal + std * torch.randn(signal.shape, generator=torch.Generator().manual_seed(seed))
    (snapshot,) = prepare(signal, told, CAMERA, Options(noise_std=std or None)).snapshots()

    def score(at: MaskPose, mask: Tensor = told) -> float:
        cube = method(replace(snapshot, mask=at.read(mask, CAMERA)), UNCHECKED).values
        back = at.straightened(torch.tensor(cube)[None], CAMERA)
        return round(float(psnr(back, truth)), 2)

    started = time.process_time()
    found = method.align(snapshot)
    seconds = time.process_time() - started
    off = MaskPose(*(a - b for a, b in zip(found.pose.numbers, pose.numbers, strict=True)))
    return {
        "nominal": score(MaskPose()), "found": score(found.pose), "true": score(wider, met),
        "seconds": round(seconds, 1), "is_worth_it": found.is_worth_it,
        "left": [round(found.before, 4), round(found.after, 4)],
        "off": rounded(off), "std": rounded(found.std),
    }  # fmt: skip


UNCHECKED = Options(check_mask=False)


def rounded(pose: MaskPose) -> dict[str, float]:
    return {name: round(getattr(pose, name), 3) for name in FIELDS}


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the scenes; of what is off the largest."""
    lines = []
    for fault in dict.fromkeys(row["fault"] for row in rows):
        some = [row for row in rows if row["fault"] == fault]
        scores = [f"{mean(row[key] for row in some):.2f}" for key in ("nominal", "found", "true")]
        worst = min(row["found"] - row["true"] for row in some)
        seconds = f"{mean(row['seconds'] for row in some):.0f}"
        off = [row["off"] for row in some]
        shift = max(max(abs(one["down"]), abs(one["right"])) for one in off)
        turn = max(
            abs(one["down_by_column"] / SIZE[1] - one["right_by_row"] / SIZE[0]) for one in off
        )
        width = max(200 * abs(one["spread"]) / max(CAMERA.offsets) for one in off)
        known = [f"{shift:.2f} px", f"{math.degrees(turn):.2f}°", f"{width:.1f} %"]
        cells = [fault, *scores, f"{worst:+.2f}", *(["", "", ""] if fault in REAL else known)]
        lines.append(f"| {' | '.join([*cells, seconds])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
