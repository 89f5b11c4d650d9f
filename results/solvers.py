"""Score the training-free solvers with their defaults on the ten KAIST scenes, noise-free.

    python results/solvers.py [--data DIR] [--solvers gap-tv twist …] [--device cuda]

The mask is `tsanet_sim_256`. Scores go to solvers.json and solvers.md beside this file (`--out`:
elsewhere); solvers that are in the JSON already stay there, so several calls, even on several
machines, fill one table. Nothing is chosen here: defaults were fixed on the CAVE validation scenes,
which `--group validation` scores into files of their own.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask import __version__
from prismask.evaluation.metrics import METRICS, score
from prismask.optics.camera import CASSI
from prismask.scenes.datasets import data_folder, load_mask_file, load_scenes, read_split
from prismask.solvers.base import IterativeSolver
from prismask.solvers.registry import create_solver, list_solvers

HERE = Path(__file__).resolve().parent
COLUMNS = ("psnr_paper", "psnr_mst", "psnr_dgsmp", "psnr_unit", "ssim", "ssim_valid", "sam")
PUBLISHED = {
    "twist": {"psnr_dgsmp": 23.12, "ssim": 0.669},
    "gap-tv": {"psnr_dgsmp": 24.36, "ssim": 0.669},
    "desci": {"psnr_dgsmp": 25.27, "ssim": 0.721},
    "pnp-dip": {"psnr_paper": 30.44, "ssim": 0.853},
}
"""Published one-to-one values on the ten KAIST scenes, each in its own convention."""
CAVEAT = (
    "The scenes are stored in 8 bits. The maximum of scene01 is exact; those of the nine other "
    "KAIST scenes are estimates, about ±3 %. PSNR with a fixed peak (MST, DGSMP, unit) can "
    "therefore be off by about 0.26 dB a scene; PSNR paper, whose peak is the cube's own maximum, "
    "hardly feels it."
)


def main() -> None:
    options = _options()
    folder, device = data_folder(options.data), torch.device(options.device)
    stem = "solvers" if options.group == "test" else "solvers_validation"
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    record_path: Path = options.json or out / f"{stem}.json"
    scenes = scenes_of(folder, options.group, options.scenes)
    mask = torch.tensor(load_mask_file(folder, read_split(folder).masks["single"]).values)
    for name in options.solvers:
        rows: list[dict[str, Any]] = []
        for scene, truth in scenes.items():
            rows.append(measured(name, scene, truth, mask, device))
            # Written after every scene: an hour of work should not hang on the last one.
            found = merged(record_path, name, record_of(name, rows, device), options.group)
            text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
            record_path.write_text(text, encoding="utf-8")
            (out / f"{stem}.md").write_text(page(found, record_path.name), encoding="utf-8")
    print(table(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--solvers", nargs="+", choices=list_solvers(), default=list_solvers())
    parser.add_argument("--group", choices=("test", "validation"), default="test")
    parser.add_argument("--scenes", type=int, help="only the first so many")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="where the numbers go [OUT/solvers.json]")
    parser.add_argument("--out", type=Path, default=HERE, help="where the page goes")
    options = parser.parse_args()
    if options.scenes is not None and options.scenes < 1:
        parser.error(f"--scenes is {options.scenes}; at least one is needed")
    return options


def scenes_of(folder: Path, group: str, most: int | None) -> dict[str, Tensor]:
    """The middle 256×256 of each scene of a group, `(1, C, H, W)`."""
    height, width = load_mask_file(folder, read_split(folder).masks["single"]).size
    found = {}
    for name, cube in list(load_scenes(folder, group).items())[:most]:
        top, left = (cube.size[0] - height) // 2, (cube.size[1] - width) // 2
        found[name] = torch.tensor(cube.values)[None, :, top : top + height, left : left + width]
    return found


def measured(
    name: str, scene: str, truth: Tensor, mask: Tensor, device: torch.device
) -> dict[str, Any]:
    """Scores, seconds and choices of one solver on one scene."""
    solver = create_solver(name)
    camera = CASSI.from_step(truth.shape[1])
    measurement, mask = camera.forward(truth, mask).to(device), mask.to(device)
    # Starting a device's libraries is not the solver's time.
    camera.adjoint(camera.forward(truth.to(device), mask), mask).flatten(2).mT.square().sum().item()
    solution = solver.solve(measurement, mask, camera)
    scores = {key: float(value[0]) for key, value in score(solution.cube.cpu(), truth).items()}
    print(f"{name}, {scene}: {METRICS['psnr_dgsmp'].text(scores['psnr_dgsmp'])} (PSNR DGSMP), "
          f"{solution.seconds:.1f} s", flush=True)  # fmt: skip
    return {
        "scene": scene,
        **scores,
        "seconds": solution.seconds,
        "iterations": solution.iterations,
        "residual": float(solution.residuals[-1, 0]),
        "chosen": solution.chosen,
    }


def record_of(name: str, rows: list[dict[str, Any]], device: torch.device) -> dict[str, Any]:
    """One solver's part of the JSON."""
    solver = create_solver(name)
    assert isinstance(solver, IterativeSolver)
    keys = (*METRICS, "seconds", "iterations", "residual")
    return {
        "mean": {key: sum(row[key] for row in rows) / len(rows) for key in keys},
        "published": PUBLISHED.get(name),
        "options": {key: _plain(value) for key, value in asdict(solver).items()},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "threads": torch.get_num_threads(),
        "prismask": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "scenes": rows,
    }


