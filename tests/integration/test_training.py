"""Training as a whole: it learns, phases keep apart, a kill loses nothing, two make one."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_training import MUON, tiny_config

from prismask.errors import (
    ConfigError,
    DivergedError,
    FolderInUseError,
    OutputExistsError,
    PrismaskError,
    WeightsError,
)
from prismask.inference.camera_match import Turn
from prismask.inference.engine import Engine
from prismask.inference.methods.network import NetworkMethod
from prismask.models.inputs import network_scale
from prismask.models.weights import (
    load_model,
    load_weights,
    read_sealed,
    save_weights,
    trained_camera,
    write_sealed,
)
from prismask.optics.camera import CASSI
from prismask.training import run
from prismask.training import step as training_step
from prismask.training.checkpoint import FORMAT as CHECKPOINT_FORMAT
from prismask.training.checkpoint import load_checkpoint, save_checkpoint
from prismask.training.config import TrainConfig, with_changes
from prismask.training.run import _batches, train
from prismask.training.setup import build_model, prepare
from prismask.training.state import new_state

pytestmark = pytest.mark.usefixtures("one_thread")

HERE = Path(__file__).parent


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_loss_falls_and_g_moves_only_in_phi_phases(tmp_path: Path) -> None:
    seen: list[tuple[str, bool, bool]] = []
    original = training_step.Stepper.__call__

    def watched(self: training_step.Stepper, phase: Any) -> Any:
        model = self.state.model
        theta = [p.detach().clone() for p in model.backbone.parameters()]
        phi = [p.detach().clone() for p in model.posterior.parameters()]
        result = original(self, phase)
        moved_theta = any(
            not torch.equal(a, b) for a, b in zip(theta, model.backbone.parameters(), strict=True)
        )
        moved_phi = any(
            not torch.equal(a, b) for a, b in zip(phi, model.posterior.parameters(), strict=True)
        )
        seen.append((phase, moved_theta, moved_phi))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_step.Stepper, "__call__", watched)
        outcome = train(tiny_config(), tmp_path / "run")
    assert outcome.finished
    assert {phase for phase, _, _ in seen} == {"warmup", "theta", "phi"}
    for phase, moved_theta, moved_phi in seen:
        assert moved_theta is (phase != "phi")
        assert moved_phi is (phase == "phi")
    lines = [line for line in metrics(tmp_path / "run") if line["event"] == "step"]
    first = sum(line["loss"] for line in lines[:4])
    last = sum(line["loss"] for line in lines[-4:])
    assert last < 0.6 * first
    for name in ("config.toml", "run.json", "checkpoint.safetensors"):
        assert (tmp_path / "run" / name).is_file()


def test_the_average_stands_still_where_theta_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A φ-phase after each θ-phase would otherwise pull the average onto the last weights."""
    seen: list[tuple[str, torch.Tensor]] = []
    original = training_step.Stepper.__call__

    def watched(self: training_step.Stepper, phase: Any) -> Any:
        assert self.state.average is not None
        seen.append((phase, self.state.average["head.weight"].clone()))
        return original(self, phase)

    monkeypatch.setattr(training_step.Stepper, "__call__", watched)
    train(tiny_config())
    assert {phase for phase, _ in seen} == {"warmup", "theta", "phi"}
    for (phase, before), (_, after) in pairwise(seen):
        assert torch.equal(before, after) is (phase == "phi")


