"""Options that several commands share arrive where the library is told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from prismask.apps.cli import app as cli
from prismask.apps.cli.evaluate import (
    ProtocolOptions,
    SceneOptions,
    Shared,
    as_arguments,
    read_camera,
    read_faults,
    words,
)
from prismask.errors import ConfigError
from prismask.optics.camera import CameraDescription

LIBRARY = {
    "evaluate": "prismask.evaluation.run.runner.evaluate",
    "stress": "prismask.evaluation.run.runner.stress",
    "analyse": "prismask.evaluation.analyses.runner.analyse",
}
SCENES = {
    "data": Path("d"), "scenes": ["a", "b"], "split": Path("s.toml"), "device": "cpu",
    "noise": 0.5,
}  # fmt: skip
PROTOCOL = {"protocol": "one-to-many", "groups": ["g", "h"]}
WORK = {"batch": 3, "workers": 2, "threads": 4, "dask": "local"}
SHARED_BY = {
    "evaluate": SCENES | PROTOCOL | WORK | {"adapt": 7},
    "stress": SCENES | WORK | {"groups": ["g", "h"], "adapt": 7},
    "analyse": SCENES | PROTOCOL,
}
FLAGS = {
    "evaluate": ("resume", "allow_overlap", "resample", "align"),
    "stress": ("resume", "allow_overlap", "resample", "align"),
    "analyse": ("allow_overlap", "resample", "overwrite"),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each call of the library was told, without its progress."""
    calls: list[dict[str, Any]] = []

    class Result(SimpleNamespace):
        """Of an evaluation as well as of an analysis."""

        def __getitem__(self, name: str) -> list[str]:
            return []

    def run(models: list[str], **options: Any) -> Result:
        options.pop("progress")
        calls.append({"models": models, **options})
        return Result(markdown="", ok=True)

    for name in LIBRARY.values():
        monkeypatch.setattr(name, run)
    return calls


@pytest.mark.parametrize("command", LIBRARY)
def test_every_shared_option_arrives(command: str, told: list[dict[str, Any]]) -> None:
    line = [command, "m", "n", "--out", "o"]
    for name, value in SHARED_BY[command].items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        line += [f"--{name}", text]
    assert cli.run([*line, *(f"--{flag.replace('_', '-')}" for flag in FLAGS[command])]) == 0
    expected = SHARED_BY[command] | dict.fromkeys(FLAGS[command], True)
    assert told[0]["models"] == ["m", "n"]
    assert {name: told[0][name] for name in expected} == expected


@pytest.mark.parametrize("command", LIBRARY)
def test_flags_are_off_by_default(command: str, told: list[dict[str, Any]]) -> None:
    assert cli.run([command, "m", "--out", "o"]) == 0
    assert not any(told[0][flag] for flag in FLAGS[command])


def test_an_option_is_shared_under_one_name_only() -> None:
    names = [field.name for options in get_args(Shared) for field in fields(options)]
    assert len(names) == len(set(names))


def test_lists_are_parted_at_commas() -> None:
    assert words("a, b,,c ") == ["a", "b", "c"]
    assert words(" , ") is None
    found = as_arguments(SceneOptions(scenes="a,b", noise=0.1), ProtocolOptions())
    assert (found["scenes"], found["groups"], found["noise"]) == (["a", "b"], None, 0.1)


def test_the_size_of_scenes() -> None:
    assert as_arguments(SceneOptions())["size"] is None
    assert as_arguments(SceneOptions(size="256"))["size"] == (256, 256)
    assert as_arguments(SceneOptions(size="192, 224"))["size"] == (192, 224)
    for wrong in ("a", "1,2,3", "-5", "1.5"):
        with pytest.raises(ConfigError, match="192,224"):
            as_arguments(SceneOptions(size=wrong))


def test_faults_with_sizes() -> None:
    assert read_faults(None) == {"faults": None, "sizes": {}}
    assert read_faults("shift, blur") == {"faults": ["shift", "blur"], "sizes": {}}
    found = read_faults("shift=0.5,1, gain, dispersion=-2")
    assert found["faults"] == ["shift", "gain", "dispersion"]
    assert found["sizes"] == {"shift": [0.5, 1.0], "dispersion": [-2.0]}
    for wrong in ("0.5", "gain,2", "shift=much"):
        with pytest.raises(ConfigError, match=r"shift=0\.5,1"):
            read_faults(wrong)


def test_a_camera_in_one_line(tmp_path: Path) -> None:
    assert as_arguments(SceneOptions())["camera"] is None
    found = as_arguments(SceneOptions(camera="step=-2, axis=height"))["camera"]
    assert found == CameraDescription(step=-2.0, axis="height")
    listed = read_camera("offsets=0,1.9,3.7,design=dual")
    assert listed == CameraDescription(offsets=(0.0, 1.9, 3.7), design="dual")
    (tmp_path / "at.txt").write_text("0 2 4")
    assert read_camera(f"bands=3,offsets={tmp_path / 'at.txt'}").offsets == (0.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("text", "words_told"),
    [
        ("3", "step=3,axis=height"),
        ("stepp=3", "Did you mean 'step'"),
        ("axis=diagonal", "axis"),
        ("step=1,2", "one number"),
        ("bands=2.5", "one number"),
        ("step=wide", "numbers separated by commas"),
    ],
)
def test_what_is_no_camera(text: str, words_told: str) -> None:
    with pytest.raises(ConfigError, match=words_told):
        read_camera(text)
