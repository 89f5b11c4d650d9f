"""Which phase an epoch belongs to, and at which rate it learns (method: Algorithm 1)."""

from __future__ import annotations

import math
from typing import Literal

from prismask.training.config import ScheduleConfig

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
