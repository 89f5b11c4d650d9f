"""`prismask train` as a person uses it, with right and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_training import tiny_config

from prismask.apps.cli import train as command
from prismask.apps.cli.app import run
from prismask.apps.cli.train import progress_text
from prismask.evaluation.figures.training import draw_curves
from prismask.models.weights import load_weights
from prismask.training.config import to_toml


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(to_toml(tiny_config(schedule={"epochs": 6})), encoding="utf-8")
    return path


def test_a_run_leaves_everything_behind(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["train", str(config), "--out", str(out), "--set", "seed=3"]) == 0
    told = capsys.readouterr()
    assert "finished" in told.out
    assert "validation at step 24: PSNR paper [dB] fabricated" in told.err
    names = {path.name for path in out.iterdir()}
    assert names >= {"config.toml", "run.json", "metrics.jsonl", "checkpoint.safetensors"}
    assert names >= {"weights.safetensors", "curves.png"}
    record = load_weights(out / "weights.safetensors").record
    assert record["seed"] == 3
    assert record["validation"]["psnr_fabricated"] > 0
    facts = json.loads((out / "run.json").read_text())
    assert set(facts["scenes_sha256"]) == {"train", "validation"}
    assert "torch" in facts["versions"]


def test_a_line_says_how_far_it_is() -> None:
    line = {
        "event": "step",
        "step": 7,
        "epoch": 3,
        "phase": "phi",
        "loss": 0.0123456,
        "psnr_unit": 21.234,
        "progress": 0.25,
        "samples_per_s": 41.6,
        "seconds_left": 61.9,
    }
    said = "epoch 3 phi  loss 0.01235  PSNR unit 21.23 dB"
    assert progress_text(line) == f"[#####{15 * '.'}] {said}  42 samples/s  1:01 left"
    noisy = line | {"g_min": 0.01, "g_max": 0.2, "progress": 1.3, "seconds_left": 3605.0}
    assert progress_text(noisy) == (
        f"[{20 * '#'}] {said}  g 0.0100…0.2000  42 samples/s  60:05 left"
    )


@pytest.mark.parametrize("shared", [True, False])
def test_only_where_several_train_a_lost_connection_means_a_lost_peer(
    config: Path, shared: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Left(BaseException):
        """In place of the end of the process."""

    def lose(*_: object, **__: object) -> None:
        raise RuntimeError("Connection reset by peer")

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(command, "run_training", lose)
    monkeypatch.setattr(command, "_leave_at_once", leave)
    monkeypatch.setattr("prismask.training.distributed.under_torchrun", lambda: shared)
    with pytest.raises(Left if shared else RuntimeError) as caught:
        command.main([str(config)])
    assert (caught.value.args == (command.LOST_PEER,)) is shared
    assert ("start again with --resume" in capsys.readouterr().err) is shared


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "schedule.bacth=2"], "Did you mean 'batch'"),
        (["--set", "speed.device=cuda:7"], "CUDA device"),
        (["--set", "data.crop=64"], "Use a smaller data.crop"),
        (["--set", "data.source=cave", "--set", "data.folder=/nowhere"], "How to get it"),
        (["--set", "schedule.mode=plain"], "would leave it untrained"),
        (["--stop-after", "later"], "is not a time"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    out = tmp_path / "run"
    assert run(["train", str(config), "--out", str(out), *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told
    assert not out.exists()


def test_a_second_run_in_the_folder_is_refused_and_resume_goes_on(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert run(["train", str(config), "--out", out, "--stop-after", "0.001s"]) == 0
    assert "paused" in capsys.readouterr().out
    assert run(["train", str(config), "--out", out]) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(["train", str(config), "--out", out, "--resume"]) == 0
    heard = capsys.readouterr()
    assert "finished" in heard.out
    assert "from the beginning" not in heard.err


def test_a_resumed_run_whose_folder_is_gone_says_that_it_begins_anew(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lost"
    assert run(["train", str(config), "--out", str(out), "--resume", "--stop-after", "0.001s"]) == 0
    assert f"{out} holds no checkpoint" in capsys.readouterr().err


def test_progress_lines_are_readable() -> None:
    line = {
        "event": "step", "epoch": 3, "phase": "phi", "loss": 0.01, "psnr_unit": 20.0,
        "samples_per_s": 100.0, "seconds_left": 75.0, "progress": 0.5, "g_min": 0.01, "g_max": 0.02,
    }  # fmt: skip
    text = progress_text(line)
    assert text.startswith("[##########..........]")
    assert "g 0.0100…0.0200" in text
    assert "1:15 left" in text


def test_curves_of_a_run_without_steps_are_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    draw_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()
