"""A photograph that never was: cube, mask, camera and sensor give a measurement with its history.

The operator's plain sum over the bands has no natural full scale, so an exposure is chosen and
written down: `values = sensor(scale · A x)`, with `scale` and `scale_rule` in the measurement's
attributes. `scenes.units.unscaled` divides it out again, which is what a reconstruction in the
cube's units needs.

The sensor is what happens to the light between the optics and the file. It works in **fractions of
full scale**: 1 is a full well and the largest number of the converter. The plain sum is larger than
that, so scale it first (`simulate` does, and records the factor):

    Sensor((ShotRead(10_000, 5), Saturate(), Quantise(12))).apply(scale * camera.forward(x, m), g)

All stages take `signal (B, H, W)`, or any shape that starts with the batch, and return a new
tensor. Randomness comes from the generator alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from prismask.errors import ConfigError, ShapeError
from prismask.optics.camera import CASSI, CameraDescription, camera_attrs, resolve_camera
from prismask.optics.randomness import normal, poisson, seeded, uniform
from prismask.scenes.conversion import as_cube, as_mask
from prismask.scenes.records import Measurement
from prismask.wording import told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import CubeLike, MaskLike

Scale = float | Literal["fit", "white"]
"""A factor, or a rule: `fit` puts the brightest pixel of this scene at full scale; `white` puts
the brightest pixel of a white scene of value 1 there, the same for every scene."""


@told_in_python
def simulate(
    cube: CubeLike,
    mask: MaskLike,
    camera: CASSI | CameraDescription | None = None,
    sensor: Stage | None = None,
    seed: int = 0,
    scale: Scale = "fit",
) -> Measurement:
    """The snapshot of `cube (C, H, W)` through `mask (H, W)`; a seed gives the same one each time.

    cube, mask: records, file paths, NumPy arrays, torch tensors or xarray objects.
    camera: by default the one noted in the mask, otherwise the usual step for the cube's bands.

    Values are fractions of full scale. Without a sensor the measurement is exact: `scale · A x`.

    >>> import numpy as np
    >>> simulate(np.ones((4, 8, 8)), np.ones((8, 8))).size
    (8, 14)
    """
    cube, mask = as_cube(cube), as_mask(mask)
    if not isinstance(camera, CASSI):
        at = None if cube.wavelengths is None else [float(w) for w in cube.wavelengths]
        camera = resolve_camera(camera, mask.attrs, bands=cube.bands, wavelengths=at).camera
    if cube.bands != camera.bands:
        raise ShapeError(
            f"cube has {cube.bands} bands; this camera disperses {camera.bands}. Resample the cube "
            f"to {camera.bands} wavelengths or describe a camera with {cube.bands} bands."
        )
    coded, aperture = torch.tensor(cube.values)[None], torch.tensor(mask.values)
    signal = camera.forward(coded, aperture)
    factor = _factor(scale, signal, aperture, camera)
    signal = signal * factor
    if sensor is not None:
        signal = sensor.apply(signal, seeded(seed))
    attrs = {
        "made_by": "prismask.optics.simulate",
        "scale": factor,
        "scale_rule": scale if isinstance(scale, str) else "given",
        "units": "fraction of full scale",
        "cube_hash": cube.hash,
        "mask_hash": mask.hash,
        "sensor": repr(sensor) if sensor is not None else "none",
        "seed": seed,
        **camera_attrs(camera),
    }
    if cube.wavelengths is not None:
        attrs["wavelengths_nm"] = [float(w) for w in cube.wavelengths]
    return Measurement(signal[0].numpy(), attrs)


def _factor(scale: Scale, signal: Tensor, mask: Tensor, camera: CASSI) -> float:
    if not isinstance(scale, str):
        if not scale > 0:
            raise ConfigError(f"scale is {scale:g}; an exposure is a number above 0.")
        return float(scale)
    if scale not in ("fit", "white"):
        raise ConfigError(f"scale is {scale!r}; give a number, 'fit' or 'white'.")
    peak = float((signal if scale == "fit" else camera.throughput(mask)).max())
    # A black scene has no brightest pixel; any exposure shows it as it is.
    return 1.0 / peak if peak > 0 else 1.0


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
