#!/usr/bin/env python
"""Score a quick search for a mask's pose on CAVE validation scenes.

    python results/trials/pose_search/measure.py [--data DIR] [--scenes cloth]

Each scene (96×256 from its middle) is photographed through a fabricated mask that lies beside its
calibration, is turned, or out of focus (`optics.faults`), or behind a prism that spreads the
spectrum further about its middle; with noise of σ = 0.01 of docs/method.md. PSNR paper [dB] of
lumen.m2m with the nominal mask, with the mask as found and with the true one, of srn-looks.m2m with
the mask as found and the true one, and by how much the numbers found are off. Scores go to
measured.json, and a table of their means is printed.

The constants of the search were set on flowers, stuffed_toys and, for how surely a number is known,
beads; one, the spread's limit on the grid, on a real snapshot.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from search import align_mask
from torch import Tensor

from prismask.evaluation.metrics import psnr
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.engine import Engine
from prismask.models.inputs import Observation, network_scale
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Blur, Compose, Fault, Rotation, Shift
from prismask.scenes.datasets import data_folder, load_scenes

HERE = Path(__file__).resolve().parent
SIZE, CAMERA, NOISE, SEED = (96, 256), CASSI.from_step(), 0.01, 57
PUBLISHED = Compose((Shift(rows=1.0, columns=1.5), Rotation(0.3)))
SHIFTS = {"0.25 px": (0.15, -0.2), "0.5 px": (0.3, 0.4), "1 px": (-0.6, 0.8), "1.5 px": (-1, -1.1)}
"""Down and to the right."""
BLUR = 0.7
SCRIPT = "results/trials/pose_search/measure.py"


def turned(degrees: float, down: float = 0.0, right: float = 0.0) -> MaskPose:
    """Where a mask is read that was moved and turned."""
    sine = math.sin(math.radians(degrees))
    by_column, by_row = sine * SIZE[1] / 2, -sine * SIZE[0] / 2
    return MaskPose(-down, -right, down_by_column=by_column, right_by_row=by_row)


def spread(percent: float) -> MaskPose:
    """A spectrum that is wider about its middle."""
    return MaskPose(spread=percent / 100 * max(CAMERA.offsets) / 2)


FAULTS: dict[str, tuple[Fault | None, MaskPose]] = {
    "nothing": (None, MaskPose()),
    **{name: (Shift(*by), MaskPose(-by[0], -by[1])) for name, by in SHIFTS.items()},
    "0.3°": (Rotation(0.3), turned(0.3)),
    "0.5°": (Rotation(-0.5), turned(-0.5)),
    **{f"dispersion {percent:+} %": (None, spread(percent)) for percent in (1, -1, 2, -2)},
    "blur 0.7 px": (Blur(BLUR), MaskPose(blur=BLUR**2)),
    "1.5 / 1.0 px, 0.3°": (PUBLISHED, turned(0.3, 1.0, 1.5)),
}
"""What is wrong, and the pose that says so. Masks are moved by bilinear reads, which blurs them by
up to 0.25 px² as well: that much of a blur is no error."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scenes", nargs="+", default=["cloth", "fake_and_real_food"])
    parser.add_argument("--out", type=Path, default=HERE / "measured.json")
    options = parser.parse_args()
    engines = [
        Engine(load_model(name), torch.device("cpu")) for name in ("lumen.m2m", "srn-looks.m2m")
    ]
    scenes = load_scenes(data_folder(options.data), "validation")
    rows: list[dict[str, Any]] = []
    record = {
        "command": f"python {SCRIPT} --scenes {' '.join(options.scenes)}",
        "weights_sha256": [engine.model.record["sha256"] for engine in engines],
        "rows": rows,
    }
    for name in options.scenes:
        number = list(scenes).index(name)
        truth = middle(np.asarray(scenes[name].values, np.float32))
        for fault in FAULTS:
            rows.append({"scene": name, "fault": fault, **tried(engines, truth, fault, number)})
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
            options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(table(rows))


def middle(values: np.ndarray[Any, np.dtype[np.float32]]) -> Tensor:
    """`(1, C, H, W)` up to 1."""
    top, left = ((have - want) // 2 for have, want in zip(values.shape[1:], SIZE, strict=True))
    cut = values[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    return torch.tensor(cut / values.max())


def tried(engines: list[Engine], truth: Tensor, name: str, number: int) -> dict[str, Any]:
    """One snapshot of `truth (1, C, H, W)`, its pose found, and what cubes are worth."""
    fault, pose = FAULTS[name]
    generator = torch.Generator().manual_seed(SEED + 100 * number + list(FAULTS).index(name))
    mask = fabricate_mask(SIZE, generator, random_aperture(generator))[None, None]
    coded = mask if fault is None else fault.apply(mask)
    wider = MaskPose(spread=pose.spread)
    signal = CAMERA.forward(wider.shown(truth, CAMERA), wider.read(coded, CAMERA))[0]
    std = NOISE / network_scale(CAMERA.bands)
    signal = signal + std * torch.randn(signal.shape, generator=generator)

    def score(engine: Engine, place: MaskPose, given: Tensor = mask) -> float:
        cube = engine.run(
            Observation(signal[None], place.read(given, CAMERA), CAMERA, torch.tensor([std]))
        ).values[None]
        return round(float(psnr(place.straightened(cube, CAMERA), truth)), 2)

    lumen, looks = engines
    started, runs = time.perf_counter(), [0]
    found = align_mask(
        lumen,
        Observation(signal[None], mask, CAMERA, torch.tensor([std])),
        lambda done, *_: runs.append(done),
    )
    seconds = round(time.perf_counter() - started, 1)
    std_of = (0.0,) * len(pose.numbers) if found.std is None else found.std.numbers
    return {
        "nominal": score(lumen, MaskPose()), "found": score(lumen, found.found),
        "true": score(lumen, wider, coded), "srn_looks": score(looks, found.found),
        "srn_looks_true": score(looks, wider, coded), "is_worth_it": found.is_worth_it,
        "runs": runs[-1], "seconds": seconds,
        "off": [round(a - b, 3) for a, b in zip(found.found.numbers, pose.numbers, strict=True)],
        "std": [round(number, 3) for number in std_of],
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the scenes; of what is off the largest: shift, angle, width of the spectrum."""
    lines = []
    for fault in FAULTS:
        some = [row for row in rows if row["fault"] == fault]
        if not some:
            continue
        shift = max(abs(number) for row in some for number in row["off"][:2])
        turns = ((row["off"][2] / SIZE[1], row["off"][5] / SIZE[0]) for row in some)
        angle = max(abs(math.degrees(down - right)) for down, right in turns)
        width = max(200 * abs(row["off"][6]) / max(CAMERA.offsets) for row in some)
        names = ("nominal", "found", "true", "srn_looks", "srn_looks_true")
        scores = [f"{mean(row[key] for row in some):.2f}" for key in names]
        work = [f"{mean(row[key] for row in some):.0f}" for key in ("runs", "seconds")]
        off = [f"{shift:.2f} px", f"{angle:.3f}°", f"{width:.2f} %"]
        lines.append(f"| {' | '.join([fault, *scores, *off, *work])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
