"""Whatever is typed makes a difference to what the library is told, in every command that hands its
work to one function of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
import torch

from prismask.apps.cli.app import app, run
from prismask.errors import PrismaskError
from prismask.optics.camera import CASSI
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement

WAVELENGTHS = (500.0, 550.0, 600.0)


@dataclass(frozen=True)
class Command:
    """How a command is called in earnest, and the function that it calls."""

    works: str
    """The function of the library."""
    line: str
    """What has to be typed."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Other values than those that an option's type suggests, or with what else it goes."""
    before: frozenset[str] = frozenset()
    """Options that matter before or after that function alone."""


TEXTS = {
    "--data": "d", "--scenes": "a, b", "--size": "32", "--split": "s.toml", "--camera": "step=3",
    "--groups": "g", "--metrics": "sam", "--precision": "float32", "--device": "cpu",
    "--protocol": "one-to-many", "--dask": "local", "--features": "line", "--out": "other.nc",
    "--faults": "shift", "--title": "words", "--figures": "drawn", "--variable": "cube",
    "--mask-variable": "mask", "--offsets": "0,2,5", "--polynomial": "1,2", "--model": "lumen.m2m",
    "--wavelengths": "500,551,600", "--dark": "0.01", "--mask-std": "0.1", "--noise-std": "0.02",
    "--extension": "mat", "--timings": "t.json", "--set": "seed=3", "--stop-after": "9min",
    "--scale": "white", "--crop-mask": "0,0,8,8", "--flat": "flat.nc", "--mask": "other_mask.nc",
    "--bad-pixels": "none", "--method": "gap-tv", "--illuminant": "A", "--exposure": "2",
    "--frame": "12,16", "--name": "lab.example", "--host": "127.0.0.2",
}  # fmt: skip
CAMERA = {"--step": "3 --bands 3", "--bands": "3 --step 2", "--axis": "height --step 2 --bands 3",
          "--polynomial": "-240,0.5 --wavelengths 500,550,600",
          "--design": "dual --step 2 --bands 3"}  # fmt: skip
COMMANDS = {
    "evaluate": Command("prismask.evaluation.run.runner.evaluate", "m --out o"),
    "stress": Command("prismask.evaluation.run.runner.stress", "m --out o", {},
                      frozenset({"--spectra"})),
    "analyse": Command("prismask.evaluation.analyses.runner.analyse", "m --out o"),
    "spectra-test": Command("prismask.evaluation.run.spectra.spectra_test", "m --out o"),
    "report": Command("prismask.evaluation.report.page.write_report", ".",
                      {"--out": "other.html"}),
    "train": Command("prismask.evaluation.run.training.train", "config.toml"),
    "reconstruct": Command(
        "prismask.apps.cli.reconstruct._one", "shot.nc --mask mask.nc --out cube.nc",
        CAMERA | {"--turn-mask": "turned-180", "--adapt": "5",
                  "--iterations": "3 --method gap-tv", "--wavelengths": "500,551,600",
                  "--bits": "12"},
        frozenset({"--workers", "--dask", "--extension", "--pose"}),
    ),
    "simulate": Command(
        "prismask.optics.simulate.simulate", "scene.nc --mask mask.nc --out shot2.nc",
        CAMERA | {"--read-noise": "3 --full-well 100",
                  "--design": "dual --step 2 --bands 3 --mask long_mask.nc"},
        frozenset({"--out", "--overwrite", "--variable", "--mask-variable", "--bands"}),
    ),
    "camera": Command(
        "prismask.optics.measured.measure_camera", "500=shot.nc 600=flat.nc --out m.nc",
        {}, frozenset({"--out", "--overwrite", "--figure"}),
    ),
    "camera refine": Command(
        "prismask.inference.refinement.refine.refine_mask", "shot.nc --mask mask.nc --out m.nc",
        CAMERA, frozenset({"--overwrite"}),
    ),
    "camera check": Command(
        "prismask.inference.refinement.check.check_mask", "shot.nc --mask mask.nc",
        CAMERA, frozenset({"--overwrite", "--figure"}),
    ),
    "serve": Command("prismask.apps.web.server.run_site", "",
                     {}, frozenset({"--model"})),
    "export": Command(
        "prismask.inference.export.Exported.of", "net.pt2 --mask mask.nc --model a.m2m",
        CAMERA, frozenset({"--overwrite", "--mask-variable", "--frame"}),
    ),
}  # fmt: skip