@pytest.mark.parametrize("mode", ["bilevel", "joint"])
def test_only_the_gradient_of_theta_is_clipped(mode: str) -> None:
    norms: dict[str, list[float]] = {"theta": [], "phi": []}

    def watch(name: str) -> Any:
        def step(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            found = [p.grad.norm() for p in optimiser.param_groups[0]["params"]]
            norms[name].append(float(torch.stack(found).norm()))

        return step

    schedule = {"mode": mode, "epochs": 7, "clip_gradient": 1e-6}
    config = tiny_config(schedule=schedule, loss={"beta": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        original = run.new_state

        def new(*given: Any) -> Any:
            state = original(*given)
            state.theta.parts[0].register_step_pre_hook(watch("theta"))
            state.phi.parts[0].register_step_pre_hook(watch("phi"))
            return state

        patch.setattr(run, "new_state", new)
        train(config)
    assert max(norms["theta"]) <= 1.01e-6
    assert min(norms["phi"]) > 1e-5


@pytest.mark.parametrize("mode", ["joint", "plain"])
def test_other_modes(mode: str) -> None:
    kind = "gst" if mode == "joint" else "fixed"
    config = tiny_config(schedule={"mode": mode, "epochs": 2}, posterior={"kind": kind})
    before = build_model(config, torch.device("cpu")).posterior.state_dict()
    after = train(config).state.model.posterior.state_dict()
    assert same_weights(before, after) is (mode == "plain")


def test_budget_ends_annealed_and_in_time() -> None:
    lines: list[dict[str, Any]] = []
    config = tiny_config(schedule={"budget": "3s"})
    train(config, report=lines.append)
    steps = [line for line in lines if line["event"] == "step"]
    # No step begins after the end, however long steps take here.
    seconds = [line["seconds"] for line in steps]
    assert seconds[-2] < 3
    assert len(steps) > 3
    assert steps[0]["rate"] > 0.9 * config.schedule.theta_rate
    assert steps[-1]["rate"] < 0.05 * config.schedule.theta_rate


def test_a_run_remembers_the_seconds_it_has_used(tmp_path: Path) -> None:
    """A budget is one for all resumptions; `stop_after` is each call's own."""
    config = tiny_config(schedule={"budget": "2s"})
    calls, used = 0, [0.0]
    while not (outcome := train(config, tmp_path, resume=True, stop_after=0.3)).finished:
        calls += 1
        used.append(outcome.state.seconds)
        # Earlier calls do not count: each of them has its 0.3 s, and steps to show for it.
        assert used[-1] - used[-2] >= 0.3
        assert calls < 10
    # With a forgetful clock the budget would never be used up.
    assert 1 <= calls <= 7
    assert outcome.state.seconds >= 2
    seconds = [line["seconds"] for line in metrics(tmp_path)]
    assert seconds == sorted(seconds)


def test_masks_and_noise_are_drawn_anew_at_every_step() -> None:
    """Not only repeatable: no two steps share them, and no two samples share noise."""
    config = tiny_config(data={"noise_std": [0.05, 0.05]}, masks={"vary": False})
    prepared = prepare(config, torch.device("cpu"), None)
    batches = _batches(config, prepared, prepared.train_scenes, "training", slice(None))
    made = [batches.make(step) for step in range(4)]
    for one, other in pairwise(made):
        assert not torch.equal(one.mask, other.mask)
    noise = [
        (batch.measurement - batch.camera.forward(batch.cube, batch.mask)).flatten(1)
        for batch in made
    ]
    rows = torch.cat(noise)
    rows = rows / rows.norm(dim=1, keepdim=True)
    alike = (rows @ rows.T).fill_diagonal_(0)
    assert float(alike.abs().max()) < 0.2


@pytest.mark.parametrize("optimizer", [{}, MUON], ids=["adam", "muon"])
def test_pause_and_go_on_equals_one_go(tmp_path: Path, optimizer: dict[str, Any]) -> None:
    config = tiny_config(optimizer=optimizer)
    whole = train(config, tmp_path / "whole").state
    calls = 0
    while not train(config, tmp_path / "parts", resume=True, stop_after=1e-9).finished:
        calls += 1
        assert calls < 50
    assert calls > 5
    resumed = train(config, tmp_path / "parts", resume=True).state
    assert same_weights(whole.model.state_dict(), resumed.model.state_dict())
    steps = [line["step"] for line in metrics(tmp_path / "parts")]
    assert steps == sorted(set(steps)), "no step is logged twice"


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_killed_at_any_moment_resumes_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    config = tiny_config(optimizer=MUON if optimizer == "muon" else {})
    whole = train(config, tmp_path / "whole").state
    folder = tmp_path / "killed"
    command = [sys.executable, str(HERE / "tiny_training.py"), str(folder), optimizer]
    kills = 0
    for wait_for in (3, 17, 30):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            path = folder / "metrics.jsonl"
            if path.exists() and len(path.read_text().splitlines()) >= wait_for:
                break
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2
    subprocess.run(command, check=True)
    state = new_state(build_model(config, torch.device("cpu")), config)
    load_checkpoint(folder / "checkpoint.safetensors", state, config)
    assert state.step == whole.step
    assert same_weights(whole.model.state_dict(), state.model.state_dict())
    assert whole.average is not None
    assert state.average is not None
    assert same_weights(whole.average, state.average)
    assert len(list(folder.glob(".*prismask-part"))) <= kills, "at most one leftover a kill"


def test_a_run_is_not_taken_up_with_another_optimiser(tmp_path: Path) -> None:
    train(tiny_config(schedule={"epochs": 1}), tmp_path)
    other = tiny_config(schedule={"epochs": 1}, optimizer=MUON)
    with pytest.raises(WeightsError, match=r"optimizer.kind: 'adam' → 'muon'"):
        train(other, tmp_path, resume=True)


def test_compact_moments_keep_the_count_of_steps(tmp_path: Path) -> None:
    """Adam divides by 1 − βᵗ: a t rounded to eight bits would change its steps for good."""
    config = tiny_config(schedule={"epochs": 1}, output={"compact": True})
    state = train(config).state
    for parameter in state.model.backbone.parameters():
        state.theta.state_of(parameter)["step"].fill_(1001.0)
    save_checkpoint(tmp_path / "c.safetensors", state, config)
    again = new_state(build_model(config, torch.device("cpu")), config)
    load_checkpoint(tmp_path / "c.safetensors", again, config)
    for parameter in again.model.backbone.parameters():
        assert float(again.theta.state_of(parameter)["step"]) == 1001.0


def test_muon_and_the_log_loss_learn() -> None:
    lines: list[dict[str, Any]] = []
    config = tiny_config(
        schedule={"mode": "plain"},
        posterior={"kind": "none"},
        optimizer=MUON,
        loss={"kind": "log"},
    )
    train(config, report=lines.append)
    scores = [line["psnr_unit"] for line in lines if line["event"] == "step"]
    assert sum(scores[-5:]) / 5 > sum(scores[:5]) / 5 + 3
    rates = [line["rate"] for line in lines[:5]]
    assert rates == pytest.approx([2e-3 * share for share in (0.2, 0.4, 0.6, 0.8, 1.0)])


def test_foreign_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    config = tiny_config(schedule={"epochs": 2})
    train(config, tmp_path / "run")
    with pytest.raises(OutputExistsError, match="--resume"):
        train(config, tmp_path / "run")
    other = with_changes(config, schedule={"batch": 2})
    with pytest.raises(WeightsError, match=r"schedule\.batch: 4 → 2"):
        train(other, tmp_path / "run", resume=True)
    for key, value in (("ema", 0.5), ("precision", "bf16")):
        with pytest.raises(WeightsError, match=rf"speed\.{key}: .* → "):
            train(with_changes(config, speed={key: value}), tmp_path / "run", resume=True)
    quieter = with_changes(config, output={"log_every": 5})
    assert train(quieter, tmp_path / "run", resume=True).finished
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="damaged"):
        train(config, tmp_path / "run", resume=True)


def test_a_run_goes_on_with_its_own_scenes_only(tmp_path: Path) -> None:
    """`data.folder` may change, what is in it may not; here the record of the first differs."""
    config = tiny_config(schedule={"epochs": 2})
    train(config, tmp_path / "run", stop_after=1e-9)
    record = tmp_path / "run" / "run.json"
    facts = json.loads(record.read_text())
    for key in ("scenes_sha256", "masks"):
        changed = {**facts, key: {**facts[key], "train": "other", "rows": [1, 2]}}
        record.write_text(json.dumps(changed))
        with pytest.raises(ConfigError, match=rf"other {key.removesuffix('_sha256')} than"):
            train(config, tmp_path / "run", resume=True)
    record.write_text(json.dumps(facts)[:40])  # a kill while it was written
    assert not train(config, tmp_path / "run", resume=True, stop_after=1e-9).finished
    assert json.loads(record.read_text()) == facts
    assert train(config, tmp_path / "run", resume=True).finished


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, resume: bool) -> None:
    config = tiny_config(schedule={"epochs": 1})
    record = tmp_path / "run.json"
    record.write_text('{"format": "prismask-evaluation-1"}')
    with pytest.raises(OutputExistsError, match="an evaluation"):
        train(config, tmp_path, resume=resume)
    assert "evaluation" in record.read_text()
    record.unlink()
    (tmp_path / "weights.safetensors").write_bytes(b"precious")
    with pytest.raises(OutputExistsError, match="weights"):
        train(config, tmp_path, resume=resume)
    (tmp_path / "weights.safetensors").unlink()
    record.write_text("{}")  # a run of ours that was stopped before its first step
    assert train(config, tmp_path, resume=resume).finished


@pytest.mark.parametrize("optimizer", [{}, MUON], ids=["adam", "muon"])
def test_compact_checkpoint_is_smaller_and_resumes_closely(
    tmp_path: Path, optimizer: dict[str, Any]
) -> None:
    wide = {"backbone": "srn", "options": {"width": 32, "blocks": 2}}
    tables: dict[str, Any] = {"optimizer": optimizer, "model": wide}
    plain, small = (
        tiny_config(output={"compact": c}, schedule={"epochs": 4}, **tables) for c in (False, True)
    )
    train(plain, tmp_path / "plain")
    train(small, tmp_path / "small")
    sizes = [(tmp_path / n / "checkpoint.safetensors").stat().st_size for n in ("plain", "small")]
    assert sizes[1] < 0.45 * sizes[0]
    longer = tiny_config(output={"compact": True}, **tables)
    whole = train(longer, tmp_path / "whole").state
    assert not train(longer, tmp_path / "parts", stop_after=1e-9).finished
    resumed = train(longer, tmp_path / "parts", resume=True).state
    starts = [line["step"] for line in metrics(tmp_path / "parts")]
    assert starts == sorted(set(starts)), "the second call went on where the first one stopped"
    one, other = (
        torch.cat([p.detach().flatten() for p in state.model.parameters()])
        for state in (whole, resumed)
    )
    if not optimizer:
        assert torch.allclose(one, other, atol=2e-2)
    # Steps of Muon have one size whatever the gradient: small differences grow for a while.
    assert float((one - other).norm() / one.norm()) < 0.1
    losses = [metrics(tmp_path / name)[-1]["psnr_unit"] for name in ("whole", "parts")]
    assert losses[1] == pytest.approx(losses[0], abs=0.3)


def test_a_compact_checkpoint_comes_back_to_its_precision(tmp_path: Path) -> None:
    config = tiny_config(output={"compact": True}, optimizer=MUON)
    before = train(config, tmp_path).state
    after = new_state(build_model(config, torch.device("cpu")), config)
    load_checkpoint(tmp_path / "checkpoint.safetensors", after, config)
    assert before.average is not None
    assert after.average is not None
    for name, weight in before.model.backbone.named_parameters():
        again = dict(after.model.backbone.named_parameters())[name]
        assert torch.equal(weight.detach().half().float(), again.detach())
        gap = float((before.average[name] - weight.detach()).abs().max())
        rounding = float(weight.detach().abs().max()) * 2**-11
        off = float((before.average[name] - after.average[name]).abs().max())
        assert off <= gap * 2**-3 + rounding
        for key, value in before.theta.state_of(weight).items():
            stored = after.theta.state_of(again)[key]
            scale = float(value.abs().max()) + 1e-30
            assert float((value - stored).abs().max()) <= 2**-4 * scale


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    def poison(line: dict[str, Any]) -> None:
        if line["step"] == 9:
            raise_nan.append(True)

    raise_nan: list[bool] = []
    original = training_step.reconstruction_loss

    def loss(estimate: torch.Tensor, truth: torch.Tensor, kind: str) -> torch.Tensor:
        value = original(estimate, truth, kind)
        return value * math.nan if raise_nan else value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_step, "reconstruction_loss", loss)
        with pytest.raises(DivergedError, match=r"step 9 \(seed 0.*checkpoint.safetensors"):
            train(tiny_config(), tmp_path / "run", report=poison)
    told = json.loads((tmp_path / "run" / "diverged.json").read_text())
    assert told["step"] == 9
    assert len(told["crops"]["scene"]) == 4
    assert train(tiny_config(), tmp_path / "run", resume=True).finished


