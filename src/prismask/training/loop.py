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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask.errors import DivergedError
from prismask.models.network import compile_parts
from prismask.models.posterior import entropy_term, perturb, prior_noise
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.training.checkpoint import save_checkpoint
from prismask.training.config import SpeedConfig, TrainConfig, parse_budget
from prismask.training.data.batches import Batch, BatchMaker
from prismask.training.distributed import World, agree, average_gradients, mean_over_world
from prismask.training.losses import as_squared_error, reconstruction_loss
from prismask.training.schedule import Phase, phase_of_epoch, rate_factor, steps_per_epoch
from prismask.training.state import (
    TrainState,
    averaged_weights,
    set_phase,
    set_rates,
    update_average,
)

SNAPSHOTS = "snapshots"
"""Folder of the weights that `output.keep_every` keeps."""

Report = Callable[[dict[str, Any]], None]
"""Receives one dictionary a logged step or validation."""
Validate = Callable[[Any], dict[str, float]]
"""Scores a model on validation scenes and masks; "score" is what selection looks at."""


@dataclass(frozen=True)
class Training:
    """What a run needs and never changes."""

    config: TrainConfig
    camera: CASSI
    training: BatchMaker
    validation: BatchMaker
    device: torch.device
    world: World
    folder: Path | None
    """The run folder; None: nothing is written."""
    validate: Validate | None = None
    report: Report | None = None
    record: dict[str, Any] = field(default_factory=dict)
    """What the weights' record says of data, masks and versions."""
    stop_after: float | None = None
    """Seconds after which this call pauses (with a checkpoint), whatever the schedule says."""


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
        if phase != "phi":  # where θ stands still, the average would only forget
            update_average(state, run.config.speed.ema)
        if state.step % run.config.output.log_every == 0:
            _log(state, run, phase, seen, clock, per_epoch)
        if state.step % per_epoch == 0:
            _end_epoch(state, run, epoch + 1)
            if clock.should_pause():
                _keep(state, run)
                return False
    # First, so that a validation that fails costs the validation alone; then with what it said.
    _keep(state, run)
    if _validate(state, run):
        _keep(state, run)
    return True


