"""Score run folders on the validation scenes, both mask groups apart.

    python results/validate.py RUN_FOLDER… [gap-tv] [--noise 0.025] [--data DIR] [--json FILE]

Uses the (averaged) weights of each folder's checkpoint.safetensors: the end of the run, whatever
was thought of it on the way. A solver is named instead of a folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from prismask.evaluation.validation import make_validation
from prismask.models.fast import FastReconstructor
from prismask.solvers.registry import create_solver, list_solvers
from prismask.training.checkpoint import load_checkpoint
from prismask.training.config import TrainConfig, read_config, with_changes
from prismask.training.setup import build_model, prepare
from prismask.training.state import averaged_weights, new_state


def validate(folder: Path, data: str, noise: float) -> dict[str, float]:
    config = read_config(folder / "config.toml")
    config = with_changes(config, data={"folder": data})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    prepared = prepare(config, device)
    state = new_state(build_model(config, device), config)
    load_checkpoint(folder / "checkpoint.safetensors", state, config)
    region = None if prepared.region is None else torch.tensor(prepared.region.values)
    score = make_validation(prepared.validation_scenes, region, prepared.camera, noise_std=noise)
    with averaged_weights(state):
        model = FastReconstructor(state.model, device, "float32")
        return {"step": state.step, "seconds": state.seconds, **score(model)}


def validate_solver(name: str, data: str, noise: float) -> dict[str, float]:
    config = with_changes(TrainConfig(), data={"folder": data})
    prepared = prepare(config, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    assert prepared.region is not None
    region = torch.tensor(prepared.region.values)
    score = make_validation(prepared.validation_scenes, region, prepared.camera, noise_std=noise)
    return score(create_solver(name))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--data", default="")
    parser.add_argument("--noise", type=float, default=0.0, help="σ of one more group of masks")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {}
    for folder in given.folders:
        is_solver = str(folder) in list_solvers()
        found[folder.name] = (
            validate_solver(folder.name, given.data, given.noise)
            if is_solver
            else validate(folder, given.data, given.noise)
        )
        print(folder.name, found[folder.name], flush=True)
    if given.json:
        known = json.loads(given.json.read_text()) if given.json.exists() else {}
        found = known | found
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
