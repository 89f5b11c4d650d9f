"""Score the search for a displaced mask on the CAVE validation scenes.

    python results/alignment.py [--data DIR] [--model srn-looks.m2m]

Each scene is photographed through a mask that lies beside its calibration by a shift of the given
size in a random direction, with growth of up to half that size towards the edges, or behind a prism
that spreads the spectrum over more or fewer pixels than calibrated, or out of focus; with noise of
0.02 on the sum over the bands (σ = 0.0014 of docs/method.md). The network is given the nominal
mask, the mask as `reconstruct --align` finds it, and the true one, and it is counted how many
true values lie inside the 90 % interval that ships with the network. Last comes the one real sample
of miscalibration there is: photographed through one calibration of an aperture, given another one
of the same place.
Scores go to alignment.json.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask.evaluation.metrics import score
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import align_mask
from prismask.inference.engine.frame import Engine
from prismask.inference.intervals.model import Interval, coverage
from prismask.inference.methods.network import with_interval
from prismask.models.catalogue import load_model
from prismask.models.devices import choose_device
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_mask_file, load_scenes, read_split

HERE = Path(__file__).resolve().parent
SIZE = (192, 224)
NOISE = 0.02
LEVEL = 0.9
CAMERA = CASSI.from_step()
SHIFTS = (0.0, 0.5, 1.0)
BLUR = 0.7
"""Standard deviation in pixels by which the mask is less sharp than calibrated."""
SPREADS = (0.02,)
"""How much further than calibrated the prism spreads the spectrum."""
RECALIBRATED = "two real calibrations"
TEXTS = ("scene", "case", "place", "off_px")
"""What a row has beside numbers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="srn-looks.m2m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, default=HERE / "alignment.json")
    options = parser.parse_args()
    folder, device = data_folder(options.data), str(choose_device(options.device))
    names = list(load_scenes(folder, "validation"))
    work = [(folder, options.model, device, number) for number in range(len(names))]
    # A process for each core, but one for a GPU.
    workers = 1 if device != "cpu" else min(len(work), os.cpu_count() or 1)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        rows = [row for found in pool.imap(_scene, work, 1) for row in found]
    record = {
        "command": "python results/alignment.py --data DIR",
        "model": options.model,
        "weights_sha256": load_model(options.model).record["sha256"],
        "device": device,
        "rows": rows,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


def _scene(given: tuple[Path, str, str, int]) -> list[dict[str, Any]]:
    """All cases of one scene, with random numbers of its own."""
    folder, model, device, number = given
    torch.set_num_threads(1)
    engine = Engine(load_model(model), torch.device(device))
    generator = torch.Generator().manual_seed(number)
    region = _region(folder)
    name, cube = list(load_scenes(folder, "validation").items())[number]
    top, left = (cube.size[0] - SIZE[0]) // 2, (cube.size[1] - SIZE[1]) // 2
    truth = torch.tensor(cube.values)[None, :, top : top + SIZE[0], left : left + SIZE[1]]
    rows = []
    for case, place in _cases(generator).items():
        nominal = _mask(region, number, generator)
        found = _case(
            engine, truth, nominal, place.read(nominal, CAMERA), generator,
            place.shown(truth, CAMERA), place,
        )  # fmt: skip
        off = torch.tensor(found["place"]) - torch.tensor(place.numbers)
        rows.append({"scene": name, "case": case, **found, "off_px": off.tolist()})
        print(rows[-1], flush=True)
    found = _case(engine, truth, *_calibrations(folder), generator)
    rows.append({"scene": name, "case": RECALIBRATED, **found})
    print(rows[-1], flush=True)
    return rows


def _region(folder: Path) -> Tensor:
    """Where training masks are cut from, `(h, w)`."""
    place = read_split(folder).masks["train"]
    return torch.tensor(load_mask_file(folder, place.file).values)[: place.rows[1]]


def _mask(region: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Crops of the training masks and fabricated ones in turn, `(1, 1, H, W)`."""
    if number % 2:
        return fabricate_mask(SIZE, generator, random_aperture(generator))[None, None]
    top, left = (int(torch.randint(n - s, (), generator=generator))
                 for n, s in zip(region.shape, SIZE, strict=True))  # fmt: skip
    return region[None, None, top : top + SIZE[0], left : left + SIZE[1]]


def _cases(generator: torch.Generator) -> dict[str, MaskPose]:
    """Where the mask and the bands really lie, by the name of the case."""
    shifts = {f"mask beside by {shift:g} px": _beside(shift, generator) for shift in SHIFTS}
    over = max(CAMERA.offsets) / 2
    spreads = {f"dispersion {100 * s:+g} %": MaskPose(*[0.0] * 6, s * over) for s in SPREADS}
    blurred = {f"mask blurred by {BLUR:g} px": MaskPose(blur=BLUR**2)}
    return {**shifts, **spreads, **blurred}


def _beside(shift: float, generator: torch.Generator) -> MaskPose:
    """A place `shift` pixels away in a random direction."""
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    growth = (shift * (torch.rand(4, generator=generator) - 0.5)).tolist()
    return MaskPose(shift * math.sin(angle), shift * math.cos(angle), *growth)


def _calibrations(folder: Path) -> tuple[Tensor, Tensor]:
    """Two calibrations of one place of one aperture: given, and photographed through."""
    masks = read_split(folder).masks
    large = torch.tensor(load_mask_file(folder, masks["train"].file).values)
    small = torch.tensor(load_mask_file(folder, masks["single"]).values)
    rows, columns = SIZE
    given = large[202 : 202 + rows, 201 : 201 + columns]
    return given[None, None], small[None, None, :rows, :columns]


def _case(
    engine: Engine,
    truth: Tensor,
    nominal: Tensor,
    true_mask: Tensor,
    generator: torch.Generator,
    shown: Tensor | None = None,
    true_place: MaskPose | None = None,
) -> dict[str, Any]:
    """Scores with three masks; `shown`: what the nominal camera sees of the scene, if not it."""
    signal = CAMERA.forward(truth if shown is None else shown, true_mask)[0]
    signal = signal + NOISE * torch.randn(signal.shape, generator=generator)
    started = time.perf_counter()
    alignment = align_mask(engine, signal, nominal, CAMERA, NOISE)
    seconds = time.perf_counter() - started
    place = alignment.found
    interval = Interval.from_record(engine.model.record["interval"]["single"], engine.bands)
    scores = {}
    for what, mask, at in (
        ("nominal", nominal, MaskPose()),
        ("aligned", place.read(nominal, CAMERA), place),
        ("true", true_mask, true_place or MaskPose()),
    ):
        found = engine.run(signal, mask, CAMERA, noise_std=NOISE)
        found = with_interval(found, interval, LEVEL, signal, mask, CAMERA)
        cube, lower, upper = (
            at.straightened(part[None], CAMERA)
            for part in (found.values, found.lower, found.upper)
            if part is not None
        )
        scores[f"psnr_paper_{what}"] = round(float(score(cube, truth)["psnr_paper"][0]), 3)
        scores[f"inside_{what}"] = round(coverage(truth, lower, upper), 4)
    return {
        **scores,
        "residual_before": alignment.before,
        "residual_after": alignment.after,
        "place": list(place.numbers),
        "seconds": round(seconds, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    whats = ("nominal", "aligned", "true")
    head = [*whats, "seconds", *(f"inside, {what}" for what in whats)]
    lines = ["| what is beside its calibration | " + " | ".join(head) + " |",
             "|---" * (len(head) + 1) + "|"]  # fmt: skip
    for case in dict.fromkeys(row["case"] for row in rows):
        of = [row for row in rows if row["case"] == case]
        mean = {key: sum(row[key] for row in of) / len(of) for key in of[0] if key not in TEXTS}
        cells = [f"{mean[f'psnr_paper_{what}']:.2f}" for what in whats]
        cells += [f"{mean['seconds']:.0f}"]
        cells += [f"{100 * mean[f'inside_{what}']:.1f} %" for what in whats]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
