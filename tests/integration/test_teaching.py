"""A network that also learns from another one's cubes (`loss.teacher`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_training import launch, metrics, same_weights, write_config
from tiny_training import tiny_config

from prismask.errors import ConfigError, DataMissingError
from prismask.models.registry import create_model
from prismask.models.weights import read_record, save_weights
from prismask.training.checkpoint import load_checkpoint
from prismask.training.config import TrainConfig
from prismask.training.run import train
from prismask.training.setup import build_model
from prismask.training.state import new_state
from prismask.training.teacher import Teacher

pytestmark = pytest.mark.usefixtures("one_thread")

LUMEN: dict[str, Any] = {"width": 8, "stages": 2, "cosines": 8}


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """A teacher that differs from the truth: it has learned nothing."""
    network = create_model("lumen", bands=4, seed=9, **LUMEN)
    path = tmp_path / "teacher.safetensors"
    save_weights(network, path, {"name": "elder"})
    return path


def config(loss: dict[str, Any], **tables: dict[str, Any]) -> TrainConfig:
    plain: dict[str, dict[str, Any]] = {
        "model": {"backbone": "lumen", "options": LUMEN},
        "posterior": {"kind": "none"},
        "schedule": {"mode": "plain", "epochs": 4, "warmup_epochs": 0},
        "masks": {"per": "sample", "fault_share": 0.5, "told_share": 0.5},
        "loss": {"kind": "log", "stage_decay": 0.5, "mask_weight": 0.1, **loss},
        "camera": {"spread": [0.8, 1.0], "jitter": 0.2},
    }
    return tiny_config(**{**plain, **tables})


def weights(settings: TrainConfig, folder: Path | None = None) -> dict[str, torch.Tensor]:
    return train(settings, folder).state.model.state_dict()


def test_the_loss_falls_and_records_name_the_teacher(tmp_path: Path, teacher: Path) -> None:
    settings = config({"teacher": str(teacher)}, schedule={"mode": "plain", "epochs": 10})
    train(settings, tmp_path / "run", make_validate=lambda *_: lambda model: {"score": 1.0})
    steps = [line for line in metrics(tmp_path / "run") if line["event"] == "step"]
    first, last = (sum(line["loss"] for line in part) for part in (steps[:8], steps[-8:]))
    assert last < first - 1
    expected = {
        "name": "elder", "backbone": "lumen", "sha256": read_record(teacher)["sha256"],
        "weight": 1.0,
    }  # fmt: skip
    assert json.loads((tmp_path / "run" / "run.json").read_text())["teacher"] == expected
    assert read_record(tmp_path / "run" / "weights.safetensors")["teacher"] == expected


def test_without_weight_nothing_changes(teacher: Path) -> None:
    alone = weights(config({}))
    unheard = weights(config({"teacher": str(teacher), "teacher_weight": 0.0}))
    assert same_weights(alone, unheard)
    assert not same_weights(alone, weights(config({"teacher": str(teacher)})))


def test_only_the_teacher_draws_towards_its_cube(
    teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weighed heavily, a student of black cubes becomes dark, whatever the truth is."""
    monkeypatch.setattr(Teacher, "__call__", lambda self, batch: torch.zeros_like(batch.cube))
    loss = {"kind": "l2", "teacher": str(teacher)}
    schedule = {"mode": "plain", "epochs": 10, "theta_rate": 0.01}

    def brightness(weight: float) -> float:
        state = train(config({**loss, "teacher_weight": weight}, schedule=schedule)).state
        tail: Any = state.model.backbone.exit.tail  # type: ignore[union-attr]
        return float(tail.conv.bias.detach()[0])

    assert brightness(100.0) < brightness(0.01)


def test_a_pause_loses_nothing(tmp_path: Path, teacher: Path) -> None:
    settings = config({"teacher": str(teacher)})
    whole = weights(settings, tmp_path / "whole")
    folder = tmp_path / "pieces"
    done = train(settings, folder, stop_after=0.0)
    while not done.finished:
        done = train(settings, folder, stop_after=0.0, resume=True)
    assert same_weights(whole, done.state.model.state_dict())


def test_another_teacher_is_noticed_when_a_run_goes_on(tmp_path: Path, teacher: Path) -> None:
    settings = config({"teacher": str(teacher)})
    train(settings, tmp_path / "run", stop_after=0.0)
    other = create_model("lumen", bands=4, seed=10, **LUMEN)
    save_weights(other, teacher, {"name": "elder"}, overwrite=True)
    with pytest.raises(ConfigError, match=r"learned from a teacher of sha256 .* began with"):
        train(settings, tmp_path / "run", resume=True)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path: Path, teacher: Path) -> None:
    settings = config({"teacher": str(teacher)})
    path = write_config(tmp_path, settings)
    outputs = [p.communicate(timeout=240)[0] for p in launch(tmp_path / "two", 2, path)]
    assert "finished" in outputs[0], outputs[0]
    two = new_state(build_model(settings, torch.device("cpu")), settings)
    load_checkpoint(tmp_path / "two" / "checkpoint.safetensors", two, settings)
    for name, value in weights(settings).items():
        assert torch.allclose(value, two.model.state_dict()[name], atol=2e-5), name


def test_a_teacher_behind_a_learned_posterior_is_left_out_of_phi_phases(
    teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    original = Teacher.__call__

    def counted(self: Teacher, batch: Any) -> torch.Tensor:
        asked.append(len(batch.cube))
        return original(self, batch)

    monkeypatch.setattr(Teacher, "__call__", counted)
    schedule = {"epochs": 4, "warmup_epochs": 1, "theta_epochs": 1, "phi_epochs": 2}
    train(tiny_config(loss={"teacher": str(teacher)}, schedule=schedule))
    assert len(asked) == 2 * 4, "four steps an epoch, two epochs of θ"


def test_bad_teachers_are_refused_before_anything_is_written(tmp_path: Path, teacher: Path) -> None:
    narrow = create_model("srn", bands=6, seed=1, width=8, blocks=1)
    save_weights(narrow, tmp_path / "narrow.safetensors", {})
    cases = {
        str(tmp_path / "none.safetensors"): (DataMissingError, "none.safetensors does not exist"),
        "lumen.m2n": (ConfigError, "no weights are called 'lumen.m2n'"),
        "lumen": (ConfigError, "an architecture, not trained weights"),
        str(tmp_path / "narrow.safetensors"): (ConfigError, "6 bands, .* crops have 4"),
    }
    for name, (kind, sentence) in cases.items():
        with pytest.raises(kind, match=sentence):
            train(config({"teacher": name}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"loss\.teacher_weight is -1"):
        config({"teacher": str(teacher), "teacher_weight": -1.0})
