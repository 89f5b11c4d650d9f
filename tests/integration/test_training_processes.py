"""What only the first process of a run does, and what the others hear of it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from test_training import free_port, launch, write_config
from tiny_training import tiny_config

from prismask.apps.cli.train import run_training
from prismask.errors import ConfigError, MissingPartError
from prismask.training.run import train

SHORT = {"epochs": 1, "warmup_epochs": 1}

FAILING = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tiny_training import tiny_config
from prismask.training.run import train

def make_validate(config, prepared):
    def validate(model):
        raise ValueError("no score today")
    return validate

try:
    train(tiny_config(schedule={schedule!r}), make_validate=make_validate)
finally:
    for thread in Path("/proc/self/task").glob("*/comm"):
        print("thread", thread.read_text().strip())
"""


@pytest.mark.slow
def test_a_validation_that_fails_is_told_to_the_others() -> None:
    code = FAILING.format(tests=str(Path(__file__).parent), schedule=SHORT)
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert "ValueError: no score today" in first
    assert "WorkerLostError: the first process of this run has failed" in second
    # One that is left may abort the process at its end ("terminate called …").
    assert "gloo" not in first + second, (first, second)
    assert [process.returncode for process in processes] == [1, 1], (first, second)


@pytest.mark.slow
def test_only_the_first_process_speaks(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_config(schedule=SHORT))
    first, second = (p.communicate(timeout=240)[0] for p in launch(tmp_path / "run", 2, path))
    assert "finished" in first, first
    assert "finished" not in second, second
    assert "validation" not in second


@pytest.mark.parametrize(("rank", "drawn"), [("0", 1), ("1", 0)])
def test_only_the_first_process_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, drawn: int
) -> None:
    calls: list[Path] = []
    monkeypatch.setattr("prismask.evaluation.run.training.train", lambda *_, **__: None)
    monkeypatch.setattr("prismask.apps.cli.train._draw_curves", calls.append)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    run_training(write_config(tmp_path, tiny_config()), out=tmp_path / "run")
    assert len(calls) == drawn


class Writer:
    """Stands in for TensorBoard's, which need not be installed."""

    made: list[Writer] = []  # noqa: RUF012

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step = folder, purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.is_closed = False
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.is_closed = True


def test_event_files_are_written_from_python_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr("torch.utils.tensorboard", module, raising=False)
    monkeypatch.setattr(Writer, "made", [])
    config = tiny_config(schedule={"epochs": 2, "warmup_epochs": 1}, output={"tensorboard": True})
    lines: list[dict[str, Any]] = []
    train(config, tmp_path / "run", stop_after=0.0, report=lines.append)
    train(config, tmp_path / "run", resume=True, report=lines.append)
    first, second = Writer.made
    assert first.folder == str(tmp_path / "run" / "tensorboard")
    assert first.purge_step == 1
    assert second.purge_step == first.scalars[-1][2] + 1, "steps go on where they were left"
    assert all(writer.is_closed for writer in Writer.made)
    told = [(f"step/{name}", line[name], line["step"]) for line in lines for name in ("loss",)]
    found = [one for writer in Writer.made for one in writer.scalars if one[0] == "step/loss"]
    assert found == told
    with pytest.raises(ConfigError, match="give one"):
        train(config)


def test_event_files_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPartError, match="pip install tensorboard"):
        train(tiny_config(output={"tensorboard": True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