class Stepper:
    """One optimisation step of any phase."""

    def __init__(self, state: TrainState, run: Training) -> None:
        self.state = state
        self.run = run
        self.phase: Phase | None = None
        self.wants_noise = state.model.wants_noise
        speed = run.config.speed
        on_gpu = run.device.type == "cuda"
        self.half = speed.precision == "bf16" or (speed.precision == "auto" and on_gpu)
        # One graph from the snapshot to the loss: what lies between convolutions is fused.
        in_parts = speed.compile and compile_parts(state.model.backbone)
        self.loss_of: Callable[..., tuple[Tensor | None, Tensor]] = (
            self._loss_of if in_parts else _compiled(self._loss_of, speed, replay=on_gpu)
        )
        # Never replayed: its result is still read after the network's replay began.
        self.mask_std_of = _compiled(self._mask_std_of, speed, replay=False)
        self.check_every = run.config.output.log_every if on_gpu else 1

    def __call__(self, phase: Phase) -> dict[str, Tensor]:
        """Run step `state.step`; give back what it saw, still on the device."""
        if phase != self.phase:
            set_phase(self.state, phase)
            self.phase = phase
        batches = self.run.validation if phase == "phi" else self.run.training
        batch = batches.make(self.state.step)
        with torch.autocast(self.run.device.type, torch.bfloat16, enabled=self.half):
            mask, mask_std = self._shown_mask(batch, batches, phase)
            noise = batch.noise if self.wants_noise else None
            estimate, loss = self.loss_of(batch.measurement, mask, batch.cube, noise, batch.camera)
        total = loss + self._objection(estimate, batch, phase)
        if phase == "phi" and mask_std is not None:
            settings = self.run.config.loss
            total = total + entropy_term(mask_std, settings.beta, settings.entropy_sign)  # type: ignore[arg-type]
        if self.state.step % self.check_every == 0:
            self._check(loss, batches)
        self._learn(total, phase)
        self._teach_adversary(estimate, batch, phase)
        return {"loss": loss.detach(), **_range_of(mask_std)}

    def _loss_of(
        self,
        measurement: Tensor,
        mask: Tensor,
        cube: Tensor,
        noise: Tensor | None,
        camera: CASSI,
    ) -> tuple[Tensor | None, Tensor]:
        """ℓ, and the cubes where an adversary wants to see them: a second output of a compiled
        graph would cost a gradient of zeros in every step."""
        estimate = self.state.model.reconstruct(measurement, mask, camera, noise)
        loss = reconstruction_loss(estimate, cube, self.run.config.loss.kind)
        return (None if self.state.adversary is None else estimate), loss

    def _objection(self, estimate: Tensor | None, batch: Batch, phase: Phase) -> Tensor | float:
        """What an adversary adds to θ's loss; nothing where there is none."""
        adversary = self.state.adversary
        if adversary is None or estimate is None or phase == "phi":
            return 0.0
        objection = adversary.objection(estimate, batch.measurement, batch.camera)
        return self.run.config.loss.adversarial * objection

    def _teach_adversary(self, estimate: Tensor | None, batch: Batch, phase: Phase) -> None:
        adversary = self.state.adversary
        if adversary is not None and estimate is not None and phase != "phi":
            seen = (batch.measurement, batch.camera)
            adversary.learn(estimate.detach(), batch.cube, *seen, self.run.world)

    def _mask_std_of(self, mask: Tensor, learned: bool) -> Tensor:
        # A compiled function does not notice that its weights were frozen; the flag tells it.
        std = self.state.model.posterior.std(mask)
        return std if learned else std.detach()

    def _shown_mask(
        self, batch: Batch, batches: BatchMaker, phase: Phase
    ) -> tuple[Tensor, Tensor | None]:
        """m' for every sample, and g. The warm-up and plain ensembles see m itself."""
        posterior = self.state.model.posterior
        if not posterior.is_random or phase == "warmup":
            return batch.mask, None
        mask_std = self.mask_std_of(batch.mask, phase in ("phi", "joint"))
        generator = batches.noise_generator(self.state.step, "epsilon")
        shape = (batches.count, *batch.mask.shape[1:])
        config = posterior.config
        noise = prior_noise(shape, config.prior_mean, config.prior_std, generator, mask_std)
        return perturb(batch.mask, mask_std, noise[batches.part]), mask_std

    def _learn(self, loss: Tensor, phase: Phase) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser in self._optimisers(phase):
            parameters = optimiser.param_groups[0]["params"]
            average_gradients(parameters, self.run.world)
            limit = self.run.config.schedule.clip_gradient
            if limit > 0 and optimiser is self.state.theta:
                torch.nn.utils.clip_grad_norm_(parameters, limit)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def _optimisers(self, phase: Phase) -> list[torch.optim.Adam]:
        phi = [self.state.phi] if self.state.phi is not None else []
        if phase == "phi":
            return phi
        return [self.state.theta, *(phi if phase == "joint" else [])]

    def _check(self, loss: Tensor, batches: BatchMaker) -> None:
        if math.isfinite(float(mean_over_world(loss.detach().clone(), self.run.world))):
            return
        step, where = self.state.step, "nowhere (no run folder)"
        if self.run.folder is not None:
            path = self.run.folder / "diverged.json"
            plan = batches.plan(step).as_dict()
            path.write_text(json.dumps({"step": step, "seed": batches.seed, "crops": plan}))
            where = path.name
        raise DivergedError(
            f"the loss is not finite at step {step} (seed {self.run.config.seed}, {self.phase} "
            f"phase). The batch is described in {where}; the last good state is "
            "checkpoint.safetensors. Lower schedule.theta_rate or set schedule.clip_gradient = 1."
        )


def _compiled(
    function: Callable[..., Any], speed: SpeedConfig, *, replay: bool
) -> Callable[..., Any]:
    """The function as `speed` wants it: as it is, compiled, or compiled and replayed."""
    if not speed.compile:
        return function
    options: dict[str, Any] | None = (
        {"triton.cudagraphs": True} if speed.graphs and replay else None
    )
    return torch.compile(function, dynamic=False, options=options)


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
    mse = as_squared_error(loss, run.config.loss.kind)
    progress = clock.progress(per_epoch)
    line = {
        "event": "step",
        "step": state.step,
        "epoch": state.step // per_epoch,
        "phase": phase,
        "loss": loss,
        "psnr_unit": -10 * math.log10(max(mse, 1e-12)),
        "rate": state.theta.param_groups[0]["lr"],
        "samples_per_s": clock.rate(),
        "seconds": state.seconds,
        "seconds_left": state.seconds * (1 / max(progress, 1e-9) - 1),
        "progress": progress,
        **{name: float(value) for name, value in seen.items() if name != "loss"},
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
            "checkpoint.safetensors. Lower schedule.theta_rate or set schedule.clip_gradient = 1."
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


def _range_of(mask_std: Tensor | None) -> dict[str, Tensor]:
    if mask_std is None:
        return {}
    std = mask_std.detach()
    return {"g_min": std.min(), "g_mean": std.mean(), "g_max": std.max()}
