"""What goes wrong between the mask that was calibrated and the mask that codes the light.

Each fault is a small frozen record with `apply(mask, generator)`, working on a batch of masks
`(B|1, 1|C, H, W)` and keeping values in [0, 1]. A pixel of the aperture is one piece of hardware,
so dead and stuck pixels differ between the masks of a batch but are the same in all bands.

A new fault is one class with `apply` and the line `@register("its-name")` above it.

`Variation` varies masks cheaply, so that training never sees one instrument only. Turn, mirror
and sub-pixel shift are one bilinear read per mask; value curve and gain are two more passes. Every
mask of a batch gets its own numbers, all drawn on the generator's device: with a generator on the
GPU nothing waits for the host.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from prismask.checks import check_shape, choose, nearest
from prismask.errors import ConfigError
from prismask.optics.randomness import normal, uniform
from prismask.optics.resample import (
    gaussian_blur,
    pixel_grid,
    quarter_turn,
    sample_bilinear,
    turned_grid,
)


class Fault(Protocol):
    """Anything that turns a mask into a worse one."""

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """`(B|1, 1|C, H, W)` → a new tensor of the same shape, in [0, 1]."""
        ...


FAULTS: dict[str, type[Any]] = {}
"""Every fault by its name."""

Class = TypeVar("Class", bound=type[Any])


def register(name: str) -> Callable[[Class], Class]:
    """Put a fault class into `FAULTS` under `name`."""

    def add(fault: Class) -> Class:
        if name in FAULTS:
            raise ConfigError(f"there is a mask fault {name!r} already; choose another name.")
        FAULTS[name] = fault
        return fault

    return add


def make_fault(name: str, **options: Any) -> Fault:
    """The fault called `name` with its options, for example `make_fault("blur", std=0.7)`."""
    cls = FAULTS[choose(name, FAULTS, "mask fault")]
    known = [field.name for field in dataclasses.fields(cls)]
    for key in options:
        if key not in known:
            raise ConfigError(
                f"mask fault {name!r} has no option {key!r}.{nearest(key, known)} "
                f"It has: {', '.join(known)}."
            )
    try:
        fault: Fault = cls(**options)
    except TypeError as error:
        raise ConfigError(f"mask fault {name!r} needs: {', '.join(known)}.") from error
    return fault


@register("shift")
@dataclass(frozen=True)
class Shift:
    """The mask moved by any fraction of a pixel (bilinear; the edge value continues outside)."""

    rows: float = 0.0
    """Pixels downwards."""
    columns: float = 0.0
    """Pixels to the right."""

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Move the mask; `generator` is not used."""
        check_shape(mask, ("B", "C", "H", "W"), "mask")
        rows, columns = pixel_grid(mask)
        size = mask.shape[-2:]
        rows, columns = (rows - self.rows).expand(size), (columns - self.columns).expand(size)
        return sample_bilinear(mask, rows[None], columns[None])


@register("rotation")
@dataclass(frozen=True)
class Rotation:
    """The mask turned about its centre (bilinear; the edge value continues into the corners)."""

    degrees: float
    """Angle, counter-clockwise as the mask is shown with row 0 on top."""

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Turn the mask; `generator` is not used."""
        check_shape(mask, ("B", "C", "H", "W"), "mask")
        angle = math.radians(self.degrees)
        rows, columns = turned_grid(mask, math.cos(angle), math.sin(angle))
        return sample_bilinear(mask, rows[None], columns[None])


@register("blur")
@dataclass(frozen=True)
class Blur:
    """Defocus: a Gaussian blur (the edge value continues outside)."""

    std: float
    """Standard deviation in pixels."""

    def __post_init__(self) -> None:
        _check_not_negative(self.std, "the blur's std")

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Blur the mask; `generator` is not used."""
        check_shape(mask, ("B", "C", "H", "W"), "mask")
        return gaussian_blur(mask, self.std).clamp(0, 1)


@register("gain")
@dataclass(frozen=True)
class Gain:
    """A wrong flat field: `gain · mask + offset`, clipped to [0, 1]."""

    gain: float = 1.0
    """Factor."""
    offset: float = 0.0
    """Stray light, a fraction of full transmission."""

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Scale and lift the mask; `generator` is not used."""
        return (mask * self.gain + self.offset).clamp(0, 1)


@register("gamma")
@dataclass(frozen=True)
class Gamma:
    """A calibration that was not linear: `mask ** gamma`."""

    gamma: float
    """Exponent; above 1 darkens the half-open pixels."""

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise ConfigError(f"gamma is {self.gamma:g}; an exponent above 0 is needed.")

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Bend the value curve; `generator` is not used."""
        return mask.clamp(0, 1).pow(self.gamma)


