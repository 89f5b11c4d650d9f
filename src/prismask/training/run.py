"""A run from start to finish: set up, take up a checkpoint if there is one, fit, keep."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prismask.errors import ConfigError, MissingPartError, OutputExistsError
from prismask.models.machine import choose_device
from prismask.models.network import Reconstructor
from prismask.optics.randomness import seed_of
from prismask.parallel.ownership import owned
from prismask.scenes.atomic import write_beside
from prismask.training.checkpoint import load_checkpoint
from prismask.training.config import TrainConfig, to_toml
from prismask.training.data.batches import BatchMaker
from prismask.training.distributed import World, give_up, join_world, leave_world
from prismask.training.loop import fit
from prismask.training.setup import GivenData, Prepared, build_model, prepare, wavelengths
from prismask.training.state import TrainState, new_state
from prismask.training.step import Report, Training, Validate
from prismask.training.teacher import build_teacher

log = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.safetensors"
MakeValidate = Callable[[TrainConfig, Prepared], Validate]


@dataclass(frozen=True)
class Outcome:
    """What a call of `train` left behind."""

    state: TrainState
    finished: bool
    """False when it only paused (`stop_after`)."""
    folder: Path | None


def train(
    config: TrainConfig,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    make_validate: MakeValidate | None = None,
    report: Report | None = None,
    stop_after: float | None = None,
    given: GivenData | None = None,
) -> Outcome:
    """Train as configured; everything worth keeping goes to `folder`.

    resume: go on from the folder's checkpoint (a folder without one starts afresh).
    make_validate: builds the validation that selection uses; it comes from outside because
        metrics live to the right of training.
    report: called with each line that also goes to metrics.jsonl.
    stop_after: pause with a checkpoint after so many seconds of this call.
    given: scenes and a mask in memory, instead of those that the configuration names.
    """
    device = choose_device(config.speed.device, World().local_rank)
    world = join_world(device)
    if world.size > 1 and device.type == "cuda":
        device = choose_device("cuda", world.local_rank)
        torch.cuda.set_device(device)
    if config.speed.graphs and world.size > 1 and device.type == "cuda":
        leave_world()
        raise ConfigError(
            f"speed.graphs replays the step of one process; {world.size} share this run. Set "
            "speed.graphs = false."
        )
    # Every step has the same sizes, so cuDNN may time its kernels once and keep the fastest.
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    board = None
    try:
        place = None if folder is None else Path(folder)
        _check_board(place, config)
        with owned(place if world.is_first else None, "a training"):
            earlier = _taken_up(place) if resume else None
            prepared = prepare(config, device, earlier, given)
            part = world.part(config.schedule.batch)
            training = _batches(config, prepared, prepared.train_scenes, "training", part)
            validation = _batches(config, prepared, prepared.validation_scenes, "validation", part)
            teacher = build_teacher(config, device)
            state = new_state(build_model(config, device, fresh=earlier is None), config)
            # Everything that can be wrong with the configuration was looked at; now leave traces.
            _open_folder(place, config, prepared, state, resume, world)
            board = _board(place, config, state, world)
            run = Training(
                config=config,
                camera=prepared.camera,
                training=training,
                validation=validation,
                device=device,
                world=world,
                folder=place,
                validate=_heard(make_validate(config, prepared), world, device)
                if make_validate
                else None,
                report=_with_board(report, board),
                record=prepared.record,
                stop_after=stop_after,
                teacher=teacher,
            )
            finished = fit(state, run)
    finally:
        torch.backends.cudnn.benchmark = benchmark
        if board is not None:
            board.close()
        leave_world()
    return Outcome(state, finished, place)


def _heard(validate: Validate, world: World, device: torch.device) -> Validate:
    """A validation, done by the first process, of whose failure the others hear."""

    def run(model: Reconstructor) -> dict[str, float]:
        try:
            return validate(model)
        except Exception:
            give_up(world, device)
            raise

    return run


def _check_board(folder: Path | None, config: TrainConfig) -> None:
    """Raise where event files for TensorBoard are asked for and cannot be written."""
    if not config.output.tensorboard:
        return
    if folder is None:
        raise ConfigError("output.tensorboard writes into the run folder: give one.")
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            "output.tensorboard needs the package tensorboard: pip install tensorboard, "
            "or set output.tensorboard = false."
        ) from error


def _board(folder: Path | None, config: TrainConfig, state: TrainState, world: World) -> Any:
    """A writer of event files in the first process, None elsewhere or where none is asked for."""
    if not config.output.tensorboard or folder is None or not world.is_first:
        return None
    from torch.utils.tensorboard import SummaryWriter

    # Steps that will be done again are no longer shown.
    return SummaryWriter(str(folder / "tensorboard"), purge_step=state.step + 1)


def _with_board(report: Report | None, board: Any) -> Report | None:
    """Every line to whoever listens, its numbers to TensorBoard as well."""
    if board is None:
        return report

    def both(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if isinstance(value, float):
                board.add_scalar(f"{line['event']}/{name}", value, line["step"])
        if report is not None:
            report(line)

    return both


def _batches(
    config: TrainConfig, prepared: Prepared, scenes: torch.Tensor, name: str, part: slice
) -> BatchMaker:
    return BatchMaker(
        prepared.bank(scenes, config),
        prepared.masks,
        prepared.measuring,
        config.data,
        seed_of(config.seed, name),
        config.schedule.batch,
        part,
        wavelengths(config.camera),
        config.camera.more_bands,
        config.camera.more_bands_share,
        config.speed.batches_at_once,
    )


def _taken_up(folder: Path | None) -> dict[str, Any] | None:
    """The record of the run whose checkpoint will be gone on from; None: a fresh start."""
    if folder is None or not (folder / CHECKPOINT).exists():
        return None
    return _record(folder / "run.json")


def _open_folder(
    folder: Path | None,
    config: TrainConfig,
    prepared: Prepared,
    state: TrainState,
    resume: bool,
    world: World,
) -> None:
    """Make the run folder, or take up what lies in it."""
    if folder is None:
        return
    checkpoint = folder / CHECKPOINT
    if checkpoint.exists() or (folder / "metrics.jsonl").exists():
        if not resume:
            raise OutputExistsError(
                f"{folder} already holds a run. Go on with it (--resume), or use another folder."
            )
        _check_same_data(folder / "run.json", prepared.record)
        if checkpoint.exists():
            load_checkpoint(checkpoint, state, config)
            log.info("resumed at step %d", state.step)
    else:
        _refuse_others(folder)
    if not world.is_first:
        return
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {**prepared.record, "batch": config.schedule.batch}
    texts = {"config.toml": to_toml(config), "run.json": json.dumps(facts, indent=2) + "\n"}
    for name, text in texts.items():
        # Whole or not at all: a run that goes on is compared with what it wrote here.
        with write_beside(folder / name, overwrite=True) as beside:
            beside.write_text(text, encoding="utf-8")
    _forget_after(folder / "metrics.jsonl", state.step)


def _refuse_others(folder: Path) -> None:
    """Raise where a folder holds what a run would write over: weights, or another command's."""
    others = "format" in _record(folder / "run.json")
    if others or (folder / "weights.safetensors").exists():
        what = "an evaluation" if others else "weights"
        raise OutputExistsError(f"{folder} already holds {what}. Use another folder.")