def test_best_weights_by_validation_are_kept(tmp_path: Path) -> None:
    scores = iter([1.0, 3.0, 2.0, 2.5])
    kept: list[float] = []

    def make_validate(config: TrainConfig, prepared: Any) -> Any:
        def validate(model: Any) -> dict[str, float]:
            kept.append(float(model.backbone.head.weight.detach().sum()))
            return {"score": next(scores)}

        return validate

    config = tiny_config(output={"validate_every": 3})
    outcome = train(config, tmp_path / "run", make_validate=make_validate)
    assert outcome.state.best_score == 3.0
    model = load_weights(tmp_path / "run" / "weights.safetensors")
    assert float(model.backbone.head.weight.detach().sum()) == pytest.approx(kept[1], abs=0.02)
    assert model.record["validation"] == {"score": 3.0}
    assert model.record["masks"]["source"] == "fabricated"


def test_a_finished_run_is_not_validated_again(tmp_path: Path) -> None:
    def make_validate(config: TrainConfig, prepared: Any) -> Any:
        return lambda model: {"score": 1.0}

    config = tiny_config(schedule={"epochs": 2})
    options: dict[str, Any] = {"make_validate": make_validate, "resume": True}
    for _ in range(3):
        assert train(config, tmp_path / "run", **options).finished
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if line["event"] == "validation"] == [8]


