"""Everything that decides a reconstruction besides the snapshot, the mask and the camera."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.inference.alignment.known_pose import KnownPlace


@dataclass(frozen=True)
class Settings:
    """The choices of one run; hashable, and small enough to be sent to another process."""

    method: str | None = None
    """A solver by name; None: a network, or gap-tv where none serves the camera."""
    model: str | None = None
    """Weights by name or path; None: those that ship for the camera."""
    samples: int = 0
    """Masks drawn from the network's posterior; 0: a single pass."""
    level: float = 0.9
    """Share of the values that the interval is to cover."""
    seed: int = 0
    """Seed of the samples."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    precision: str = "auto"
    """auto (half where its error is below the noise), half or float32."""
    tile: int | None = None
    """Largest height and width of a tile in pixels; None: what suits the device."""
    noise_std: float | None = None
    """Noise of the snapshot in its own units; None: estimated from it."""
    dark: float | None = None
    """Dark level of the snapshot in its own units; None: read from it."""
    registration: bool = True
    """Whether the snapshot is asked if its mask is the right one, and in its place."""
    options: tuple[tuple[str, Any], ...] = ()
    """Options of the solver."""
    align: bool = False
    """Whether a network first finds out where the mask really lies (`inference.alignment.fit`)."""
    adapt: int = 0
    """Steps in which the network learns the scene from its own cube (`methods.adaptation`)."""
    place: KnownPlace | None = None
    """Where the mask lies, if that was found out before."""

    def __post_init__(self) -> None:
        if self.method is not None and self.model is not None:
            raise ConfigError(
                f"method {self.method!r} and model {self.model!r} are two ways to reconstruct: "
                "give one of them."
            )
        choose(self.precision, ("auto", "half", "float32"), "precision")
        if self.samples < 0 or self.samples == 1:
            raise ConfigError(f"samples is {self.samples}; 0 is a single pass, a spread needs 2.")
        if not 0 < self.level < 1:
            raise ConfigError(f"level is {self.level:g}; a coverage lies between 0 and 1.")
        if self.align and self.place is not None:
            raise ConfigError("align looks for the place that is given: leave one of them out.")
        if self.adapt < 0:
            raise ConfigError(f"adapt is {self.adapt} steps; 0 leaves the network as it is.")
        if self.adapt and self.method is not None:
            raise ConfigError(f"{self.method} has no network that could learn: leave adapt out.")
        if self.noise_std is not None and not 0 <= self.noise_std < math.inf:
            raise ConfigError(f"noise_std is {self.noise_std:g}; a noise is a number, 0 or more.")
        if self.dark is not None and not math.isfinite(self.dark):
            raise ConfigError(f"dark is {self.dark:g}; a dark level is a number, or left out.")

    def recipe(self, **facts: Any) -> str:
        """Short id of these choices and `facts`: the same id means the same result.

        The device is left out: it changes rounding, not the result (but for the width of the
        interval where a mask is just about doubted).
        """
        chosen: dict[str, Any] = {
            "samples": self.samples,
            "level": self.level,
            "seed": self.seed,
            "precision": self.precision,
            "tile": self.tile,
            "noise_std": self.noise_std,
            "dark": self.dark,
            "align": self.align,
            "options": [list(pair) for pair in self.options],
        }
        if self.adapt:
            chosen["adapt"] = self.adapt
        if self.place is not None:
            chosen["place"] = list(self.place.place.numbers)
        text = json.dumps({**chosen, **facts}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
