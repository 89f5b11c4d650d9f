"""Short trainings side by side, to choose rates and recipes on validation scenes.

    python results/sweep.py LINES.txt --out FILE.json

Each line of the file is `NAME CONFIG KEY=VALUE …`, as for `prismask train CONFIG --set KEY=VALUE`.
All run one after the other in one process, so that scenes are read once. Nothing of the test scenes
or test masks is looked at. Rows go to the file as they come; an earlier file is added to. Needs
torch, NumPy, SciPy and safetensors only.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import time
from pathlib import Path
from typing import Any

import torch

from prismask.evaluation.run.training import train
from prismask.models.machine import commit
from prismask.training import setup
from prismask.training.config import read_config, to_toml


def one_run(name: str, config: str, *changes: str) -> dict[str, Any]:
    """Train, and tell how fast and how well."""
    lines: list[dict[str, Any]] = []
    chosen = read_config(config, changes)
    train(chosen, report=lines.append)
    steps = [line for line in lines if line["event"] == "step"]
    validation = [line for line in lines if line["event"] == "validation"][-1]
    settled, end = steps[len(steps) // 4], steps[-1]
    rate = (end["step"] - settled["step"]) / max(end["seconds"] - settled["seconds"], 1e-9)
    scores = {key: round(value, 2) for key, value in validation.items() if "psnr" in key}
    return {
        "name": name,
        "config": config,
        "changes": list(changes),
        "resolved": to_toml(chosen),
        "commit": commit(),
        "steps": validation["step"],
        "steps_per_s": round(rate, 1),
        "seconds_until_first_log": round(steps[0]["seconds"], 1),
        **scores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    read = setup._scenes
    kept: dict[Any, Any] = {}

    def read_once(config: Any) -> Any:
        drawn = (config.data.synthetic_scenes, config.data.synthetic_size)
        key = (config.data.source, config.data.folder, *drawn, config.camera, config.seed)
        if key not in kept:
            kept[key] = read(config)
        return kept[key]

    setup._scenes = read_once
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    for line in given.lines.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        started = time.perf_counter()
        row = one_run(*shlex.split(line))
        row["wall_s"] = round(time.perf_counter() - started, 1)
        print(row, flush=True)
        rows.append(row)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
        gc.collect()
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