@pytest.mark.slow
def test_a_second_training_in_the_same_folder_is_told_who_holds_it(tmp_path: Path) -> None:
    long = tiny_config(schedule={"epochs": 100_000})
    path = write_config(tmp_path, long)
    command = [sys.executable, "-m", "prismask.training", str(path), "--out", str(tmp_path / "run")]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    told = rf"a training of process {first.pid} on .*, running since"
    with pytest.raises(FolderInUseError, match=told):
        train(long, tmp_path / "run", resume=True)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not train(long, tmp_path / "run", resume=True, stop_after=1e-9).finished


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"step": -5}, "claims -5 steps"),
        ({"step": 10**9}, "claims 1000000000 steps"),
        ({"step": "many"}, "lacks a counter"),
        ({"validated_at": 99}, "a validation at step 99"),
        ({"seconds": -1.0}, "claims -1 seconds"),
        ({"seconds": math.inf}, "claims inf seconds"),
        ({"seconds": 10**400}, "lacks a counter"),
        ({"best_score": "nan"}, "best score of nan"),
        ({"config": 5}, "with which configuration"),
    ],
)
def test_counters_that_cannot_be_true_are_refused(
    tmp_path: Path, facts: dict[str, Any], words: str
) -> None:
    """Also where the file is sealed: whoever wrote it may have been wrong."""
    config = tiny_config(schedule={"epochs": 1})
    train(config, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    record, tensors = read_sealed(path, CHECKPOINT_FORMAT, "checkpoint")
    write_sealed(path, tensors, {**record, **facts}, overwrite=True)
    with pytest.raises(WeightsError, match=words):
        train(config, tmp_path, resume=True)


def test_tensors_that_do_not_belong_are_refused_by_name(tmp_path: Path) -> None:
    config = tiny_config(schedule={"epochs": 1}, speed={"ema": 0.9})
    train(config, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    record, tensors = read_sealed(path, CHECKPOINT_FORMAT, "checkpoint")
    average = next(name for name in tensors if name.startswith("average/"))
    moment = next(name for name in tensors if name.startswith("theta/") and tensors[name].ndim)
    for changed in (
        {**tensors, "average/nothing": torch.zeros(2)},
        {name: value for name, value in tensors.items() if name != average},
        {**tensors, average: torch.zeros(3, 5, 7)},
        {**tensors, moment: torch.zeros(3, 5, 7)},
        {**tensors, moment: torch.zeros(3).to(torch.float8_e4m3fn)},  # without its scale
    ):
        write_sealed(path, changed, record, overwrite=True)
        with pytest.raises(WeightsError, match=r"checkpoint\.safetensors does not hold"):
            train(config, tmp_path, resume=True)


def test_an_edited_checkpoint_is_refused(tmp_path: Path) -> None:
    config = tiny_config(schedule={"epochs": 1})
    train(config, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["prismask"])
    facts["seconds"] = 0.0
    save_file(load_file(path), path, metadata={"prismask": json.dumps(facts)})
    with pytest.raises(WeightsError, match=r"checkpoint\.safetensors is damaged or was edited"):
        train(config, tmp_path, resume=True)


def test_a_validation_that_fails_does_not_take_the_training_with_it(tmp_path: Path) -> None:
    def make_validate(config: TrainConfig, prepared: Any) -> Any:
        def validate(model: Any) -> dict[str, float]:
            raise ValueError("no score today")

        return validate

    never = {"checkpoint_every": 1000}
    with pytest.raises(ValueError, match="no score"):
        train(tiny_config(output=never), tmp_path / "run", make_validate=make_validate)
    outcome = train(tiny_config(output=never), tmp_path / "run", resume=True)
    assert outcome.finished
    assert outcome.state.step == 48


def test_weights_on_the_way_are_kept(tmp_path: Path) -> None:
    seen: dict[int, float] = {}

    def listen(line: dict[str, Any]) -> None:
        seen[line["step"]] = line["seconds"]

    outcome = train(tiny_config(output={"keep_every": 5}), tmp_path / "run", report=listen)
    kept = sorted((tmp_path / "run" / "snapshots").iterdir())
    assert [path.name for path in kept] == ["0000020.safetensors", "0000040.safetensors"]
    models = [load_weights(path) for path in kept]
    assert [model.record["step"] for model in models] == [20, 40]
    assert models[0].record["seconds"] <= seen[21]
    first, last = (model.backbone.head.weight.detach() for model in models)
    assert not torch.equal(first, last)
    assert outcome.state.average is not None
    end = outcome.state.average["head.weight"]
    assert float((last - end).abs().mean()) < float((first - end).abs().mean())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def launch(folder: Path, processes: int, config: Path) -> list[subprocess.Popen[str]]:
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(processes)}
    command = [sys.executable, "-m", "prismask.training", str(config), "--out", str(folder)]
    return [
        subprocess.Popen(
            command,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]


def write_config(tmp_path: Path, config: TrainConfig) -> Path:
    from prismask.training.config import to_toml

    path = tmp_path / "tiny.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [{}, MUON], ids=["adam", "muon"])
def test_two_processes_equal_one_with_the_joined_batch(
    tmp_path: Path, optimizer: dict[str, Any]
) -> None:
    config = tiny_config(optimizer=optimizer)
    path = write_config(tmp_path, config)
    outputs = [p.communicate(timeout=240)[0] for p in launch(tmp_path / "two", 2, path)]
    assert "finished" in outputs[0], outputs[0]
    one = train(config, tmp_path / "one").state
    two = new_state(build_model(config, torch.device("cpu")), config)
    load_checkpoint(tmp_path / "two" / "checkpoint.safetensors", two, config)
    assert two.step == one.step
    for name, value in one.model.state_dict().items():
        assert torch.allclose(value, two.model.state_dict()[name], atol=2e-5), name


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others(tmp_path: Path) -> None:
    config = tiny_config(schedule={"epochs": 100_000})
    path = write_config(tmp_path, config)
    first, second = launch(tmp_path / "run", 2, path)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    second.kill()
    second.communicate(timeout=60)
    output = first.communicate(timeout=120)[0]
    assert first.returncode == 3, output
    assert "another process of this run is gone" in output
    state = new_state(build_model(config, torch.device("cpu")), config)
    load_checkpoint(checkpoint, state, config)
    assert state.step > 0


@pytest.mark.parametrize("design", ["single", "dual"])
def test_a_network_for_an_odd_camera_knows_it(tmp_path: Path, design: str) -> None:
    """Uneven offsets to the left, bands of one's own, one disperser or two."""
    told = {"bands": 4, "offsets": (7.5, 5.0, 2.0, 0.0), "wavelengths": (500, 520, 560, 640)}
    config = tiny_config(camera={**told, "design": design}, schedule={"epochs": 6})
    outcome = train(config, tmp_path / "run")
    noted = json.loads((tmp_path / "run" / "run.json").read_text())
    path = tmp_path / "w.safetensors"
    record = save_weights(outcome.state.model, path, noted)
    assert record["wavelengths_nm"] == [500, 520, 560, 640]
    camera = trained_camera(record)
    assert camera == CASSI((7.5, 5.0, 2.0, 0.0), design=design)  # type: ignore[arg-type]
    assert record["step_px"] == -2.5
    assert outcome.state.step > 0
    # Its own camera needs no turning, and one of another design it does not serve.
    method = NetworkMethod(Engine(load_weights(path), torch.device("cpu")), "odd")
    match = method.match(camera)
    assert not match.is_other_camera
    assert Turn.towards(camera, match.trained_step) == Turn()
    other = CASSI(camera.offsets, design="dual" if design == "single" else "single")
    with pytest.raises(ConfigError, match=r"odd serves the cameras .*disperser"):
        method.match(other)


def test_the_time_left_runs_out_as_the_schedule_does(tmp_path: Path) -> None:
    train(tiny_config(schedule={"epochs": 2, "warmup_epochs": 0}), tmp_path)
    steps = [line for line in metrics(tmp_path) if line["event"] == "step"]
    assert steps[-1]["progress"] == pytest.approx(1.0)
    assert steps[-1]["seconds_left"] == pytest.approx(0.0, abs=1e-6)
    assert steps[0]["seconds_left"] > 0


def test_a_run_goes_on_from_another_s_weights(tmp_path: Path) -> None:
    first = train(tiny_config(), tmp_path / "first")
    save_weights(first.state.model, tmp_path / "w.safetensors", {"name": "first", "step": 48})
    more = tiny_config(model={"start_from": str(tmp_path / "w.safetensors")})
    started = build_model(more, torch.device("cpu"))
    stored = load_weights(tmp_path / "w.safetensors")
    assert same_weights(started.state_dict(), stored.state_dict())
    train(more, tmp_path / "second")
    record = json.loads((tmp_path / "second" / "run.json").read_text())
    assert record["started_from"]["name"] == "first"
    assert record["started_from"]["sha256"] == stored.record["sha256"]


@pytest.mark.parametrize("gone", [True, False])
def test_resuming_does_not_ask_for_the_weights_it_started_from(tmp_path: Path, gone: bool) -> None:
    """They may be gone, or others, once a checkpoint holds what became of them."""
    start = tmp_path / "w.safetensors"
    save_weights(build_model(tiny_config(seed=3), torch.device("cpu")), start, {"name": "first"})
    config = tiny_config(model={"start_from": str(start)}, schedule={"epochs": 2})
    whole = train(config, tmp_path / "whole").state
    train(config, tmp_path / "run", stop_after=1e-9)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["started_from"]["name"] == "first"
    start.unlink()
    if not gone:
        wider = tiny_config(model={"options": {"width": 16}})
        save_weights(build_model(wider, torch.device("cpu")), start, {"name": "other"})
    resumed = train(config, tmp_path / "run", resume=True)
    assert resumed.finished
    assert same_weights(whole.model.state_dict(), resumed.state.model.state_dict())
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == record


def test_a_fresh_start_needs_the_weights_even_with_resume(tmp_path: Path) -> None:
    config = tiny_config(model={"start_from": str(tmp_path / "w.safetensors")})
    with pytest.raises(PrismaskError, match=r"w\.safetensors"):
        train(config, tmp_path / "run", resume=True)


def test_a_run_goes_on_from_weights_that_ship() -> None:
    known = load_model("lumen.m2m")
    model = {
        "backbone": "lumen", "start_from": "lumen.m2m", "inputs": [],
        "options": known.record["options"],
    }  # fmt: skip
    plain = {"posterior": {"kind": "none"}, "schedule": {"mode": "plain"}}
    whole = tiny_config(model=model, camera={"bands": 28}, **plain)
    started = build_model(whole, torch.device("cpu"))
    assert same_weights(started.backbone.state_dict(), known.backbone.state_dict())
    with pytest.raises(ConfigError, match=r"no weights are called 'lumen\.mm'.*lumen\.m2m"):
        build_model(
            tiny_config(model=model | {"start_from": "lumen.mm"}, **plain), torch.device("cpu")
        )


def test_weights_to_go_on_from_may_lack_a_variance_network(tmp_path: Path) -> None:
    alone = tiny_config(posterior={"kind": "none"}, schedule={"mode": "plain"})
    save_weights(build_model(alone, torch.device("cpu")), tmp_path / "w.safetensors", {})
    more = tiny_config(seed=5, model={"start_from": str(tmp_path / "w.safetensors")})
    started = build_model(more, torch.device("cpu"))
    fresh = build_model(tiny_config(seed=5), torch.device("cpu"))
    assert same_weights(started.posterior.state_dict(), fresh.posterior.state_dict())
    assert not same_weights(started.backbone.state_dict(), fresh.backbone.state_dict())


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    more = tiny_config(model={"backbone": "srn+"})
    save_weights(build_model(more, torch.device("cpu")), tmp_path / "w.safetensors", {})
    less = tiny_config(model={"start_from": str(tmp_path / "w.safetensors")})
    with pytest.raises(
        WeightsError, match=r"holds inputs .*'normalised'.*has \['backprojection'\]"
    ):
        build_model(less, torch.device("cpu"))


def test_moments_come_back_in_the_layout_of_their_weights(tmp_path: Path) -> None:
    config = tiny_config(schedule={"epochs": 1})
    train(config, tmp_path / "run")
    model = build_model(config, torch.device("cpu"))
    # As on a GPU, whose fused optimiser takes no other layout than the weights' own.
    model.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    state = new_state(model, config)
    load_checkpoint(tmp_path / "run" / "checkpoint.safetensors", state, config)
    for weight in model.backbone.parameters():
        moments = state.theta.state_of(weight)
        assert moments["exp_avg"].stride() == weight.stride()
        assert float(moments["exp_avg_sq"].sum()) > 0


def test_a_network_that_knows_the_noise_goes_on_from_one_that_does_not(tmp_path: Path) -> None:
    before = build_model(tiny_config(), torch.device("cpu"))
    save_weights(before, tmp_path / "w.safetensors", {}, dtype=torch.float32)
    knowing = tiny_config(
        model={
            "inputs": ["backprojection", "noise"],
            "start_from": str(tmp_path / "w.safetensors"),
        },
        data={"noise_std": [0.0, 0.05]},
    )
    after = build_model(knowing, torch.device("cpu"))
    camera = CASSI.from_step(4)
    mask, measurement = torch.rand(1, 1, 16, 16), torch.rand(2, 16, 22)
    expected = before(measurement, mask, camera)
    assert torch.equal(after(measurement, mask, camera, torch.tensor([0.3])), expected)
    outcome = train(knowing, tmp_path / "run")
    told = [outcome.state.model(measurement, mask, camera, torch.tensor([n])) for n in (0.0, 0.3)]
    assert not torch.allclose(*told)


def test_noise_is_told_as_an_estimate_would_tell_it() -> None:
    config = tiny_config(data={"noise_std": [0.02, 0.02]})
    device = torch.device("cpu")
    prepared = prepare(config, device)
    batches = _batches(config, prepared, prepared.train_scenes, "training", slice(0, 4))
    batch = batches.make(3)
    clean = prepared.camera.forward(batch.cube, batch.mask)
    true_std = 0.02 / network_scale(4)
    assert float((batch.measurement - clean).std()) == pytest.approx(true_std, rel=0.1)
    most = true_std + 0.007 * clean.square().mean((-1, -2)).sqrt()
    assert bool(((batch.noise >= true_std) & (batch.noise <= most)).all())


def test_a_share_of_the_samples_stays_clean() -> None:
    config = tiny_config(data={"noise_std": [0.02, 0.04], "noise_share": 0.25})
    prepared = prepare(config, torch.device("cpu"))
    batches = _batches(config, prepared, prepared.train_scenes, "training", slice(0, 4))
    noise = []
    for step in range(100):
        batch = batches.make(step)
        left = batch.measurement - prepared.camera.forward(batch.cube, batch.mask)
        noise += left.flatten(1).std(1).tolist()
    noisy = [value for value in noise if value > 1e-6]
    assert len(noisy) == pytest.approx(100, abs=35)
    assert min(noisy) > 0.8 * 0.02 / network_scale(4)
    assert max(noisy) < 1.2 * 0.04 / network_scale(4)
