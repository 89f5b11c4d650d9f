"""The bilevel loop, top to bottom.

    warm up θ on the training set
    repeat:  θ ← θ − α ∂ℓ(φ, θ; training)/∂θ      a few epochs, φ frozen
             φ ← φ − α' ∂L(φ, θ; validation)/∂φ   a few epochs, θ frozen

One mask m codes a batch; the network is shown m' = m + g_φ(m) ⊙ ε, a fresh ε for every sample.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

import torch
from torch import Tensor

from prismask.errors import DivergedError
from prismask.models.weights import save_weights
from prismask.training.checkpoint import save_checkpoint
from prismask.training.config import parse_budget
from prismask.training.distributed import agree, mean_over_world
from prismask.training.state import (
    Phase,
    TrainState,
    averaged_weights,
    phase_of_epoch,
    rate_factor,
    set_rates,
    steps_per_epoch,
)
from prismask.training.step import Stepper, Training, what_calms

SNAPSHOTS = "snapshots"
"""Folder of the weights that `output.keep_every` keeps."""


def fit(state: TrainState, run: Training) -> bool:
    """Train until the schedule ends; True if it did, False if it only paused."""
    per_epoch = steps_per_epoch(run.config.schedule)
    clock = Clock(state, run)
    step_once = Stepper(state, run)
    while (progress := clock.progress(per_epoch)) < 1:
        epoch = state.step // per_epoch
        phase = phase_of_epoch(epoch, run.config.schedule)
        timed = progress if clock.budget else None
        set_rates(state, run.config, rate_factor(epoch, timed, run.config.schedule))
        seen = step_once(phase)
        state.step += 1
        if state.step % run.config.output.log_every == 0:
            _log(state, run, phase, seen, clock, per_epoch)
        if state.step % per_epoch == 0:
            _end_epoch(state, run, epoch + 1)
            clock.progress(per_epoch)  # what was validated and kept has taken time, too
            if clock.should_pause():
                _keep(state, run)
                return False
    # First, so that a validation that fails costs the validation alone; then with what it said.
    _keep(state, run)
    if _validate(state, run):
        _keep(state, run)
    return True


class Clock:
    """Wall-clock time of a run, over all its resumptions."""

    def __init__(self, state: TrainState, run: Training) -> None:
        self.state = state
        self.run = run
        self.budget = parse_budget(run.config.schedule.budget)
        self.before = state.seconds
        self.start = time.perf_counter()
        self.start_step = state.step

    def progress(self, per_epoch: int) -> float:
        """Share of the schedule that is done, by time or by steps."""
        here = time.perf_counter() - self.start
        self.state.seconds = self.before + agree(here, self.run.world, self.run.device)
        if self.budget:
            return self.state.seconds / self.budget
        return self.state.step / (per_epoch * self.run.config.schedule.epochs)

    def should_pause(self) -> bool:
        """Whether this call's own time is up."""
        here = self.state.seconds - self.before
        return self.run.stop_after is not None and here >= self.run.stop_after

    def rate(self) -> float:
        """Samples a second in this call."""
        here = max(time.perf_counter() - self.start, 1e-9)
        return (self.state.step - self.start_step) * self.run.config.schedule.batch / here


def _log(
    state: TrainState,
    run: Training,
    phase: Phase,
    seen: dict[str, Tensor],
    clock: Clock,
    per_epoch: int,
) -> None:
    loss = float(mean_over_world(seen["loss"].clone(), run.world))
    mse = float(mean_over_world(seen["mse"].clone(), run.world))
    progress = clock.progress(per_epoch)
    line = {
        "event": "step",
        "step": state.step,
        "epoch": state.step // per_epoch,
        "phase": phase,
        "loss": loss,
        "psnr_unit": -10 * math.log10(max(mse, 1e-12)),
        "rate": state.theta.rate,
        "samples_per_s": clock.rate(),
        "seconds": state.seconds,
        "seconds_left": state.seconds * (1 / max(progress, 1e-9) - 1),
        "progress": progress,
        **{name: float(value) for name, value in seen.items() if name not in ("loss", "mse")},
    }
    _tell(run, line)


def _end_epoch(state: TrainState, run: Training, epoch: int) -> None:
    every = run.config.output.validate_every
    if every and epoch % every == 0:
        _validate(state, run)
    if epoch % run.config.output.checkpoint_every == 0:
        _keep(state, run)
    every = run.config.output.keep_every
    if every and epoch % every == 0:
        _keep_weights(state, run, f"{SNAPSHOTS}/{state.step:07d}.safetensors")


def _validate(state: TrainState, run: Training) -> bool:
    """Score the (averaged) weights on the validation set; every process waits for the first.

    False where that is not asked for, or done already."""
    if run.validate is None or state.validated_at == state.step:
        return False
    state.validated_at = state.step
    state.model.eval()
    # Compiled parts would be compiled once more for the size and precision of the validation.
    eager = torch.compiler.set_stance("force_eager")
    with eager, averaged_weights(state), torch.no_grad():
        scores = run.validate(state.model) if run.world.is_first else {"score": 0.0}
    state.model.train()
    score = agree(scores["score"], run.world, run.device)
    if not math.isfinite(score):
        raise DivergedError(
            f"validation after step {state.step} is not finite ({scores}); the last good state is "
            "checkpoint.safetensors."
        )
    if score > state.best_score:
        state.best_score = score
        _keep_weights(state, run, "weights.safetensors", validation=scores)
    _tell(run, {"event": "validation", "step": state.step, "seconds": state.seconds, **scores})
    return True


def _keep(state: TrainState, run: Training) -> None:
    """Write a checkpoint, unless the weights have gone bad since the last look at the loss."""
    if run.folder is None or not run.world.is_first:
        return
    total = torch.stack([p.detach().sum() for p in state.model.parameters()]).sum()
    if not math.isfinite(float(total)):
        raise DivergedError(
            f"the weights are not finite after step {state.step}; the last good state is "
            f"checkpoint.safetensors. {what_calms(run.config)}"
        )
    save_checkpoint(run.folder / "checkpoint.safetensors", state, run.config)


def _keep_weights(state: TrainState, run: Training, name: str, **facts: Any) -> None:
    """The (averaged) weights as they are now, ready to be used."""
    if run.folder is None or not run.world.is_first:
        return
    path = run.folder / name
    path.parent.mkdir(exist_ok=True)
    record = {**run.record, "step": state.step, "seconds": state.seconds, **facts}
    with averaged_weights(state):
        save_weights(state.model, path, record, overwrite=True)


def _tell(run: Training, line: dict[str, Any]) -> None:
    if not run.world.is_first:
        return
    if run.folder is not None:
        with (run.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    if run.report is not None:
        run.report(line)