def merged(path: Path, name: str, record: dict[str, Any], group: str) -> dict[str, Any]:
    """What the file holds already, with this solver's record in the place of its old one."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if known and known["group"] != group:
        raise SystemExit(f"{path} holds {known['group']} scores; give another file with --json.")
    found = known.get("solvers", {}) | {name: record}
    return {
        "command": "python results/solvers.py --data DIR" + _group_option(group),
        "group": group,
        "mask": "tsanet_sim_256",
        "caveat": CAVEAT if group == "test" else None,
        "conventions": {key: metric.convention for key, metric in METRICS.items()},
        "solvers": {key: found[key] for key in sorted(found)},
    }


def table(found: dict[str, Any]) -> str:
    """Means over the scenes; every column names its convention."""
    heads = [f"{METRICS[c].label} {METRICS[c].unit}".strip() for c in COLUMNS]
    titles = ["solver", *heads, "seconds a scene", "iterations", "on", "scenes"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name, one in found["solvers"].items():
        mean = one["mean"]
        where = one["device"] if one["device"] != "CPU" else f"CPU, threads: {one['threads']}"
        cells = [f"{mean[c]:.{METRICS[c].digits}f}" for c in COLUMNS]
        cells += [f"{mean['seconds']:.2f}", f"{mean['iterations']:.0f}", where]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {len(one['scenes'])} |")
        if found["group"] == "test" and one["published"]:
            told = [
                f"{one['published'][c]:.{METRICS[c].digits}f}" if c in one["published"] else ""
                for c in COLUMNS
            ]
            lines.append(f"| {name}, published | " + " | ".join(told) + " | | | | 10 |")
    return "\n".join(lines)


def page(found: dict[str, Any], json_name: str) -> str:
    """The whole results page."""
    test = found["group"] == "test"
    which = "ten KAIST test scenes" if test else "six CAVE validation scenes"
    conventions = "\n".join(f"- **{METRICS[c].label}**: {METRICS[c].convention}." for c in COLUMNS)
    details = "\n".join(_details(name, one) for name, one in found["solvers"].items())
    note = f"\n{found['caveat']}\n" if test else ""
    return f"""# Solvers on the {which}

Means over the scenes, each solver with its defaults. Mask `tsanet_sim_256`, 2 px a band, no noise.
Made by `{found["command"]}`; all scenes in full precision are in `{json_name}`.

{table(found)}
{note}
Published SSIM values do not say how they treat the edge; they stand in the zero-padded column.

## Options and automatic choices

{details}

## Conventions

{conventions}
"""


def _details(name: str, one: dict[str, Any]) -> str:
    options = ", ".join(f"{k} {'automatic' if v is None and k != 'seconds' else v}"
                        for k, v in one["options"].items())  # fmt: skip
    return f"- **{name}**: {options}. Chosen: {_choices([row['chosen'] for row in one['scenes']])}."


def _choices(chosen: list[dict[str, Any]]) -> str:
    parts = []
    for key in chosen[0]:
        values = [one[key] for one in chosen if key in one]
        if all(isinstance(value, int | float) for value in values):
            low, high = min(values), max(values)
            parts.append(f"{key} {low:.3g}" + (f" to {high:.3g}" if high > low else ""))
        else:
            parts.append(f"{key} {', '.join(sorted({str(value) for value in values}))}")
    return "; ".join(parts) or "nothing"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _group_option(group: str) -> str:
    return "" if group == "test" else f" --group {group}"


if __name__ == "__main__":
    main()
