"""Score a network that ships behind cameras that are not the one of its training.

    python results/cameras.py [--data DIR] [--model srn-looks.m2m] [--again network]
    python results/cameras.py --model srn-looks.cameras --only network --json cameras-many.json

Six CAVE validation scenes of 192×224 (or ten of KAIST, `--scenes test`), brought to each camera's
bands, are photographed through a fabricated mask with noise of 0.02 on the sum over the bands, in
which a white pixel of one band counts 1 (σ = 0.0014 of docs/method.md with 28 bands). `reconstruct`
makes the cube with the network, which is shown a virtual camera like those of its training
(inference/camera_match/bands.py), and with GAP-TV. Where the number of bands is that of the
training the network is also shown the camera as it is. Beside PSNR
paper stands the share of the true values inside the 90 % interval, and what `reconstruct`
takes by default. The interval was fitted on the validation scenes, behind the training's camera and
behind 24 others,
none of which is here.
Numbers go to cameras.json. `--only` computes some of the three, `--again` one, and takes the others
from there.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prismask.evaluation.metrics import psnr
from prismask.inference.intervals.model import OTHER_CAMERAS, coverage
from prismask.inference.methods.selection import choose
from prismask.inference.reconstruct import Options, Reconstruction
from prismask.models.catalogue import defaults, load_model
from prismask.models.network import Reconstructor
from prismask.models.trained import trained_with
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.scenes.datasets import data_folder, load_scenes
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.resample import resample

HERE = Path(__file__).resolve().parent
SIZE = (192, 224)
NOISE = 0.02
GAP_TV = "gap-tv"
WAYS = ["network", GAP_TV, "as it is"]


def prism(first: float, last: float, bands: int = 28) -> CASSI:
    """Bands `first` px apart at one end of the spectrum and `last` px at the other."""
    return CASSI((0.0, *np.cumsum(np.linspace(first, last, bands - 1)).tolist()))


CAMERAS = {
    "28 bands, 2 px": CASSI.from_step(),
    "28 bands, 2.3 to 1.7 px": prism(2.3, 1.7),
    "28 bands, 2.6 to 1.4 px": prism(2.6, 1.4),
    "28 bands, 2.9 to 1.1 px": prism(2.9, 1.1),
    "31 bands, 1.7 px": CASSI.from_step(31, 1.7),
    "31 bands, 2.4 to 1.0 px": prism(2.4, 1.0, 31),
    "54 bands, 1 px": CASSI.from_step(54, 1.0),
    "24 bands, 2 px": CASSI.from_step(24),
    "20 bands, 2.8 px": CASSI.from_step(20, 2.8),
    "12 bands, 4.5 px": CASSI.from_step(12, 4.5),
    "28 bands, 0.8 px": CASSI.from_step(28, 0.8),
    "28 bands, 1 px": CASSI.from_step(28, 1.0),
    "28 bands, 1.25 px": CASSI.from_step(28, 1.25),
    "28 bands, 1.5 px": CASSI.from_step(28, 1.5),
    "28 bands, 1.98 px": CASSI.from_step(28, 1.98),
    "28 bands, 1.99 px": CASSI.from_step(28, 1.99),
    "28 bands, 1.996 px": CASSI.from_step(28, 1.996),
    "28 bands, 1.998 px": CASSI.from_step(28, 1.998),
    "28 bands, 2.2 px": CASSI.from_step(28, 2.2),
    "28 bands, 2.4 px": CASSI.from_step(28, 2.4),
    "28 bands, 2.6 px": CASSI.from_step(28, 2.6),
    "28 bands, 3 px": CASSI.from_step(28, 3.0),
    "28 bands, 4 px": CASSI.from_step(28, 4.0),
    "28 bands, 5 px": CASSI.from_step(28, 5.0),
}


def main() -> None:
    options = _options()
    scenes = load_scenes(data_folder(options.data), options.scenes)
    model = load_model(options.model)
    wanted = options.only or ([options.again] if options.again else WAYS)
    cameras = {name: one for name, one in CAMERAS.items() if re.search(options.cameras, name)}
    before = _before(options) if options.again else {}
    rows = []
    for name, camera in cameras.items():
        generator = torch.Generator().manual_seed(0)  # the same masks for every camera
        ways = _ways(model, camera, options.device)
        for scene, cube in scenes.items():
            truth = _middle(cube, camera.bands)
            mask = Mask(fabricate_mask(SIZE, generator, random_aperture(generator)).numpy())
            shot = _photographed(truth, mask, camera, generator)
            row: dict[str, Any] = {"camera": name, "scene": scene}
            row |= before.get((name, scene), {})
            for way, ready in ways.items():
                if way in wanted:
                    row[way] = _scores(ready.run(shot, mask, camera), truth)
            rows.append(row)
            print(row, flush=True)
    record = {
        "script": "results/cameras.py",
        "scenes": options.scenes,
        "model": options.model,
        "weights_sha256": model.record["sha256"],
        "quantiles": _quantiles(model),
        "device": options.device,
        "defaults": {name: _default(camera) for name, camera in cameras.items()},
        "rows": rows,
    }
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="srn-looks.m2m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scenes", choices=["validation", "test"], default="validation")
    parser.add_argument("--cameras", default="", help="only those whose names match this")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--again", choices=WAYS)
    either.add_argument("--only", choices=WAYS, nargs="+")
    parser.add_argument("--json", type=Path, default=HERE / "cameras.json")
    return parser.parse_args()


def _before(options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows that are there, by camera and scene."""
    record = json.loads(options.json.read_text(encoding="utf-8"))
    return {(row["camera"], row["scene"]): row for row in record["rows"]}


