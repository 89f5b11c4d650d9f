"""Reconstruct the real snapshots of both instruments and put the results side by side.

    python results/real.py [--data DIR] [--methods srn-looks.m2m gap-tv] [--snapshots tsanet]
    python results/real.py --sheet

There is no truth to compare with: real.json holds what the self-check says (what of the snapshot
the cube does not explain, against the noise), real.jpg what it looks like. The first form keeps
pictures in OUT/real (`--out`), one small file for each snapshot and method, and needs no plotting
library; the second draws the sheet from whatever is there, and renews its numbers.
"""

from __future__ import annotations

import argparse
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from prismask.inference.single import reconstruct
from prismask.optics.camera import CASSI
from prismask.scenes.colour import to_srgb
from prismask.scenes.datasets import data_folder
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.files import load_mask, load_measurement
from prismask.scenes.records import Cube
from prismask.solvers.registry import list_solvers

HERE = Path(__file__).resolve().parent
INSTRUMENTS = {"tsanet": ("tsanet_real_660", 28), "smem": ("smem_real_660", 24)}
"""Mask and bands of each instrument, by the first part of its snapshots' names."""
TOLD = (
    "seconds",
    "device",
    "residual_relative",
    "residual_over_noise",
    "noise_std",
    "findings",
    "method_options",
)


def main() -> None:
    options = _options()
    kept: Path = options.out / "real"
    if options.sheet:
        (options.out / "real.jpg").write_bytes(sheet(kept))
        told = options.out / "real.json"
        # What was measured before stays, where its picture was not kept too.
        records = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
        records |= {path.stem: json.loads(path.read_text()) for path in kept.glob("*.json")}
        records = dict(sorted(records.items()))
        told.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(table(records))
        return
    kept.mkdir(parents=True, exist_ok=True)
    folder = data_folder(options.data)
    for path in sorted((folder / "measurements").glob(f"{options.snapshots}*.mat")):
        for method in options.methods:
            cube = reconstructed(path, folder, method, options)
            name = f"{path.stem}.{method}" + (", aligned" if "mask_place" in cube.attrs else "")
            name += ", learned" if "adapted_steps" in cube.attrs else ""
            np.savez_compressed(kept / f"{name}.npz", picture=picture(cube))
            told = {key: cube.attrs[key] for key in TOLD if key in cube.attrs}
            (kept / f"{name}.json").write_text(json.dumps(told, default=str))
            print(f"{name}: {cube.attrs['seconds']:.1f} s, {cube.attrs['residual']}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--methods", nargs="+", default=["srn-looks.m2m", "gap-tv"])
    parser.add_argument("--snapshots", default="", help="how their names begin [all]")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--align", action="store_true", help="find the mask's place first")
    parser.add_argument("--adapt", type=int, default=0, help="steps to learn the scene first")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--sheet", action="store_true", help="draw what was kept")
    return parser.parse_args()


def reconstructed(path: Path, folder: Path, method: str, options: argparse.Namespace) -> Cube:
    mask, bands = INSTRUMENTS[path.stem.split("_")[0]]
    # The 24-band instrument publishes no wavelengths; the same range serves for looking.
    wavelengths = np.interp(
        np.linspace(0, 1, bands), np.linspace(0, 1, len(WAVELENGTHS_NM)), WAVELENGTHS_NM
    )
    chosen: dict[str, Any] = {"method" if method in list_solvers() else "model": method}
    return reconstruct(
        load_measurement(path), load_mask(folder / "masks" / f"{mask}.mat"),
        CASSI.from_step(bands), wavelengths=wavelengths, device=options.device,
        align=options.align, adapt=options.adapt, **chosen,
    )  # fmt: skip


def picture(cube: Cube) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Every second pixel in colour, and four bands beside it, `(h, 5·w, 3)`."""
    values = cube.values[:, ::2, ::2]
    colour = to_srgb(Cube(np.ascontiguousarray(values), cube.wavelengths))
    bands = []
    for number in np.linspace(0, cube.bands - 1, 6).round().astype(int)[1:-1]:
        white = max(float(np.percentile(values[number], 99.5)), 1e-9)
        grey = (255 * np.clip(values[number] / white, 0, 1) ** (1 / 2.2)).astype(np.uint8)
        bands.append(np.repeat(grey[..., None], 3, axis=2))
    return np.concatenate([colour, *bands], axis=1)


def sheet(kept: Path) -> bytes:
    """All pictures, a row for each snapshot and method."""
    from prismask.evaluation.figures import figure_png, styled

    found = sorted(kept.glob("*.npz"))
    if not found:
        raise SystemExit(f"nothing is kept in {kept}: run without --sheet first.")
    with styled() as figure_class:
        figure = figure_class(figsize=(9.0, 1.95 * len(found)), layout="constrained")
        panels = figure.subplots(len(found), 1, squeeze=False)
        for axes, path in zip(panels.flat, found, strict=True):
            axes.imshow(np.load(path)["picture"])
            told = json.loads(path.with_suffix(".json").read_text())
            axes.set_title(
                f"{path.stem.replace('.', ': ', 1)}, residual "
                f"{told['residual_over_noise']:.2g} × noise, {told['seconds']:.1f} s on "
                f"{told['device']}", loc="left", fontsize=8,
            )  # fmt: skip
            axes.set_axis_off()
        return as_jpeg(figure_png(figure, 80))


def as_jpeg(png: bytes) -> bytes:
    """Photographs in a quarter of the space, with their colours as they are."""
    from PIL import Image

    out = BytesIO()
    Image.open(BytesIO(png)).convert("RGB").save(out, "jpeg", quality=90, subsampling=0)
    return out.getvalue()


def table(records: dict[str, dict[str, Any]]) -> str:
    lines = ["| snapshot: method | residual / snapshot | residual / noise | seconds | on |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, told in records.items():
        lines.append(
            f"| {name.replace('.', ': ', 1)} | {100 * told['residual_relative']:.1f} % | "
            f"{told['residual_over_noise']:.2f} | {told['seconds']:.1f} | {told['device']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
