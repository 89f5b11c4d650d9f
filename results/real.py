"""Reconstruct the real snapshots of both instruments and put the results side by side.

    python results/real.py [--data DIR] [--methods lumen.m2m gap-tv] [--snapshots tsanet]
    python results/real.py --sheet

There is no truth to compare with: real.json holds what the self-check says (what of the snapshot
the cube does not explain, against the noise), real.jpg what it looks like. The first form leaves
pictures in OUT/real (`--out`), one file for each snapshot and method, and needs no library for
pictures; the second makes strips of them, which stay, and draws the sheet from all there are.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from prismask.inference.reconstruct import reconstruct
from prismask.optics.camera import CASSI
from prismask.scenes.colour import to_srgb
from prismask.scenes.datasets import data_folder
from prismask.scenes.defaults import WAVELENGTHS_NM
from prismask.scenes.formats.files import load_mask, load_measurement
from prismask.scenes.records import Cube
from prismask.solvers.registry import list_solvers

HERE = Path(__file__).resolve().parent
INSTRUMENTS = {"tsanet": ("tsanet_real_660", 28), "smem": ("smem_real_660", 24)}
"""Mask and bands of each instrument, by the first part of its snapshots' names."""
STRIP = (674, 135)
"""Width and height of a strip: five pictures beside each other."""
JPEG: dict[str, Any] = {"quality": 90, "subsampling": 0}
"""Photographs in a quarter of the space, with their colours as they are."""
TOLD = (
    "seconds",
    "device",
    "residual_relative",
    "residual_over_noise",
    "noise_std",
    "findings",
    "method_options",
    "mask_pose",
    "mask_pose_std",
)


def main() -> None:
    options = _options()
    kept: Path = options.out / "real"
    if options.sheet:
        print(table(renew(kept, options.out / "real.json", options.out / "real.jpg")))
        return
    kept.mkdir(parents=True, exist_ok=True)
    folder = data_folder(options.data)
    for path in sorted((folder / "measurements").glob(f"{options.snapshots}*.mat")):
        for method in options.methods:
            cube = reconstructed(path, folder, method, options)
            name = f"{path.stem}.{method}" + (", aligned" if "mask_pose" in cube.attrs else "")
            name += ", learned" if "adapted_steps" in cube.attrs else ""
            np.savez_compressed(kept / f"{name}.npz", picture=picture(cube))
            told = {key: cube.attrs[key] for key in TOLD if key in cube.attrs}
            (kept / f"{name}.json").write_text(json.dumps(told, default=str))
            print(f"{name}: {cube.attrs['seconds']:.1f} s, {cube.attrs['residual']}", flush=True)


def renew(kept: Path, told: Path, drawn: Path) -> dict[str, dict[str, Any]]:
    """Strips and numbers of what was made since, then the sheet of everything."""
    from PIL import Image

    records = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
    for path in sorted(kept.glob("*.npz")):
        whole = Image.fromarray(np.load(path)["picture"])
        whole.resize(STRIP, Image.Resampling.BOX).save(path.with_suffix(".jpg"), **JPEG)
        records[path.stem] = json.loads(path.with_suffix(".json").read_text())
    records = dict(sorted(records.items()))
    sheet(kept, records).save(drawn, **JPEG)
    told.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return records


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--methods", nargs="+", default=["lumen.m2m", "gap-tv"])
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


def sheet(kept: Path, records: dict[str, dict[str, Any]]) -> Any:
    """All strips below each other, each with what is told of it."""
    from PIL import Image, ImageDraw, ImageFont

    found = [name for name in records if (kept / f"{name}.jpg").exists()]
    if not found:
        raise SystemExit(f"nothing is kept in {kept}: run without --sheet first.")
    (width, height), title, gap = STRIP, 16, 6
    row = title + height + gap
    whole = Image.new("RGB", (width + 2 * gap, row * len(found) + gap), "white")
    pen = ImageDraw.Draw(whole)
    for number, name in enumerate(found):
        told, top = records[name], gap + row * number
        text = (
            f"{name.replace('.', ': ', 1)}, residual {told['residual_over_noise']:.2g} times the "
            f"noise, {told['seconds']:.1f} s on {told['device']}"
        )
        pen.text((gap, top), text, fill="black", font=ImageFont.load_default(11))
        whole.paste(Image.open(kept / f"{name}.jpg"), (gap, top + title))
    return whole


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