def _record(path: Path) -> dict[str, Any]:
    """What a run wrote about itself; nothing where there is none, or one cut short by a kill."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _check_same_data(path: Path, now: dict[str, Any]) -> None:
    """Raise if a run would go on with other scenes or masks than it began with."""
    before = _record(path)
    for key in ("scenes_sha256", "masks"):
        if key in before and before[key] != json.loads(json.dumps(now.get(key))):
            raise ConfigError(
                f"{path.parent} was trained with other {key.removesuffix('_sha256')} than the data "
                f"folder holds now ({before[key]}, now {now.get(key)}). Give it back the data it "
                "began with (data.folder), or start in another folder with model.start_from."
            )
    taught, teaches = (facts.get("teacher", {}).get("sha256") for facts in (before, now))
    if before and taught != teaches:
        raise ConfigError(
            f"{path.parent} learned from a teacher of sha256 {taught}, and loss.teacher is now of "
            f"{teaches}. Give it back the one that it began with, or start in another folder."
        )


def _forget_after(path: Path, step: int) -> None:
    """Drop lines of steps that will be done again, and a line cut short by a kill."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            known = json.loads(line)
        except json.JSONDecodeError:
            continue
        if known["step"] <= step:
            kept.append(line)
    with write_beside(path, overwrite=True) as beside:
        beside.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
