"""Cameras with another prism in every step of a training.

A network trained with one dispersion fits no other: bands that land between pixels, or
closer together, are new to it. A `PrismFamily` draws cameras around a nominal one,

    o_λ(s, b) = s · (o_λ + 4 b · o_max · u (1 − u)),    u = o_λ / o_max,

with a spread s, drawn evenly in its logarithm, and a bend b, drawn from [−bend, bend]. Bands at the
two ends lie 1 + 4 b and 1 − 4 b times as far apart as without the bend; the whole is as long. The
lowest band stays at 0, where the mask is. With a jitter every band between the ends is also moved
by itself, at most that share of half the way to its neighbour. In the other draws the camera is the
nominal one.

A drawn camera does not change. Where its bands land is a tensor on the device, and its frame is as
wide as that of the family's widest camera: one compiled network serves them all. A narrow camera
lights fewer columns of that frame. Nothing reads the others: no band's window reaches them, so a
network computes what it would on the narrow camera's own frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.shear import bent, gathered_shear_sum, gathered_unshear

LEAST, MOST = 0.3, 1.5
"""Spreads between which a camera is still like the one it is made from."""


class VariedCamera(CASSI):
    """A single disperser along the width on a frame that may be wider than it needs.

    What it does not override works on whatever it does: networks call it like any other camera.
    Two of them are never equal, because where bands land is known to the device alone.
    """

    places: Tensor
    """Where the bands land, `(C,)` on the device; what compiled code reads."""
    _extent: int

    def __init__(self, offsets: Tensor, extent: int, places: Tensor) -> None:
        super().__init__(tuple(offsets.tolist()))
        # A camera is frozen; these are set once, here.
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "_extent", extent)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def reading(self, places: Tensor) -> VariedCamera:
        """The same camera, which reads where its bands land from another tensor `(C,)`.

        For steps that are recorded once and replayed: what the tensor holds then decides.
        """
        return VariedCamera(torch.tensor(self.offsets, dtype=torch.float64), self._extent, places)

    @property
    def bands(self) -> int:
        """Number of spectral bands C."""
        return self.places.shape[0]

    @property
    def extent(self) -> int:
        """That of the family's widest camera."""
        return self._extent

    @property
    def lit_extent(self) -> int:
        """Its own: beyond it no light falls on the frame."""
        return math.ceil(max(self.offsets))

    @property
    def is_exactly_diagonal(self) -> bool:
        """Not to be relied on: compiled code serves fractional offsets too."""
        return False

    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        """A x, `(B, H, W + extent)`."""
        return self._shear(cube * self.check_cube_and_mask(cube, mask))

    def adjoint(self, measurement: Tensor, mask: Tensor) -> Tensor:
        """Aᵀ y, `(B, C, H, W)`."""
        return self.unshear(measurement) * self.check_measurement_and_mask(measurement, mask)

    def unshear(self, measurement: Tensor) -> Tensor:
        """Every band's window of the measurement, `(B, C, H, W)`."""
        width = self.scene_size((measurement.shape[-2], measurement.shape[-1]))[1]
        return gathered_unshear(measurement, self.places, width)

    def throughput(self, mask: Tensor) -> Tensor:
        """Σ_λ shear(m)."""
        return self._shear(self._all_bands(as_mask_batch(mask)))

    def gram_diagonal(self, mask: Tensor) -> Tensor:
        """The diagonal of A Aᵀ, with squared interpolation weights."""
        return self._shear(self._all_bands(as_mask_batch(mask).square()), power=2)

    def _shear(self, planes: Tensor, power: int = 1) -> Tensor:
        return gathered_shear_sum(planes, self.places, planes.shape[-1] + self.extent, power)


