"""Is the verdict on a cube right, and does the default take the better method?

    python results/trust.py [--data DIR] [--model lumen.m2m] [--out results/trust-lumen.json]

Validation scenes (CAVE) are photographed through fabricated masks that nobody has seen: as they
are, and under the triband lamp FL11, which neither training nor the fit of any interval saw;
without noise and with noise of σ = 0.01 (docs/method.md, the unit of noise); with the right mask,
and with a mask that lies half a pixel beside the one that is told. Every snapshot is reconstructed
by the network, by gap-tv and as `reconstruct` does it by default, but for the search for the mask's
pose, after which no mask would be wrong. Counted: false alarms (a right mask, a network no more
than half a decibel below gap-tv, and a grade that is not good), misses (a wrong mask, or a network
further below, and the grade good), how far the default is below the better of the two, and how many
true values lie inside the 90 % interval.

Under FL11 the default is also compared with DeSCI, which takes long, on smaller crops (part
`desci`). `--parts` measures one part anew and keeps the other, of the same weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismask.evaluation.figures.cubes import scene_coverage_figure
from prismask.evaluation.metrics import psnr
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.options import Options
from prismask.inference.reconstruct import Reconstruction
from prismask.models.inputs import network_scale
from prismask.models.weights import load_model
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_scenes
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.spectra import Feature, plant

HERE = Path(__file__).resolve().parent
SIZE, SMALL = (160, 256), (96, 96)
"""Crops of the scenes, and those that DeSCI is given."""
CAMERA = CASSI.from_step()
NOISES = (0.0, 0.01)
Case = tuple[int, str, float, str]
PARTS = ("alarms", "desci")
CLOSE = 0.5
"""Decibels by which a network that is right may be below gap-tv."""
SEED = 424_242
"""Of masks and noise; neither training nor a fit draws from it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="lumen.m2m")
    parser.add_argument("--crops", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "trust-lumen.json")
    parser.add_argument("--figure", type=Path, help="coverage by scene, as the fit found it")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    model = load_model(options.model)
    left_out = model.record["interval"]["learned"]["about"]["left_out"]["0.9"]
    if options.figure:
        options.figure.write_bytes(scene_coverage_figure(left_out))
    told = Options(align=False)
    named = Reconstruction(told, model)
    # The default takes what ships; here it takes the weights that are asked about.
    free = Reconstruction(told, model)
    free._choice._asked = None
    free._choice._default = lambda camera: named._choice.for_camera(camera)  # type: ignore[method-assign]
    scenes = load_scenes(data_folder(options.data), "validation")
    earlier = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    record: dict[str, Any] = {
        "command": f"python results/trust.py --model {options.model} --crops {options.crops}",
        "model": model.record.get("name", Path(options.model).stem),
        "weights_sha256": model.record["sha256"],
        "left_out": left_out,
    }
    if earlier.get("weights_sha256") == record["weights_sha256"]:
        record = earlier | record
    bench = Bench(named, free, {"gap_tv": Reconstruction(Options(method="gap-tv"))})
    if "alarms" in options.parts:
        rows = bench.rows(scenes, alarm_cases(options.crops), SIZE, SEED)
        record |= {"alarms": alarms(rows), "summary": summary(rows), "rows": rows}
    if "desci" in options.parts:
        more = {"desci": Reconstruction(Options(method="desci"))}
        slow = replace(bench, solvers=bench.solvers | more)
        cases = [(0, "FL11", noise, "right") for noise in NOISES]
        rows = slow.rows(scenes, cases, SMALL, SEED + 1)
        record["desci"] = {"summary": summary(rows), "rows": rows}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    said = {name: record.get(name) for name in ("alarms", "summary")}
    print(json.dumps(said | {"desci": record.get("desci", {}).get("summary")}, indent=1))


def alarm_cases(crops: int) -> list[Case]:
    """Number of the crop, light, noise and mask."""
    return [
        (number, light, noise, fault)
        for number in range(crops)
        for light in ("smooth", "FL11")
        for noise in NOISES
        for fault in ("right", "beside by 0.5 px")
        if fault == "right" or light == "smooth"
    ]


@dataclass(frozen=True)
class Bench:
    """What every snapshot is reconstructed with."""

    named: Reconstruction
    free: Reconstruction
    """As `reconstruct` does it by default."""
    solvers: dict[str, Reconstruction]

    def rows(
        self, scenes: Mapping[str, Cube], cases: Sequence[Case], size: tuple[int, int], seed: int
    ) -> list[dict[str, Any]]:
        """All cases of all scenes."""
        generator, found = torch.Generator().manual_seed(seed), []
        for name, cube in scenes.items():
            for case in cases:
                found.append(one(name, case, cube, self, size, generator))
                print(json.dumps(found[-1]), flush=True)
        return found


