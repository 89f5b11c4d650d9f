"""Score runs, weights and solvers on the validation scenes, both mask groups apart.

    python results/validate.py RUN_FOLDER… [srn-looks.m2m] [gap-tv] [--noise 0.025] [--json FILE]

Of a run folder the (averaged) weights of its checkpoint.safetensors are taken: the end of the run,
whatever was thought of it on the way. Weights are named by their file or, if they ship, by name; a
solver by its name. `--enlarge 2` shows scenes twice as large (what the paper trains on), `--mirror`
asks networks both ways round (`models.mirror_ensemble`), and `--scenes train` shows what they were
trained on: by how much more they beat a solver there than on other scenes, they know by heart.
`--spread 0.75`, as often as wanted, scores behind cameras whose bands lie that many times as far
apart: each as it is, with nothing that `reconstruct` does to help a network with another camera.
`--size 128 --masks 1` is a quick look.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from prismask.evaluation.run.validation import make_validation, validation_cubes
from prismask.models.catalogue import load_model
from prismask.models.fast import FastReconstructor
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import SIZE
from prismask.solvers.registry import create_solver, list_solvers
from prismask.training.checkpoint import load_checkpoint
from prismask.training.config import TrainConfig, read_config, with_changes
from prismask.training.setup import build_model, prepare
from prismask.training.state import averaged_weights, new_state

Scores = Iterator[tuple[str, dict[str, float]]]
"""What the camera is called behind a name, and what was found there."""

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    given = _options()
    found = {}
    for name in given.names:
        for camera, scores in validate(name, given):
            label = Path(name).name + (", mirrored" if given.mirror else "") + camera
            found[label] = scores
            print(label, scores, flush=True)
    if given.json:
        known = json.loads(given.json.read_text()) if given.json.exists() else {}
        given.json.write_text(json.dumps(known | found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="+", help="run folders, weights or solvers")
    parser.add_argument("--data", default="", help="the data folder (see PRISMASK_DATA)")
    parser.add_argument("--noise", type=float, default=0.0, help="σ of one more group of masks")
    parser.add_argument("--scenes", choices=("validation", "train"), default="validation")
    parser.add_argument("--enlarge", type=float, default=1.0, help="how much larger scenes are")
    parser.add_argument("--spread", type=float, action="append", help="times the offsets")
    parser.add_argument("--size", type=int, default=SIZE, help="height and width of the cubes")
    parser.add_argument("--masks", type=int, default=4, help="masks of each group")
    parser.add_argument("--mirror", action="store_true", help="ask both ways round")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def validate(name: str, given: argparse.Namespace) -> Scores:
    """Scores of a run, of weights or of a solver, camera by camera."""
    folder = Path(name)
    is_run = (folder / "config.toml").is_file()
    config = read_config(folder / "config.toml") if is_run else TrainConfig()
    config = with_changes(config, data={"folder": given.data})
    score = validation(config, given)
    if name in list_solvers():
        yield from score(create_solver(name))
    elif not is_run:
        yield from score(prepared_network(load_model(name), given.mirror))
    else:
        state = new_state(build_model(config, DEVICE), config)
        load_checkpoint(folder / "checkpoint.safetensors", state, config)
        with averaged_weights(state):
            for camera, scores in score(prepared_network(state.model, given.mirror)):
                yield camera, {"step": state.step, "seconds": state.seconds, **scores}


def validation(config: TrainConfig, given: argparse.Namespace) -> Callable[[Any], Scores]:
    """What the training of `config` would be validated by, behind each camera asked for."""
    prepared = prepare(config, DEVICE)
    on_training = given.scenes == "train"
    scenes = prepared.train_scenes if on_training else prepared.validation_scenes
    if given.enlarge != 1:
        scenes = F.interpolate(scenes, scale_factor=given.enlarge, mode="bilinear")
        # The middle alone: averaged 2×2 the whole would be the scene as it was.
        scenes = validation_cubes(scenes, given.size)[: len(scenes)]
    region = None if prepared.region is None else torch.tensor(prepared.region.values)

    def score(model: Any) -> Scores:
        for label, camera in cameras(prepared.camera, given.spread).items():
            validate = make_validation(
                scenes, region, camera, given.masks, given.size, noise_std=given.noise
            )
            yield label, validate(model)

    return score


def cameras(nominal: CASSI, spread: list[float] | None) -> dict[str, CASSI]:
    """The training's own, or it with its bands so many times as far apart."""
    if spread is None:
        return {"": nominal}
    return {
        f", spread {factor:g}": replace(
            nominal, offsets=tuple(factor * offset for offset in nominal.offsets)
        )
        for factor in spread
    }


def prepared_network(model: Reconstructor, mirror: bool) -> FastReconstructor:
    if mirror:
        model.record["mirror_ensemble"] = 2
    return FastReconstructor(model, DEVICE, "float32")


if __name__ == "__main__":
    main()