@register("dead")
@dataclass(frozen=True)
class DeadPixels:
    """Apertures that dust has closed: a random fraction of pixels transmits nothing."""

    fraction: float
    """Probability of each pixel."""

    def __post_init__(self) -> None:
        _check_fraction(self.fraction, "the fraction of dead pixels")

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Close random pixels."""
        return mask.masked_fill(_struck(mask, self.fraction, generator), 0.0)


@register("stuck")
@dataclass(frozen=True)
class StuckPixels:
    """Pixels that always show the same transmission, for example mirrors that no longer turn."""

    fraction: float
    """Probability of each pixel."""
    level: float = 1.0
    """Transmission at which they are stuck."""

    def __post_init__(self) -> None:
        _check_fraction(self.fraction, "the fraction of stuck pixels")
        _check_fraction(self.level, "the level of stuck pixels")

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fix random pixels at `level`."""
        return mask.masked_fill(_struck(mask, self.fraction, generator), self.level)


@register("noise")
@dataclass(frozen=True)
class Noise:
    """A noisy calibration: Gaussian numbers added to every pixel, clipped to [0, 1]."""

    std: float
    """Standard deviation, a fraction of full transmission."""
    mean: float = 0.0
    """Mean of what is added."""

    def __post_init__(self) -> None:
        _check_not_negative(self.std, "the noise's std")

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Add noise, independent in every pixel, plane and mask."""
        return (mask + self.mean + self.std * normal(mask.shape, mask, generator)).clamp(0, 1)


@dataclass(frozen=True)
class Compose:
    """Several faults, one after the other."""

    faults: tuple[Fault, ...]
    """In the order in which they happen."""

    def apply(self, mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Apply all of them."""
        for fault in self.faults:
            mask = fault.apply(mask, generator)
        return mask


def _struck(mask: Tensor, fraction: float, generator: torch.Generator | None) -> Tensor:
    """Which pixels are hit, `(B, 1, H, W)`."""
    check_shape(mask, ("B", "C", "H", "W"), "mask")
    batch, (height, width) = mask.shape[0], mask.shape[-2:]
    return uniform((batch, 1, height, width), mask, generator) < fraction


def _check_fraction(value: float, what: str) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{what} is {value:g}; it lies in [0, 1].")


def _check_not_negative(value: float, what: str) -> None:
    if not value >= 0:
        raise ConfigError(f"{what} is {value:g}; it cannot be negative.")


@dataclass(frozen=True)
class Variation:
    """How far masks may be varied."""

    turns: bool = True
    """Random quarter turns (half turns where the mask is not square)."""
    mirrors: bool = True
    """Mirror left and right with probability one half."""
    shift: float = 0.5
    """Largest sub-pixel shift along each axis, in pixels."""
    gamma: float = 1.3
    """Largest exponent of the value curve; drawn log-uniformly from [1/gamma, gamma]."""
    gain: float = 0.1
    """Largest relative change of gain; drawn uniformly from [1 − gain, 1 + gain]."""

    def __post_init__(self) -> None:
        if not self.shift >= 0:
            raise ConfigError(f"variation shift is {self.shift:g} px; it cannot be negative.")
        if not self.gamma >= 1:
            raise ConfigError(f"variation gamma is {self.gamma:g}; 1 means none, more bends more.")
        if not 0 <= self.gain < 1:
            raise ConfigError(f"variation gain is {self.gain:g}; it lies in [0, 1).")


def vary(
    mask: Tensor, generator: torch.Generator | None = None, variation: Variation | None = None
) -> Tensor:
    """Masks `(B, 1|C, H, W)` → as many different masks, each varied by its own random numbers."""
    check_shape(mask, ("B", "C", "H", "W"), "mask")
    wanted = variation if variation is not None else Variation()
    # One draw for all six numbers of every mask: a GPU pays for kernels, not for numbers.
    drawn = uniform((6, mask.shape[0], 1, 1), mask, generator)
    moved = _move(mask, drawn[:4], wanted)
    gamma = torch.exp((2 * drawn[4] - 1) * math.log(wanted.gamma)).unsqueeze(1)
    gain = (1 + (2 * drawn[5] - 1) * wanted.gain).unsqueeze(1)
    return (moved.clamp(0, 1).pow(gamma) * gain).clamp(0, 1)


def _move(mask: Tensor, drawn: Tensor, variation: Variation) -> Tensor:
    """Turn, mirror and shift each mask in one read; `drawn (4, B, 1, 1)` in [0, 1)."""
    number = torch.floor(drawn[0] * 4) * float(variation.turns)
    if mask.shape[-2] != mask.shape[-1]:
        number = number * 2
    rows, columns = turned_grid(mask, *quarter_turn(number))
    if variation.mirrors:
        columns = torch.where(drawn[1] < 0.5, columns, mask.shape[-1] - 1 - columns)
    rows = rows + (2 * drawn[2] - 1) * variation.shift
    columns = columns + (2 * drawn[3] - 1) * variation.shift
    return sample_bilinear(mask, rows, columns)
