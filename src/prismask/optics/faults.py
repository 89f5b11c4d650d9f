"""What goes wrong between the mask that was calibrated and the mask that codes the light.

Each fault is a small frozen record with `apply(mask, generator)`, working on a batch of masks
`(B|1, 1|C, H, W)` and keeping values in [0, 1]. A pixel of the aperture is one piece of hardware,
so dead and stuck pixels differ between the masks of a batch but are the same in all bands.

A new fault is one class with `apply` and the line `@register("its-name")` above it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from prismask.checks import check_shape, choose, nearest
from prismask.errors import ConfigError
from prismask.optics.randomness import normal, uniform
from prismask.optics.resample import (
    degrees_to_turn,
    gaussian_blur,
    pixel_grid,
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
        rows, columns = turned_grid(mask, *degrees_to_turn(self.degrees))
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