def _quantiles(model: Reconstructor) -> dict[str, float]:
    """What the 90 % interval is of the predicted scale, behind the training's camera and others."""
    stored = (model.record.get("interval") or {}).get("single")
    if stored is None:
        return {}
    found = {"own camera": stored["quantiles"]["0.9"]}
    if other := stored.get("classes", {}).get(OTHER_CAMERAS):
        found["other cameras"] = other["quantiles"]["0.9"]
    return found


def _ways(model: Reconstructor, camera: CASSI, device: str) -> dict[str, Reconstruction]:
    settings = Options(check_mask=False, device=device)
    ways = {
        "network": Reconstruction(settings, model),
        GAP_TV: Reconstruction(Options(GAP_TV, check_mask=False, device=device)),
    }
    if camera.bands == model.record["bands"]:
        told = copy.copy(model)
        # A network that is said to have learned behind this camera is shown it as it is.
        told.record = {**model.record, **trained_with(camera)}
        ways["as it is"] = Reconstruction(settings, told)
    return ways


def _default(camera: CASSI) -> str:
    found = choose(camera, defaults())
    return GAP_TV if found is None else found.name


def _middle(cube: Cube, bands: int) -> Cube:
    top, left = (cube.size[0] - SIZE[0]) // 2, (cube.size[1] - SIZE[1]) // 2
    values = cube.values[:, top : top + SIZE[0], left : left + SIZE[1]]
    assert cube.wavelengths is not None
    at = np.linspace(cube.wavelengths[0], cube.wavelengths[-1], bands)
    return resample(Cube(values, cube.wavelengths), at)


def _photographed(
    truth: Cube, mask: Mask, camera: CASSI, generator: torch.Generator
) -> Measurement:
    signal = camera.forward(torch.tensor(truth.values)[None], torch.tensor(mask.values))[0]
    noise = NOISE * torch.randn(signal.shape, generator=generator)
    return Measurement((signal + noise).numpy())


def _scores(found: Cube, truth: Cube) -> dict[str, float]:
    values, true = torch.tensor(found.values), torch.tensor(truth.values)
    scores = {"psnr": float(psnr(values[None], true[None], convention="paper"))}
    if found.lower is not None and found.upper is not None:
        scores["inside"] = coverage(true, torch.tensor(found.lower), torch.tensor(found.upper))
    return {key: round(value, 4) for key, value in scores.items()}


def table(record: dict[str, Any]) -> str:
    lines = [
        "| camera | GAP-TV | network, shown it as it is | inside | network | inside | default |",
        "|---" * 7 + "|",
    ]
    for name, default in record["defaults"].items():
        rows = [row for row in record["rows"] if row["camera"] == name]

        def mean(way: str, what: str, rows: list[dict[str, Any]] = rows) -> float | None:
            if what not in rows[0].get(way, {}):
                return None
            return float(np.mean([row[way][what] for row in rows]))

        def decibels(way: str) -> str:
            return "" if (value := mean(way, "psnr")) is None else f"{value:.2f}"

        def percent(way: str) -> str:
            return "" if (value := mean(way, "inside")) is None else f"{100 * value:.1f} %"

        cells = [decibels(GAP_TV), decibels("as it is"), percent("as it is")]
        cells += [decibels("network"), percent("network"), default]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
