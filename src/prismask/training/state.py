"""Everything that changes while training, and what is needed to go on exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam

from prismask.models.network import Reconstructor
from prismask.optics.randomness import seed_of
from prismask.training.adversary import Adversary
from prismask.training.config import TrainConfig
from prismask.training.schedule import Phase


@dataclass
class TrainState:
    """Both networks, both optimisers, the average of θ, and the counters."""

    model: Reconstructor
    theta: Adam
    """Optimiser of the backbone; its moments survive the phases."""
    phi: Adam | None
    """Optimiser of the variance network, if there is one to train."""
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
    fused = next(model.parameters()).device.type == "cuda"
    schedule = config.schedule
    theta = Adam(model.backbone.parameters(), lr=schedule.theta_rate, fused=fused)
    phi = None
    if model.posterior.is_learned:
        phi = Adam(model.posterior.parameters(), lr=schedule.phi_rate, fused=fused)
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
    """All learning rates, scaled alike."""
    against = None if state.adversary is None else state.adversary.optimiser
    for optimiser, rate in (
        (state.theta, config.schedule.theta_rate),
        (state.phi, config.schedule.phi_rate),
        (against, config.schedule.theta_rate),
    ):
        if optimiser is not None:
            for group in optimiser.param_groups:
                group["lr"] = rate * factor


@torch.no_grad()
def update_average(state: TrainState, decay: float) -> None:
    """average ← decay · average + (1 − decay) · θ, with a faster start.

    The decay grows with the steps done, so the random start is forgotten early.
    """
    if state.average is None:
        return
    decay = min(decay, (1 + state.step) / (10 + state.step))
    parameters = [p.detach() for p in state.model.backbone.parameters()]
    torch._foreach_lerp_(list(state.average.values()), parameters, 1 - decay)


class averaged_weights:
    """`with averaged_weights(state):` puts the average of θ in place, then the weights back."""

    def __init__(self, state: TrainState) -> None:
        self.state = state
        self.kept: list[Tensor] = []

    def __enter__(self) -> None:
        if self.state.average is not None:
            self.kept = [p.detach().clone() for p in self.state.model.backbone.parameters()]
            _copy(self.state.model.backbone, list(self.state.average.values()))

    def __exit__(self, *error: object) -> None:
        if self.kept:
            _copy(self.state.model.backbone, self.kept)


@torch.no_grad()
def _copy(module: nn.Module, values: list[Tensor]) -> None:
    for parameter, value in zip(module.parameters(), values, strict=True):
        parameter.copy_(value)
