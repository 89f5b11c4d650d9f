"""Score networks that learn the scene in front of them, on the CAVE validation scenes.

    python results/adaptation.py [--data DIR] [--model srn-looks.m2m] [--steps 60]

Each scene is photographed through a fabricated mask: as it is, enlarged twice (what the paper
trains on), and enlarged with noise of σ = 0.01 (of a snapshot scaled to the cube's range).
`reconstruct` makes the cube without and with `--adapt`; beside PSNR paper the table has the share
of the true values inside the 90 % interval, which was fitted to the network before it learned.
Numbers go to adaptation.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.evaluation.metrics import psnr
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.models.catalogue import load_model
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_scenes
from prismask.scenes.defaults import SIZE
from prismask.scenes.records import Cube, Mask, Measurement

HERE = Path(__file__).resolve().parent
CAMERA = CASSI.from_step()
CASES = {
    "as it is": (1, 0.0),
    "enlarged twice": (2, 0.0),
    "enlarged twice, noise of 0.01": (2, 0.01),
}
"""Enlargement and σ."""


def main() -> None:
    options = _options()
    if options.page:
        print(table(json.loads(options.json.read_text(encoding="utf-8"))))
        return
    plain = Options(model=options.model, check_mask=False, device=options.device)
    ways = {"plain": plain, "learned": Options(
        model=options.model, check_mask=False, device=options.device, adapt=options.steps,
    )}  # fmt: skip
    ready = {name: Reconstruction(settings) for name, settings in ways.items()}
    mask = _mask()
    rows = []
    for scene, cube in load_scenes(data_folder(options.data), "validation").items():
        for case, (factor, std) in CASES.items():
            truth = _middle(torch.tensor(cube.values), factor)
            snapshot = _photographed(truth, mask, std)
            row: dict[str, Any] = {"scene": scene, "case": case}
            for name, reconstruction in ready.items():
                started = time.perf_counter()
                found = reconstruction.run(snapshot, mask, CAMERA)
                row[name] = {**_scores(found, truth), "seconds": time.perf_counter() - started}
            rows.append(row)
            print(row, flush=True)
    record = {
        "command": "python results/adaptation.py --data DIR",
        "model": options.model,
        "weights_sha256": load_model(options.model).record["sha256"],
        "steps": options.steps,
        "device": str(ready["plain"].device),
        "rows": rows,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="srn-looks.m2m")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, default=HERE / "adaptation.json")
    parser.add_argument("--page", action="store_true", help="only print the table of the file")
    return parser.parse_args()


def table(record: dict[str, Any]) -> str:
    """Means over the scenes, and the smallest and largest gain."""
    lines = [
        f"| scenes | plain [dB] | after {record['steps']} steps [dB] | gain | inside the 90 % "
        "interval: plain | after | seconds: plain | after |",
        "|---" * 8 + "|",
    ]
    for case in CASES:
        rows = [row for row in record["rows"] if row["case"] == case]

        def mean(way: str, what: str, rows: list[dict[str, Any]] = rows) -> float:
            return float(np.mean([row[way][what] for row in rows]))

        gains = [row["learned"]["psnr"] - row["plain"]["psnr"] for row in rows]
        lines.append(
            f"| {case} | {mean('plain', 'psnr'):.2f} | {mean('learned', 'psnr'):.2f} | "
            f"+{np.mean(gains):.2f} ({min(gains):.2f} to {max(gains):.2f}) | "
            f"{100 * mean('plain', 'inside'):.1f} % | {100 * mean('learned', 'inside'):.1f} % | "
            f"{mean('plain', 'seconds'):.1f} | {mean('learned', 'seconds'):.0f} |"
        )
    return "\n".join(lines)


def _middle(values: Tensor, factor: int) -> Tensor:
    if factor > 1:
        values = F.interpolate(values[None], scale_factor=factor, mode="bilinear")[0]
    top, left = ((length - SIZE) // 2 for length in values.shape[-2:])
    return values[:, top : top + SIZE, left : left + SIZE]


def _mask() -> Mask:
    generator = torch.Generator().manual_seed(977_101)
    made = fabricate_mask((SIZE, SIZE), generator, random_aperture(generator))
    return Mask(made.numpy())


def _photographed(truth: Tensor, mask: Mask, std: float) -> Measurement:
    signal = CAMERA.forward(truth[None], torch.tensor(mask.values)[None, None])[0]
    generator = torch.Generator().manual_seed(977_102)
    drawn = torch.randn(signal.shape, generator=generator)
    return Measurement((signal + drawn * (std / network_scale(CAMERA.bands))).numpy())


def _scores(found: Cube, truth: Tensor) -> dict[str, float]:
    values = torch.tensor(found.values)
    assert found.lower is not None
    assert found.upper is not None
    is_inside = (found.lower <= truth.numpy()) & (truth.numpy() <= found.upper)
    return {
        "psnr": float(psnr(values[None], truth[None], convention="paper")),
        "inside": float(is_inside.mean()),
    }


if __name__ == "__main__":
    main()
