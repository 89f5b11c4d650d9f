"""One optimisation step of any phase, plain or replayed as one CUDA graph."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prismask.errors import DivergedError
from prismask.models.fast import capture
from prismask.models.inputs import Observation
from prismask.models.network import compile_parts
from prismask.models.posterior import entropy_term, perturb, prior_noise
from prismask.optics.camera import CASSI
from prismask.optics.varied_prism import VariedCamera
from prismask.training.config import TrainConfig, in_half
from prismask.training.data.batches import Batch, BatchMaker
from prismask.training.distributed import World, average_gradients, mean_over_world
from prismask.training.losses import mask_loss, reconstruction_loss, staged_loss
from prismask.training.optimizers import Optimisers
from prismask.training.state import Phase, TrainState, set_phase, share_of_newest, update_average
from prismask.training.teacher import Teacher

log = logging.getLogger(__name__)

Report = Callable[[dict[str, Any]], None]
"""Receives one dictionary per logged step or validation."""
Validate = Callable[[Any], dict[str, float]]
"""Scores a model on validation scenes and masks; "score" is what selection looks at."""

STEPS_BEFORE_RECORDING = 3
"""Plain steps of a phase before its graph is recorded: compilers and libraries settle in them."""


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
    teacher: Teacher | None = None
    """A network from whose cubes, too, is learned."""


class Stepper:
    """Makes the batch of a step, learns from it, and keeps the average."""

    def __init__(self, state: TrainState, run: Training) -> None:
        self.state = state
        self.run = run
        self.phase: Phase | None = None
        self.wants_noise = state.model.wants_noise
        speed = run.config.speed
        on_gpu = run.device.type == "cuda"
        self.half = in_half(run.config, run.device)
        self.graphs = speed.graphs and on_gpu
        self.recordings: dict[Hashable, RecordedStep] = {}
        # The share of the newest weights in their average, where a graph can read it.
        self.share = torch.zeros((), device=run.device) if self.graphs else None
        # One graph from the snapshot to the loss: what lies between convolutions is fused.
        in_parts = speed.compile and compile_parts(state.model.backbone)
        whole = speed.compile and not in_parts
        self.loss_of: Callable[..., tuple[Tensor | None, Tensor, Tensor]] = (
            compiled(self._loss_of) if whole else self._loss_of
        )
        self.compare: Callable[..., tuple[Tensor, Tensor]] = (
            compiled(self._compare) if in_parts else self._compare
        )
        self.mask_std_of = compiled(self._mask_std_of) if speed.compile else self._mask_std_of
        self.check_every = run.config.output.log_every if on_gpu else 1

    def __call__(self, phase: Phase) -> dict[str, Tensor]:
        """Run step `state.step`; give back what it saw, still on the device."""
        if phase != self.phase:
            set_phase(self.state, phase)
            self.phase = phase
        batches = self.run.validation if phase == "phi" else self.run.training
        batch = batches.make(self.state.step)
        epsilon = self._epsilon(batch, batches, phase)
        share: float | Tensor = share_of_newest(self.state.step, self.run.config.speed.ema)
        if self.share is None:
            seen = self._step(phase, batch, epsilon, share)
        else:
            share = self.share.fill_(share)
            kind = (phase, *(value.shape for value in _tensors(batch)))
            if kind not in self.recordings:
                self.recordings[kind] = RecordedStep(
                    self._step, self._forget_gradients, phase, share
                )
            seen = self.recordings[kind](batch, epsilon)
        if self.state.step % self.check_every == 0:
            self._check(seen["loss"], batches)
        return seen

    def _step(
        self, phase: Phase, batch: Batch, epsilon: Tensor | None, share: float | Tensor
    ) -> dict[str, Tensor]:
        """Everything that a step does with its batch."""
        teacher = self.run.teacher if phase != "phi" else None
        taught = None if teacher is None else teacher(batch)
        with torch.autocast(self.run.device.type, torch.bfloat16, enabled=self.half):
            mask, mask_std = self._shown_mask(batch, epsilon, phase)
            estimate, loss, mse = self.loss_of(
                batch.measurement,
                mask,
                batch.cube,
                batch.camera,
                batch.noise if self.wants_noise else None,
                batch.mask_std if self.state.model.wants_mask_std else None,
                batch.true_mask,
                taught,
            )
        total = loss + self._objection(estimate, batch, phase)
        if phase == "phi" and mask_std is not None:
            settings = self.run.config.loss
            total = total + entropy_term(mask_std, settings.beta, settings.entropy_sign)  # type: ignore[arg-type]
        self._learn(total, phase)
        self._teach_adversary(estimate, batch, phase)
        if phase != "phi":  # where θ stands still, the average would only forget
            update_average(self.state, share)
        return {"loss": loss.detach(), "mse": mse, **_range_of(mask_std)}

    def _loss_of(
        self,
        measurement: Tensor,
        mask: Tensor,
        cube: Tensor,
        camera: CASSI,
        noise: Tensor | None,
        mask_std: Tensor | None,
        true_mask: Tensor,
        taught: Tensor | None,
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """ℓ and the mean squared error, and the cubes where an adversary wants to see them: another
        output of a compiled graph would cost a gradient of zeros in every step."""
        seen = Observation(measurement, mask, camera, noise, mask_std)
        said = self.state.model.estimates(seen)
        loss, mse = self.compare(said.cubes, said.masks, cube, mask, true_mask, taught)
        return (None if self.state.adversary is None else said.cubes[-1]), loss, mse

    def _compare(
        self,
        cubes: tuple[Tensor, ...],
        masks: tuple[Tensor, ...],
        cube: Tensor,
        mask: Tensor,
        true_mask: Tensor,
        taught: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """ℓ of what every stage said, and the mean squared error of the last.

        taught: the teacher's cube, against which the last stage is compared as well.
        """
        settings = self.run.config.loss
        loss_of = partial(reconstruction_loss, kind=settings.kind)
        loss = staged_loss(cubes, cube, loss_of, settings.stage_decay)
        if masks and settings.mask_weight > 0:
            left = mask_loss(masks, mask, true_mask, settings.stage_decay)
            loss = loss + settings.mask_weight * left
        if taught is not None:
            loss = loss + settings.teacher_weight * loss_of(cubes[-1], taught)
        return loss, (cubes[-1].detach().float() - cube).square().mean()

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

    def _epsilon(self, batch: Batch, batches: BatchMaker, phase: Phase) -> Tensor | None:
        """ε of this process's samples; None where the network is shown m itself."""
        posterior = self.state.model.posterior
        if not posterior.is_random or phase == "warmup":
            return None
        generator = batches.noise_generator(self.state.step, "epsilon")
        shape = (batches.count, *batch.mask.shape[1:])
        config = posterior.config
        noise = prior_noise(shape, config.prior_mean, config.prior_std, generator, batch.mask)
        return noise[batches.part]

    def _shown_mask(
        self, batch: Batch, epsilon: Tensor | None, phase: Phase
    ) -> tuple[Tensor, Tensor | None]:
        """m' for every sample, and g. The warm-up and plain ensembles see m itself."""
        if epsilon is None:
            return batch.mask, None
        mask_std = self.mask_std_of(batch.mask, phase in ("phi", "joint"))
        return perturb(batch.mask, mask_std, epsilon), mask_std

    def _learn(self, loss: Tensor, phase: Phase) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        for optimisers in self._optimisers(phase):
            average_gradients(optimisers.parameters, self.run.world)
            limit = self.run.config.schedule.clip_gradient
            if limit > 0 and optimisers is self.state.theta:
                torch.nn.utils.clip_grad_norm_(optimisers.clipped, limit)
            optimisers.step()
            optimisers.zero_grad()

    def _forget_gradients(self) -> None:
        for optimisers in (self.state.theta, self.state.phi):
            if optimisers is not None:
                optimisers.zero_grad()

    def _optimisers(self, phase: Phase) -> list[Optimisers]:
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
        looked = f", looked at every {self.check_every} steps," if self.check_every > 1 else ""
        raise DivergedError(
            f"the loss{looked} is not finite at step {step} (seed {self.run.config.seed}, "
            f"{self.phase} phase). The batch is described in {where}; the last good state is "
            f"checkpoint.safetensors, if there is one yet. {what_calms(self.run.config)}"
        )