@dataclass(frozen=True)
class PrismFamily:
    """Cameras around a nominal one, to draw from."""

    nominal: CASSI
    """One disperser along the width."""
    spread: tuple[float, float] = (1.0, 1.0)
    """Factors between which the spectrum is spread."""
    bend: float = 0.0
    """Most by which it is bent, either way."""
    jitter: float = 0.0
    """Most by which a band moves by itself, as a share of half the way to its neighbour."""
    device: torch.device | str = "cpu"
    """Where cameras are used."""
    share: float = 0.5
    """Share of the draws that are not the nominal camera."""

    def __post_init__(self) -> None:
        if self.nominal.design != "single" or self.nominal.axis != "width":
            raise ConfigError(
                "camera.spread, camera.bend and camera.jitter are for one disperser along the "
                "width."
            )
        _check(self._places, self.spread, self.bend)
        if not 0 <= self.jitter < 1:
            raise ConfigError(
                f"camera.jitter is {self.jitter:g}; bands keep their order at 0 or more, below 1."
            )

    @property
    def extent(self) -> int:
        """Pixels by which every drawn camera's frame is longer than the scene."""
        # Bends leave the last band where it is, and the nominal camera has to fit too.
        return _extent_of(_moved(self._places, max(1.0, self.spread[1]), 0.0))

    def draw(self, generator: torch.Generator) -> VariedCamera:
        """A camera with spread, bend and jitter, or the nominal one."""
        chance, along, bend = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        if chance >= self.share:
            return self.landing_at(self._places)
        low, high = self.spread
        moved = _moved(self._places, low * (high / low) ** along, self.bend * (2 * bend - 1))
        if self.jitter:
            numbers = torch.rand(len(moved), generator=generator, dtype=torch.float64)
            moved = _jittered(moved, self.jitter * (2 * numbers - 1))
        return self.landing_at(moved)

    def landing_at(self, offsets: Tensor) -> VariedCamera:
        """The camera whose bands land at these offsets `(C,)`, on the family's frame."""
        # As in `optics.shear`: residue of arithmetic is no part of a pixel.
        rounded = torch.round(offsets.double(), decimals=9)
        # Pinned, so that the host does not wait for the device.
        on_gpu = torch.device(self.device).type == "cuda"
        places = (rounded.pin_memory() if on_gpu else rounded).to(self.device, non_blocking=on_gpu)
        return VariedCamera(rounded, self.extent, places)

    @property
    def _places(self) -> Tensor:
        return torch.tensor(self.nominal.offsets, dtype=torch.float64)


def _check(places: Tensor, spread: tuple[float, float], bend: float) -> None:
    low, high = spread
    if not LEAST <= low <= high <= MOST:
        raise ConfigError(
            f"camera.spread = [{low:g}, {high:g}]: two factors between {LEAST:g} and {MOST:g}, the "
            "lower one first. For a camera further away set camera.step or camera.offsets."
        )
    most = _most_bend(places)
    if not 0 <= bend < most:
        raise ConfigError(
            f"camera.bend is {bend:g}; bands of this camera keep their order below {most:.4g}: "
            "take 0 or more, and less than that."
        )


def _most_bend(places: Tensor) -> float:
    """The bend at which two neighbours meet: a step from u to v is (v − u)(1 + 4 b (1 − u − v))."""
    distinct = torch.tensor(sorted(set(places.tolist())), dtype=places.dtype)
    if len(distinct) < 3:
        return math.inf  # A bend does not move the ends.
    along = distinct / distinct[-1]
    return float(0.25 / (1 - along[1:] - along[:-1]).abs().max())


def _moved(places: Tensor, spread: float, bend: float) -> Tensor:
    most = float(places.max())
    return places if most == 0 else spread * most * bent(places / most, bend)


def _jittered(places: Tensor, shares: Tensor) -> Tensor:
    """Bands between the ends moved by `shares` of half the way to the neighbour on that side."""
    order = places.argsort()
    line = places[order]
    gaps = line.diff() / 2
    if len(gaps) < 2:
        return places
    inner = shares[order][1:-1]
    moved = line.clone()
    moved[1:-1] += torch.where(inner < 0, inner * gaps[:-1], inner * gaps[1:])
    return torch.empty_like(places).scatter_(0, order, moved)


def _extent_of(places: Tensor) -> int:
    """As `shear.shear_extent`; residue of arithmetic is no part of a pixel."""
    return math.ceil(round(float(places.max()), 9))
