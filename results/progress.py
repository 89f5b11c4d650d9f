"""How a training came along on the test scenes, looked at when it was over.

    python results/progress.py RUN_FOLDER… [--data DIR] [--trials 5] [--json FILE]
    python results/progress.py --page results/progress.json

Scores the weights that `output.keep_every` kept in each run's snapshots/ on the ten KAIST scenes
with a few masks a group, and says after how many samples and minutes 30, 32 and 33 dB were reached.
Nothing is chosen here: a run is over before it is looked at. The second form prints the table of a
file that was written before.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from prismask.evaluation.protocol.splits import GROUP_TEXTS
from prismask.evaluation.run.runner import evaluate
from prismask.models.weights import read_record

MARKS = (30.0, 32.0, 33.0)
"""Decibels (PSNR paper) that people ask about."""


def main() -> None:
    options = _options()
    if options.page is not None:
        print(table(json.loads(options.page.read_text(encoding="utf-8"))))
        return
    known = {}
    if options.json is not None and options.json.exists():
        known = json.loads(options.json.read_text(encoding="utf-8"))
    for folder in options.folders:
        known[folder.name] = curve(folder, options.data, options.trials)
        if options.json is not None:
            text = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
            options.json.write_text(text, encoding="utf-8")
    print(table(known))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", help="run folders with snapshots/")
    parser.add_argument("--data", type=Path, help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--trials", type=int, default=5, help="masks a group")
    parser.add_argument("--json", type=Path, help="where the numbers go; runs in it stay")
    parser.add_argument("--page", type=Path, help="only print the table of this file")
    options = parser.parse_args()
    if not options.folders and options.page is None:
        parser.error("name run folders, or a file with --page")
    return options


def curve(folder: Path, data: Path | None, trials: int) -> dict[str, Any]:
    """Scores of one run's snapshots by mask group, with samples and minutes."""
    paths = sorted((folder / "snapshots").glob("*.safetensors"))
    if not paths:
        raise SystemExit(f"{folder} kept no snapshots: train with --set output.keep_every=N.")
    batch = json.loads((folder / "run.json").read_text(encoding="utf-8"))["batch"]
    found = evaluate(
        {path.stem: str(path) for path in paths}, data=data, trials=trials,
        metrics=("psnr_paper",), timing=False,
    )  # fmt: skip
    points = []
    for path in paths:
        record = read_record(path)
        means = {g: found.mean(path.stem, g) for g in found.record["groups"]}
        minutes = round(record["seconds"] / 60, 3)
        points.append({"samples": record["step"] * batch, "minutes": minutes, **means})
    return {"masks_a_group": trials, "groups": list(found.record["groups"]), "points": points}


def reached(curve: dict[str, Any], group: str, mark: float) -> str:
    """When a curve came to a mark and stayed there: samples and minutes, or where it ended."""
    points = curve["points"]
    below = [k for k, point in enumerate(points) if point[group] < mark]
    first = below[-1] + 1 if below else 0
    if first == len(points):
        return f"not ({points[-1][group]:.2f})"
    return f"{points[first]['samples'] / 1e3:.0f} k, {points[first]['minutes']:.1f} min"


def table(curves: dict[str, Any]) -> str:
    heads = " | ".join(f"{mark:g} dB" for mark in MARKS)
    lines = [f"| run | masks | {heads} | at the end |", "|---" * (len(MARKS) + 3) + "|"]
    for name, found in curves.items():
        for group in found["groups"]:
            cells = " | ".join(reached(found, group, mark) for mark in MARKS)
            title, last = GROUP_TEXTS.get(group, group), found["points"][-1]
            lines.append(f"| {name} | {title} | {cells} | {last[group]:.2f} dB |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
