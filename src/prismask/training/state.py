"""Everything that changes while training, and what is needed to go on exactly.

With it, which phase an epoch belongs to and at which rate it learns (method: Algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from prismask.models.network import Reconstructor
from prismask.optics.randomness import seed_of
from prismask.training.adversary import Adversary
from prismask.training.config import ScheduleConfig, TrainConfig
from prismask.training.optimizers import Optimisers, adam, theta_optimisers


@dataclass
class TrainState:
    """Both networks, both optimisers, the average of θ, and the counters."""

    model: Reconstructor
    theta: Optimisers
    """What trains the backbone; its moments survive the phases."""
    phi: Optimisers | None
    """What trains the variance network, if there is one to train."""
    average: dict[str, Tensor] | None
    """Exponential average of θ, if asked for."""
    adversary: Adversary | None = None
    """The discriminator θ is trained against, if asked for."""
    step: int = 0
    """Steps done; also the only thing the random numbers depend on."""
    seconds: float = 0.0
    """Wall-clock time spent, over all resumptions."""
    best_score: float = float("-inf")
    """Best validation score so far."""
    validated_at: int = -1
    """Step of the last validation, so that none is done twice."""


def new_state(model: Reconstructor, config: TrainConfig) -> TrainState:
    """Fresh optimisers around a model that already lies on its device."""
    schedule = config.schedule
    # A step that is replayed as a CUDA graph reads its rates from the device.
    on_device = config.speed.graphs and next(model.parameters()).is_cuda
    theta = theta_optimisers(model.backbone, config.optimizer, schedule.theta_rate, on_device)
    phi = None
    if model.posterior.is_learned:
        rate = schedule.phi_rate
        phi = Optimisers([(adam(list(model.posterior.parameters()), rate, on_device), rate)])
    average = None
    if config.speed.ema > 0:
        average = {n: p.detach().clone() for n, p in model.backbone.named_parameters()}
    adversary = None
    if config.loss.adversarial > 0:
        seed, device = seed_of(config.seed, "adversary"), next(model.parameters()).device
        adversary = Adversary(model.bands, schedule.theta_rate, seed, device)
    return TrainState(model, theta, phi, average, adversary)


def set_phase(state: TrainState, phase: Phase) -> None:
    """Freeze what the phase does not train: θ in φ-phases, φ everywhere but there and in joint."""
    state.model.backbone.requires_grad_(phase != "phi")
    state.model.posterior.requires_grad_(phase in ("phi", "joint"))


def set_rates(state: TrainState, config: TrainConfig, factor: float) -> None:
    """All learning rates, scaled alike, and lower during the first steps if so configured."""
    ramp = config.optimizer.ramp_steps
    factor *= min(1.0, (state.step + 1) / ramp) if ramp else 1.0
    against = None if state.adversary is None else state.adversary.optimiser
    for optimisers in (state.theta, state.phi, against):
        if optimisers is not None:
            optimisers.set_rates(factor)


def share_of_newest(step: int, decay: float) -> float:
    """How much of the weights after step `step` goes into their average.

    1 − decay in the end; more at the start, so that the random weights are forgotten early.
    """
    return 1 - min(decay, (2 + step) / (11 + step))


@torch.no_grad()
def update_average(state: TrainState, share: float | Tensor) -> None:
    """average ← (1 − share) · average + share · θ; the share may lie on the device."""
    if state.average is None:
        return
    average = list(state.average.values())
    parameters = [p.detach() for p in state.model.backbone.parameters()]
    if not isinstance(share, Tensor):
        torch._foreach_lerp_(average, parameters, share)
        return
    difference = torch._foreach_sub(parameters, average)
    torch._foreach_mul_(difference, share)
    torch._foreach_add_(average, difference)


@contextmanager
def averaged_weights(state: TrainState) -> Iterator[None]:
    """The average of θ in place of the weights, which come back after the block."""
    if state.average is None:
        yield
        return
    backbone = state.model.backbone
    kept = [p.detach().clone() for p in backbone.parameters()]
    _copy(backbone, list(state.average.values()))
    try:
        yield
    finally:
        _copy(backbone, kept)


@torch.no_grad()
def _copy(module: nn.Module, values: list[Tensor]) -> None:
    for parameter, value in zip(module.parameters(), values, strict=True):
        parameter.copy_(value)


Phase = Literal["warmup", "theta", "phi", "joint", "plain"]


def phase_of_epoch(epoch: int, schedule: ScheduleConfig) -> Phase:
    """Warm-up, then θ- and φ-phases in turn; joint and plain training have one phase."""
    if schedule.mode == "plain":
        return "plain"
    if schedule.mode == "joint":
        return "joint"
    if epoch < schedule.warmup_epochs:
        return "warmup"
    cycle = schedule.theta_epochs + schedule.phi_epochs
    return "theta" if (epoch - schedule.warmup_epochs) % cycle < schedule.theta_epochs else "phi"


def rate_factor(epoch: int, progress: float | None, schedule: ScheduleConfig) -> float:
    """The factor on all learning rates.

    Without a budget they halve every `halve_every` epochs. With one, `progress` (0 … 1, the share
    of the time that has passed) runs through half a cosine, after a share of it at the full rates
    (`schedule.hold`): they are down when the time is up.
    """
    if progress is None:
        return 0.5 ** (epoch // schedule.halve_every)
    falling = (min(progress, 1.0) - schedule.hold) / (1 - schedule.hold)
    return max(0.5 * (1 + math.cos(math.pi * max(falling, 0.0))), 1e-3)


def steps_per_epoch(schedule: ScheduleConfig) -> int:
    """Steps until an epoch's crops are used up."""
    return math.ceil(schedule.epoch_crops / schedule.batch)
