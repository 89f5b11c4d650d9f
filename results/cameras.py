"""Score models behind cameras that are not the one of their training: `evaluate` behind each.

    python results/cameras.py lumen.m2m gap-tv [--data DIR] [--json FILE]

Six CAVE validation scenes of 192×224 (or ten of KAIST, `--scenes test`), brought to each camera's
bands, are photographed through a fabricated mask with noise of 0.02 on the sum over the bands, in
which a white pixel of one band counts 1 (σ = 0.0014 of docs/method.md with 28 bands). Beside PSNR
paper stands the share of the true values inside the 90 % interval, and what `reconstruct` takes by
default. For one camera, without this script:

    prismask evaluate lumen.m2m gap-tv --camera bands=31,step=1.7 --resample --noise 0.0013
        --scenes validation --size 192,224 --groups fabricated --trials 1
        --metrics psnr_paper,inside --out DIR
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from prismask.evaluation import evaluate
from prismask.evaluation.tables.markdown import grid
from prismask.inference.methods.registry import weights_for
from prismask.models.inputs import network_scale
from prismask.models.weights import default_weights
from prismask.optics.camera import CASSI

SIZE = (192, 224)
NOISE = 0.02
METRICS = ("psnr_paper", "inside")


def prism(first: float, last: float, bands: int = 28) -> CASSI:
    """Bands `first` px apart at one end of the spectrum and `last` px at the other."""
    return CASSI((0.0, *np.cumsum(np.linspace(first, last, bands - 1)).tolist()))


def uneven(least: float, most: float, seed: int) -> CASSI:
    """28 bands at random distances, between `least` and `most` px."""
    steps = np.random.default_rng(seed).uniform(least, most, 27)
    return CASSI((0.0, *np.cumsum(steps).tolist()))


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
    "28 bands, 3.4 to 0.6 px": prism(3.4, 0.6),
    "28 bands, at random 1 to 3 px": uneven(1, 3, 0),
    "28 bands, at random 0.3 to 3.7 px": uneven(0.3, 3.7, 1),
    "16 bands, 3 px": CASSI.from_step(16, 3.0),
    "8 bands, 7 px": CASSI.from_step(8, 7.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("models", nargs="+", help="as `prismask evaluate` takes them")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scenes", choices=("validation", "test"), default="validation")
    parser.add_argument("--cameras", default="", help="a regular expression for their names")
    parser.add_argument("--trials", type=int, default=1, help="masks behind every camera")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = {name: one for name, one in CAMERAS.items() if re.search(options.cameras, name)}
    rows = [scores(name, camera, options) for name, camera in chosen.items()]
    if options.json:
        record = {"script": "results/cameras.py", "scenes": options.scenes, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    titles = [f"{model} {of}" for model in options.models for of in ("[dB]", "inside [%]")]
    print(grid(["camera", *titles, "default"], [cells(row) for row in rows]))


def scores(name: str, camera: CASSI, options: argparse.Namespace) -> dict[str, Any]:
    """Means over scenes and masks of every model behind one camera."""
    found = evaluate(
        options.models, data=options.data, scenes=[options.scenes], groups=["fabricated"],
        camera=camera, resample=True, size=SIZE, noise=NOISE * network_scale(camera.bands),
        trials=options.trials, metrics=METRICS, device=options.device, timing=False,
    )  # fmt: skip
    best = weights_for(camera, default_weights())
    return {
        "camera": name,
        **{
            model: {metric: found.mean(model, "fabricated", metric) for metric in METRICS}
            for model in found.plan.work.contenders
        },
        "default": "gap-tv" if best is None else best.name,
    }


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    name, *models, default = row.values()
    numbers = [
        "–" if np.isnan(model[metric]) else f"{model[metric]:.{digits}f}"
        for model in models
        for metric, digits in zip(METRICS, (2, 1), strict=True)
    ]
    return [name, *numbers, default]


if __name__ == "__main__":
    main()
