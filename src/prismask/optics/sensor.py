"""The sensor: what happens to the light between the optics and the file.

Everything here works in **fractions of full scale**: 1 is a full well and the largest number of
the converter. The operator's plain sum over the bands is larger than that, so scale it first
(`simulate` does, and records the factor). A measurement is `sensor(noise(scale · A x))`:

    Sensor((ShotRead(10_000, 5), Saturate(), Quantise(12))).apply(scale * camera.forward(x, m), g)

All stages take `signal (B, H, W)`, or any shape that starts with the batch, and return a new
tensor. Randomness comes from the generator alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.optics.randomness import normal, poisson, uniform


class Stage(Protocol):
    """Anything that turns a signal into what the next part of the sensor gets."""

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """`(B, …)` → the same shape, in fractions of full scale."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """Additive noise of one strength, or of a strength drawn anew for every sample."""

    std: float | tuple[float, float]
    """Standard deviation; a pair `(low, high)` draws one from U[low, high] for each sample."""

    def __post_init__(self) -> None:
        low, high = self.std if isinstance(self.std, tuple) else (self.std, self.std)
        if not 0 <= low <= high:
            raise ConfigError(f"noise std is {self.std}; give 0 or more, or a pair (low, high).")

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Add the noise."""
        if not isinstance(self.std, tuple):
            return add_gaussian(signal, self.std, generator)
        low, high = self.std
        std = low + (high - low) * uniform((signal.shape[0],), signal, generator)
        return add_gaussian(signal, std, generator)


@dataclass(frozen=True)
class ShotRead:
    """Photon counting and the amplifier: Poisson electrons plus Gaussian read noise.

    A signal s has variance s / full_well_electrons + (read_electrons / full_well_electrons)².
    Counts are drawn, so no gradient flows back through the shot noise.
    """

    full_well_electrons: float
    """Electrons at full scale."""
    read_electrons: float = 0.0
    """Standard deviation of the read noise in electrons."""

    def __post_init__(self) -> None:
        if not self.full_well_electrons > 0:
            raise ConfigError(f"a full well of {self.full_well_electrons:g} electrons holds none.")
        if not self.read_electrons >= 0:
            raise ConfigError(f"read noise is {self.read_electrons:g} electrons; give 0 or more.")

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Count photons and read them out; light below 0 counts as none."""
        electrons = poisson(signal.clamp_min(0) * self.full_well_electrons, generator)
        if self.read_electrons:
            electrons = electrons + self.read_electrons * normal(signal.shape, signal, generator)
        return electrons / self.full_well_electrons


@dataclass(frozen=True)
class Saturate:
    """A pixel that can hold no more: values above `level` become `level`."""

    level: float = 1.0
    """Fraction of full scale."""

    def __post_init__(self) -> None:
        if not self.level > 0:
            raise ConfigError(f"saturation level is {self.level:g}; it must be above 0.")

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Clip from above; `generator` is not used."""
        return signal.clamp_max(self.level)


@dataclass(frozen=True)
class Quantise:
    """The converter: [0, 1] in 2**bits equal steps, clipped outside."""

    bits: int
    """Bits of the converter."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 24:
            raise ConfigError(
                f"a converter of {self.bits} bits: 1 to 24 are possible (float32 has no more)."
            )

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Round to the nearest number of the converter; `generator` is not used."""
        top = (1 << self.bits) - 1
        return torch.round(signal.clamp(0, 1) * top) / top


@dataclass(frozen=True)
class Sensor:
    """Stages in the order in which the light meets them."""

    stages: tuple[Stage, ...] = ()
    """For example shot and read noise, then saturation, then the converter."""

    def apply(self, signal: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Run the signal through all stages."""
        for stage in self.stages:
            signal = stage.apply(signal, generator)
        return signal


def add_gaussian(
    signal: Tensor, std: float | Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Add Gaussian noise to `signal (B, …)`; `std` is a number or one for each sample `(B,)`."""
    if isinstance(std, Tensor) and std.ndim > 0:
        if tuple(std.shape) != (signal.shape[0],):
            raise ShapeError(
                f"{std.numel()} noise levels for a batch of {signal.shape[0]}: "
                "give one number, or one for each sample."
            )
        std = std.to(signal).reshape(-1, *(1 for _ in signal.shape[1:]))
    return signal + std * normal(signal.shape, signal, generator)
