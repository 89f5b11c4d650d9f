"""The numbers that a training configuration may hold, one entry for every key that is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prismask.errors import ConfigError


@dataclass(frozen=True)
class Limit:
    """What one kind of number may be."""

    words: str
    """What fits, as "it must be …" goes on."""
    fits: Callable[[float], bool]
    """A comparison, never its opposite: NaN then fits nowhere."""


COUNT = Limit("at least 1", lambda number: number >= 1)
COUNT_OR_NONE = Limit("0 or more", lambda number: number >= 0)
SHARE = Limit("between 0 and 1", lambda number: 0 <= number <= 1)
RATE = Limit("above 0, and finite", lambda number: 0 < number < math.inf)
STRENGTH = Limit("0 or more, and finite", lambda number: 0 <= number < math.inf)

LIMITS: Mapping[str, Limit] = {
    "seed": COUNT_OR_NONE,
    "data.native_share": SHARE,
    "data.spectral_gain": STRENGTH,
    "data.collage": SHARE,
    "data.warp": SHARE,
    "data.repaint": STRENGTH,
    "data.lamps": SHARE,
    "data.narrow_bands": SHARE,
    "data.laser_lines": SHARE,
    "data.noise_share": Limit(
        "above 0 and at most 1; for no noise at all set data.noise_std = [0, 0]",
        lambda number: 0 < number <= 1,
    ),
    "data.synthetic_scenes": COUNT,
    "data.synthetic_size": COUNT,
    "masks.calibration_error": STRENGTH,
    "masks.fabricated_share": SHARE,
    "masks.fabricated_count": COUNT,
    "masks.binary_share": SHARE,
    "masks.fault_share": SHARE,
    "masks.fault_size": STRENGTH,
    "masks.dispersion_share": SHARE,
    "masks.told_share": SHARE,
    "masks.per_band_share": SHARE,
    "camera.bands": COUNT,
    "camera.bend": STRENGTH,
    "camera.jitter": Limit("0 or more, and below 1", lambda number: 0 <= number < 1),
    "camera.more_bands_share": SHARE,
    "loss.adversarial": STRENGTH,
    "loss.beta": STRENGTH,
    "loss.stage_decay": SHARE,
    "loss.mask_weight": STRENGTH,
    "optimizer.muon_rate": RATE,
    "optimizer.momentum": Limit("0 or more, and below 1", lambda number: 0 <= number < 1),
    "optimizer.ramp_steps": COUNT_OR_NONE,
    "schedule.batch": COUNT,
    "schedule.epoch_crops": COUNT,
    "schedule.epochs": COUNT,
    "schedule.warmup_epochs": COUNT_OR_NONE,
    "schedule.theta_epochs": COUNT,
    "schedule.phi_epochs": COUNT_OR_NONE,
    "schedule.theta_rate": RATE,
    "schedule.phi_rate": RATE,
    "schedule.halve_every": COUNT,
    "schedule.clip_gradient": STRENGTH,
    "schedule.hold": Limit("0 or more, and below 1", lambda number: 0 <= number < 1),
    "speed.batches_at_once": COUNT,
    "speed.ema": Limit("0 (off) or more, and below 1", lambda number: 0 <= number < 1),
    "output.checkpoint_every": COUNT,
    "output.validate_every": COUNT_OR_NONE,
    "output.keep_every": COUNT_OR_NONE,
    "output.log_every": COUNT,
}
"""Dotted keys. `camera.step` and the posterior's numbers are judged by what is built of them."""
RANGES = ("data.scale", "data.brightness", "data.noise_std", "camera.spread")
"""Keys that are a lower and an upper end."""


def check_numbers(values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for the first of these values, by dotted key, that cannot be."""
    for key, limit in LIMITS.items():
        value = values[key]
        if not limit.fits(value):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            raise ConfigError(f"{key} is {shown}; it must be {limit.words}.")
    if min(values["data.crop"]) < 1:
        raise ConfigError(f"data.crop is {list(values['data.crop'])}; each side is at least 1.")
    for key in RANGES:
        low, high = values[key]
        if not 0 <= low <= high < math.inf:
            raise ConfigError(
                f"{key} = [{low:g}, {high:g}]: the first number is the lower end, neither is "
                "negative, and both are finite."
            )