def one(
    name: str,
    case: Case,
    cube: Cube,
    bench: Bench,
    size: tuple[int, int],
    generator: torch.Generator,
) -> dict[str, Any]:
    """One snapshot by all of them."""
    number, light, noise, fault = case
    height, width = cube.size
    top = (height - size[0]) * (number + 1) // 3
    left = (width - size[1]) * (number + 1) // 3
    values = cube.values[:, top : top + size[0], left : left + size[1]]
    feature = Feature("smooth") if light == "smooth" else Feature("lamp", lamp=light)
    truth = torch.tensor(plant(Cube(values, cube.wavelengths), feature).values)
    mask = fabricate_mask(CAMERA.mask_size(size), generator, random_aperture(generator))
    pose = MaskPose() if fault == "right" else MaskPose(down=0.3, right=0.4)
    met = pose.read(mask[None, None], CAMERA)
    signal = CAMERA.forward(pose.shown(truth[None], CAMERA), met)[0]
    drawn = torch.randn(signal.shape, generator=generator)
    signal = signal + noise / network_scale(CAMERA.bands) * drawn
    shot, told = Measurement(signal.numpy()), Mask(mask.numpy())
    default = bench.free.run(shot, told, CAMERA)
    attrs = default.attrs
    is_network = attrs["method"] == "network"
    cubes = {
        "network": default if is_network else bench.named.run(shot, told, CAMERA),
        "default": default,
        **{solver: by.run(shot, told, CAMERA) for solver, by in bench.solvers.items()},
    }
    return {
        "scene": name, "crop": number, "light": light, "noise": noise, "mask": fault,
        "psnr_paper": {k: round(_psnr(c, truth), 2) for k, c in cubes.items()},
        "trust": attrs.get("trust"), "grade": attrs.get("trust_grade"),
        "because": attrs.get("trust_because"), "taken": attrs["method"],
        "unexplained": attrs.get("unexplained"),
        "residual_over_noise": attrs["residual_over_noise"],
        "inside": _inside(cubes["default"], truth),
        "inside_network": _inside(cubes["network"], truth),
        "width": _width(cubes["network"]),
    }  # fmt: skip


def _psnr(cube: Cube, truth: torch.Tensor) -> float:
    return float(psnr(torch.tensor(cube.values)[None], truth[None]))


def _inside(cube: Cube, truth: torch.Tensor) -> float | None:
    if cube.lower is None or cube.upper is None:
        return None
    there = truth.numpy()
    return round(float(((there >= cube.lower) & (there <= cube.upper)).mean()), 4)


def _width(cube: Cube) -> float | None:
    if cube.lower is None or cube.upper is None:
        return None
    return round(float((cube.upper - cube.lower).mean()), 5)


def alarms(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """False alarms of all right cases, and misses of all wrong ones."""
    right = [row for row in rows if row["mask"] == "right" and _below(row, "network") <= CLOSE]
    wrong = [row for row in rows if row not in right]
    false = sum(row["grade"] != "good" for row in right)
    missed = sum(row["grade"] == "good" for row in wrong)
    return {"false": [false, len(right)], "missed": [missed, len(wrong)]}


def _below(row: dict[str, Any], method: str = "default") -> float:
    """How far a cube is below the best of network and solvers, in dB."""
    found = row["psnr_paper"]
    return float(max(found.values()) - found[method])


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and shares by case."""
    found: dict[str, Any] = {}
    cases = sorted({(row["light"], row["noise"], row["mask"]) for row in rows})
    for light, noise, fault in cases:
        here = [r for r in rows if (r["light"], r["noise"], r["mask"]) == (light, noise, fault)]
        below = [_below(row) for row in here]
        insides = [r["inside_network"] for r in here if r["inside_network"] is not None]
        found[f"{light}, noise {noise:g}, mask {fault}"] = {
            "snapshots": len(here),
            "not_good": sum(r["grade"] not in ("good", None) for r in here),
            "solver_taken": sum(r["taken"] == "gap-tv" for r in here),
            "below_the_better_db": [round(float(np.mean(below)), 2), round(max(below), 2)],
            "inside": [round(float(np.mean(insides)), 4), min(insides)] if insides else None,
            "width": round(float(np.mean([r["width"] or 0.0 for r in here])), 4),
        }
    return found


if __name__ == "__main__":
    main()