def what_calms(config: TrainConfig) -> str:
    """What to change where a training has diverged."""
    if config.optimizer.kind == "muon":
        return "Lower optimizer.muon_rate or schedule.theta_rate."
    return "Lower schedule.theta_rate or set schedule.clip_gradient = 1."


class RecordedStep:
    """A step of one phase: a few times as it is, then recorded as a CUDA graph and replayed.

    The graph holds everything from the network to the averaged weights. What changes from step to
    step lies in tensors that it reads: the batch, ε, the learning rates, the share of the average.
    """

    def __init__(
        self,
        step: Callable[..., dict[str, Tensor]],
        forget_gradients: Callable[[], None],
        phase: Phase,
        share: Tensor,
    ) -> None:
        self.step = step
        self.forget_gradients = forget_gradients
        self.phase = phase
        self.share = share
        self.plain_steps = 0
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch | None = None
        self.epsilon: Tensor | None = None
        self.seen: dict[str, Tensor] = {}

    def __call__(self, batch: Batch, epsilon: Tensor | None) -> dict[str, Tensor]:
        """Learn from this batch."""
        if self.graph is None and self.plain_steps == STEPS_BEFORE_RECORDING:
            self._record(batch, epsilon)
        if self.graph is None or self.batch is None:
            return self._plain(batch, epsilon)
        for place, values in zip(_tensors(self.batch), _tensors(batch), strict=True):
            place.copy_(values, non_blocking=True)
        if self.epsilon is not None and epsilon is not None:
            self.epsilon.copy_(epsilon)
        self.graph.replay()
        return self.seen

    def _plain(self, batch: Batch, epsilon: Tensor | None) -> dict[str, Tensor]:
        self.plain_steps += 1
        # On the stream of the recording, whose libraries then have their workspaces there.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            seen = self.step(self.phase, batch, epsilon, self.share)
        torch.cuda.current_stream().wait_stream(self.stream)
        return seen

    def _record(self, batch: Batch, epsilon: Tensor | None) -> None:
        self.batch = _own_copy(batch)
        self.epsilon = None if epsilon is None else epsilon.clone()

        def run() -> None:
            self.seen = self.step(self.phase, self.batch, self.epsilon, self.share)

        self.graph = capture(run, self.stream)
        if self.graph is None:
            # Gradients of a recording that broke off lie in memory that nothing has written.
            self.forget_gradients()
            log.warning(
                "the %s step of this network could not be recorded as a CUDA graph (the reason is "
                "logged at level INFO); it goes on step by step, which is slower. Set "
                "speed.graphs = false to silence this.",
                self.phase,
            )


def _tensors(batch: Batch) -> list[Tensor]:
    """Everything in a batch that changes from step to step."""
    values = [getattr(batch, entry.name) for entry in fields(batch)]
    places = [batch.camera.places] if isinstance(batch.camera, VariedCamera) else []
    return [value for value in values if isinstance(value, Tensor)] + places


def _own_copy(batch: Batch) -> Batch:
    """The same batch in memory of its own, for a graph to read."""
    values = {entry.name: getattr(batch, entry.name) for entry in fields(batch)}
    copies: dict[str, Any] = {
        name: value.clone() for name, value in values.items() if isinstance(value, Tensor)
    }
    if isinstance(batch.camera, VariedCamera):
        copies["camera"] = batch.camera.reading(batch.camera.places.clone())
    return replace(batch, **copies)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through `torch.compile`, for one size."""
    return torch.compile(function, dynamic=False)


def _range_of(mask_std: Tensor | None) -> dict[str, Tensor]:
    if mask_std is None:
        return {}
    std = mask_std.detach()
    return {"g_min": std.min(), "g_mean": std.mean(), "g_max": std.max()}
