"""Everything that decides a reconstruction besides the snapshot, the mask and the camera.

Python, the command line, folders and the web page take the same options: they are written here
once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.solvers import list_solvers

if TYPE_CHECKING:
    from prismask.inference.alignment.pose import KnownPose

# Nothing here loads torch: the command line shows these fields in its help.


@dataclass(frozen=True)
class MethodOptions:
    """How the cube is made, in words and numbers that can be typed."""

    method: str | None = None
    """A solver that needs no training, such as gap-tv, or a registered method, instead of a
    network."""
    model: str | None = None
    """Trained weights: a name from `prismask models` or the path of a file. [default: those that
    ship for such a camera; gap-tv where none do]"""
    samples: int = 0
    """Masks to draw from the network's posterior for the spread of the cube; 0: one fast pass."""
    level: float = 0.9
    """Share of the values that the error bars are to cover."""
    seed: int = 0
    """Seed of the samples."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "half", "float32"] = "auto"
    """Arithmetic of a network; auto is half where its error is below the noise."""
    tile: int | None = None
    """Largest side of a tile in pixels, for less memory. [default: what suits the device]"""
    noise_std: float | None = None
    """Noise of the snapshot, in its own units. [default: estimated from it]"""
    dark: float | None = None
    """Dark level of the snapshot, in its own units. [default: read from it]"""
    check_mask: bool = True
    """Look for the mask in the snapshot first, and say if another orientation, or a pose a fraction
    of a pixel away, fits better."""
    align: bool = False
    """First find the pose of the mask, to fractions of a pixel, from the snapshot; takes some
    hundred runs of a network, for solvers a default one."""
    adapt: int = 0
    """Steps in which the network first learns the scene from its own cube; 60 took 64 s on two CPU
    cores, 220 s on one busy one."""

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
        if self.adapt < 0:
            raise ConfigError(f"adapt is {self.adapt} steps; 0 leaves the network as it is.")
        if self.adapt and self.method in list_solvers():
            raise ConfigError(f"{self.method} has no network that could learn: leave adapt out.")
        if self.noise_std is not None and not 0 <= self.noise_std < math.inf:
            raise ConfigError(f"noise_std is {self.noise_std:g}; a noise is a number, 0 or more.")
        if self.dark is not None and not math.isfinite(self.dark):
            raise ConfigError(f"dark is {self.dark:g}; a dark level is a number, or left out.")


@dataclass(frozen=True)
class Options(MethodOptions):
    """The options of a run; hashable, and small enough to be sent to another process."""

    method_options: tuple[tuple[str, Any], ...] = ()
    """Options of the solver or the registered method, such as `("iterations", 30)`."""
    pose: KnownPose | None = None
    """Pose of the mask, if an earlier alignment has found it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align and self.pose is not None:
            raise ConfigError("align searches for the pose that is given: leave one of them out.")

    def with_changes(self, changes: Mapping[str, Any]) -> Options:
        """The same with other values; names that are no fields are options of the method."""
        known = {field.name for field in fields(self)}
        own = {name: value for name, value in changes.items() if name in known}
        rest = {name: value for name, value in changes.items() if name not in known}
        if rest:
            own["method_options"] = tuple(sorted({**dict(self.method_options), **rest}.items()))
        return replace(self, **own)

    def recipe(self, **facts: Any) -> str:
        """Short id of these choices and `facts`: the same id means the same result.

        The device is left out: it changes rounding, not the result (but for the width of the
        interval where a mask is just about inconsistent).
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
            "options": [list(pair) for pair in self.method_options],
        }
        if self.adapt:
            chosen["adapt"] = self.adapt
        if self.pose is not None:
            # The key of the first versions, whose finished cubes are still recognised.
            chosen["place"] = list(self.pose.pose.numbers)
        text = json.dumps({**chosen, **facts}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


DEFAULTS = Options()
"""What nobody has changed."""
