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
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.solvers import list_solvers

if TYPE_CHECKING:
    from prismask.inference.alignment.pose import KnownPose
    from prismask.scenes.records import Array

# Nothing here loads torch: the command line shows these fields in its help.


@dataclass(frozen=True)
class MethodOptions:
    """How the cube is made, in words and numbers that can be typed."""

    method: str | None = None
    """A solver that needs no training, such as gap-tv, or a registered method, instead of a
    network."""
    model: str | None = None
    """Trained weights: a name from `prismask models` or the path of a file. [default: the ones that
    suit the camera; gap-tv if there are none]"""
    samples: int = 0
    """Masks to draw around the given one, for the spread of the cube; 0: one fast pass."""
    level: float = 0.9
    """Share of the true values that the error bars should contain."""
    seed: int = 0
    """Random seed of the samples."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "half", "float32"] = "auto"
    """Arithmetic of the network; auto uses half precision if its error is below the noise."""
    tile: int | None = None
    """Largest side of a tile in pixels, to save memory. [default: depends on the device]"""
    noise_std: float | None = None
    """Noise of the snapshot (standard deviation), in counts if its pixels are integers, otherwise
    in its own units. [default: estimated from the snapshot]"""
    check_mask: bool = True
    """Check first that the mask fits the snapshot, and report if another orientation, or a shift of
    a fraction of a pixel, fits better."""
    align: bool | None = None
    """First find the pose of the mask, to fractions of a pixel, from the snapshot; takes less than
    a minute of one CPU core, also where a solver makes the cube. [default: if a network makes the
    cube and the snapshot contradicts its mask]"""
    adapt: int = 0
    """Steps in which the network is first trained on its own cube of this scene. 60 steps took 64 s
    on two CPU cores and 220 s on one busy core, for any size of frame; the frame itself is then
    reconstructed three times."""

    def __post_init__(self) -> None:
        if self.method is not None and self.model is not None:
            raise ConfigError(
                f"method {self.method!r} and model {self.model!r} are two ways to reconstruct: "
                "give one of them."
            )
        choose(self.precision, ("auto", "half", "float32"), "precision")
        if self.samples < 0 or self.samples == 1:
            raise ConfigError(
                f"samples is {self.samples}; give 0 for a single pass, or at least 2 for a spread."
            )
        if not 0 < self.level < 1:
            meant = f" For {self.level:g} % give {self.level / 100:g}." * (1 < self.level < 100)
            raise ConfigError(f"level is {self.level:g}; it lies between 0 and 1.{meant}")
        if self.adapt < 0:
            raise ConfigError(f"adapt is {self.adapt} steps; 0 leaves the network as it is.")
        if self.adapt and self.method in list_solvers():
            raise ConfigError(f"{self.method} has no network to adapt: leave adapt out.")
        if self.noise_std is not None and not 0 <= self.noise_std < math.inf:
            raise ConfigError(f"noise_std is {self.noise_std:g}; a noise is a number, 0 or more.")


class _Picture:
    """Values that belong to a run; equal if they are."""

    def __init__(self, values: Array, source: str) -> None:
        from prismask.scenes.records import array_hash

        self.values = values
        self.source = source
        self.hash = array_hash(values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Picture) and other.hash == self.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source}, {self.hash})"


class MaskStd(_Picture):
    """How far each pixel of a mask may be wrong.

    values: `(H, W)` or `(C, H, W)`, in the mask's units. source: where they come from.
    """

    def __init__(self, values: Any, source: str = "given") -> None:
        from prismask.scenes.records import check_mask_std

        super().__init__(check_mask_std(values), source)

    @classmethod
    def of(cls, given: Any) -> MaskStd | float:
        """From a number, or anything that a mask can come as."""
        from prismask.scenes.conversion import as_mask_std

        if isinstance(given, MaskStd):
            return given
        if isinstance(given, Real) or getattr(given, "ndim", None) == 0:
            number = float(given)
            if not 0 <= number <= 1:
                raise ConfigError(
                    f"mask_std is {number:g}; it says how far the mask may be wrong, between 0 "
                    "(exact) and 1, the mask's own range. Leave it out where it is unknown."
                )
            return number
        return cls(as_mask_std(given), str(given) if isinstance(given, str | Path) else "given")


class Frame(_Picture):
    """A picture of a sensor that belongs to its snapshots.

    values: `(H, L)`, as snapshots are read: integers as fractions of their type's full scale.
    source: what people call it. counts: that full scale, if they were integers.
    """

    def __init__(self, values: Any, source: str = "given", counts: int | None = None) -> None:
        from prismask.scenes.records import Measurement

        super().__init__(Measurement(values).values, source)
        self.counts = counts
        if counts is not None:
            self.hash = f"{self.hash}/{counts}"

    @classmethod
    def of(cls, given: Any, what: str) -> Frame:
        """From a record, an array or the name of a file; `what` is how errors call it."""
        from prismask.scenes.conversion import as_measurement
        from prismask.scenes.units import noted_counts

        if isinstance(given, Frame):
            return given
        try:
            read = as_measurement(given, what)
        except ValueError as problem:
            if what in str(problem) or isinstance(given, str | Path):
                raise
            raise type(problem)(f"{what}: {problem}") from problem
        source = str(given) if isinstance(given, str | Path) else "given"
        return cls(read.values, source, noted_counts(read.attrs))


@dataclass(frozen=True)
class RawOptions:
    """What a camera's frames need before they are snapshots.

    Frames may be given as arrays, records or names of files.
    """

    dark: Any = None
    """Dark level of the snapshot (in counts where its pixels are integers, else in its own units),
    or the dark frame. [default: a level that is estimated from the snapshot]"""
    flat: Any = None
    """Flat field: a picture of even light without the mask."""
    bad_pixels: Any = "auto"
    """Map of bad pixels, 0 where they are sound, which are left out; auto: hot and dead ones are
    found; none: all are taken as measured."""
    bits: int | None = None
    """Bits of the sensor, if its counts came in a 16-bit file: 12 makes 4095 full scale. [default:
    full scale is that of the integer type, in every snapshot alike]"""
    average: bool = False
    """The measurement is a stack of exposures of one scene, or a list of them: they are averaged,
    and their spread is taken for the noise."""

    def __post_init__(self) -> None:
        def keep(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if isinstance(self.dark, Real):
            keep("dark", float(self.dark))
            if not math.isfinite(self.dark):
                raise ConfigError(f"dark is {self.dark:g}; a dark level is a number, or left out.")
            if self.dark < 0:
                raise ConfigError(
                    f"dark is {self.dark:g}; a sensor reads 0 or more without light. If too much "
                    "was subtracted from the snapshot already, add that to it and leave dark out."
                )
        elif self.dark is not None:
            keep("dark", Frame.of(self.dark, "dark"))
        if self.flat is not None:
            keep("flat", Frame.of(self.flat, "flat"))
        if not isinstance(self.bad_pixels, str) or self.bad_pixels not in ("auto", "none"):
            keep("bad_pixels", Frame.of(self.bad_pixels, "bad_pixels"))
        if self.bits is not None and not 8 <= self.bits <= 16:
            raise ConfigError(f"bits is {self.bits}; sensors have 8 to 16.")

    @property
    def dark_frame(self) -> Frame | None:
        """The dark frame, if one is given."""
        return self.dark if isinstance(self.dark, Frame) else None

    @property
    def dark_level(self) -> float | None:
        """The dark level that is given; what a dark frame leaves is none."""
        return 0.0 if isinstance(self.dark, Frame) else self.dark

    def chosen(self) -> dict[str, Any]:
        """What differs from doing nothing, for the id of a result."""
        said = {"flat": self.flat, "bad_pixels": self.bad_pixels, "bits": self.bits}
        said = {name: value for name, value in said.items() if value not in (None, "none")}
        said["dark"] = self.dark
        return {name: v.hash if isinstance(v, Frame) else v for name, v in said.items()}


@dataclass(frozen=True)
class Options(RawOptions, MethodOptions):
    """The options of a run; hashable, and small enough to be sent to another process."""

    method_options: tuple[tuple[str, Any], ...] = ()
    """Options of the solver or the registered method, such as `("iterations", 30)`."""
    pose: KnownPose | None = None
    """Pose of the mask, if an earlier alignment has found it."""
    mask_std: Any = None
    """How far the mask may be wrong, as a standard deviation in its units: a number, or for each
    pixel a file, an array, or a mask with a `std`. [default: what the mask brings along; else the
    network estimates it]"""

    def __post_init__(self) -> None:
        MethodOptions.__post_init__(self)
        RawOptions.__post_init__(self)
        if self.mask_std is not None:
            object.__setattr__(self, "mask_std", MaskStd.of(self.mask_std))
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

        The device is left out: it changes rounding, not the result (except for the width of the
        interval where a mask is just about inconsistent).
        """
        chosen: dict[str, Any] = {
            "samples": self.samples,
            "level": self.level,
            "seed": self.seed,
            "precision": self.precision,
            "tile": self.tile,
            "noise_std": self.noise_std,
            **self.chosen(),
            "align": self.align,
            "options": [list(pair) for pair in self.method_options],
        }
        if self.adapt:
            chosen["adapt"] = self.adapt
        if self.pose is not None:
            # The key of the first versions, whose finished cubes are still recognised.
            chosen["place"] = list(self.pose.pose.numbers)
        if self.mask_std is not None:
            stated = self.mask_std
            chosen["mask_std"] = stated.hash if isinstance(stated, MaskStd) else stated
        text = json.dumps({**chosen, **facts}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


DEFAULTS = Options()
"""The options as they are by default."""