@cache
def options_of(command: str) -> dict[str, Any]:
    """Each option by its first name."""
    here = app
    for word in command.split():
        here = here[word]
    listed = here.assemble_argument_collection()
    return {one.name: one for one in listed if one.name.startswith("--")}


def _typed(command: str, name: str) -> list[str]:
    """The option with another value than its default."""
    option, values = options_of(command)[name], COMMANDS[command].values
    hint, default = option.hint, option.field_info.default
    if get_origin(hint) in (Union, UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    if hint is bool:
        return [next(n for n in option.names if n.startswith("--no-") is bool(default))]
    if name in values:
        text = values[name]
    elif get_origin(hint) is Literal:
        text = next(str(one) for one in get_args(hint) if one != default)
    elif hint in (int, float):
        text = "7" if hint is int else "0.25"
    else:
        text = TEXTS[name]
    return [name, *text.split(" ")] if name in values else [name, text]


def _facts(value: Any) -> Any:
    """What can be compared; functions, of which only progress is told, are left out."""
    if isinstance(value, np.ndarray | torch.Tensor):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tobytes())
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        listed = [one.name for one in fields(value) if one.name != "run_id"]
        return (type(value).__name__, [(name, _facts(getattr(value, name))) for name in listed])
    if isinstance(value, Mapping):
        return [(str(key), _facts(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_facts(one) for one in value]
    return "a function" if callable(value) else repr(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("lab")
    draw = np.random.default_rng(0)
    scene, camera = Cube(draw.random((3, 12, 12)), WAVELENGTHS), CASSI.from_step(3)
    masks = {name: Mask((draw.random((12, width)) > 0.5).astype(np.float32))
             for name, width in (("mask", 12), ("other_mask", 12), ("long_mask", 16))}  # fmt: skip
    save(scene, here / "scene.nc")
    for name, mask in masks.items():
        save(mask, here / f"{name}.nc")
    save(simulate(scene, masks["mask"], camera), here / "shot.nc")
    save(Measurement(0.5 + draw.random((12, 16)) / 4), here / "flat.nc")
    (here / "config.toml").write_text('name = "tiny"\n')
    return here


class Reached(PrismaskError):
    """The function of the library was called."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """What that function was told, by command."""
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}

    def record(*arguments: Any, **options: Any) -> None:
        found["told"] = _facts([arguments, sorted(options.items())])
        raise Reached("reached.")

    for command in COMMANDS.values():
        monkeypatch.setattr(command.works, record)
    # Made before that function is called, and costly.
    monkeypatch.setattr("prismask.models.weights.load_model", lambda name: f"weights {name}")
    monkeypatch.setattr("prismask.apps.web.site.Site", lambda *given: given)
    return found


def heard(command: str, more: list[str], told: dict[str, Any]) -> Any:
    told.clear()
    names = {word for word in more if word.startswith("--")}
    line = COMMANDS[command].line.split()
    for name in names & set(line):
        place = line.index(name)
        del line[place : place + 2]
    assert run([*command.split(), *line, *more]) == 2
    assert "told" in told, "the function was not called"
    return told["told"]


CASES = [
    (command, name)
    for command in COMMANDS
    for name in options_of(command)
    if name not in COMMANDS[command].before
]


@pytest.mark.parametrize(("command", "name"), CASES)
def test_an_option_arrives(
    command: str, name: str, told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    typed = _typed(command, name)
    usual = heard(command, [], told)
    assert usual == heard(command, [], told), "nothing but what is typed makes a difference"
    if len(typed) > 2 and typed[2].startswith("--"):
        usual = heard(command, typed[2:], told)
    assert heard(command, typed, told) != usual, capsys.readouterr().err
