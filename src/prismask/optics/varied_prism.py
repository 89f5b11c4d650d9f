"""A camera with another prism in every step of a training.

A network that learned behind one dispersion knows no other: bands that land between pixels, or
closer together, are new to it. Here the offsets are numbers on the device that change from step to
step, while every size stays that of the widest camera, so that one compiled network serves them
all:

    o_λ(s, b) = s · (o_λ + 4 b · o_max · u (1 − u)),    u = o_λ / o_max,

with a spread s, drawn evenly in its logarithm, and a bend b, drawn from [−bend, bend]. Bands at the
two ends lie 1 + 4 b and 1 − 4 b times as far apart as without the bend; the whole is as long. The
lowest band stays at 0, where the mask is. In half of the steps the camera is the one it is said to
be.

A narrow camera lights fewer columns of the widest camera's frame. Nothing reads the others: no
band's window reaches them, so a network computes what it would on the narrow camera's own frame.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.shear_on_device import shear_sum, unshear

Places = TypeVar("Places", Tensor, NDArray[np.float64])

LEAST, MOST = 0.3, 1.5
"""Spreads between which a camera is still like the one it is made from."""
STEADY = 0.5
"""Share of the draws in which the camera is as it is said to be."""


class VariedCamera(CASSI):
    """A single disperser along the width; `draw` says where its bands land until the next draw.

    What it does not override works on whatever it does: networks call it like any other camera.
    """

    _spread: tuple[float, float]
    _bend: float
    _places: Tensor
    _extent: int
    _lit: int
    _whole: Tensor
    _rest: Tensor

    def __init__(
        self,
        nominal: CASSI,
        spread: tuple[float, float] = (1.0, 1.0),
        bend: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        if nominal.design != "single" or nominal.axis != "width":
            raise ConfigError(
                "camera.spread and camera.bend are for one disperser along the width."
            )
        super().__init__(nominal.offsets)
        places = torch.tensor(nominal.offsets, dtype=torch.float64)
        _check(places, spread, bend)
        for name, value in {
            "_spread": spread,
            "_bend": bend,
            "_places": places,
            # Bends leave the last band where it is, and the nominal camera has to fit too.
            "_extent": _extent_of(_moved(places, max(1.0, spread[1]), 0.0)),
            "_whole": torch.zeros(len(places), dtype=torch.int64, device=device),
            "_rest": torch.zeros(len(places), device=device),
        }.items():
            # A camera is frozen; where its light lands right now is what this one is about.
            object.__setattr__(self, name, value)
        self.land(places)

    @property
    def extent(self) -> int:
        """That of the widest camera, whatever was drawn."""
        return self._extent

    @property
    def lit_extent(self) -> int:
        """That of the camera that was drawn: beyond it no light falls on the frame."""
        return self._lit

    @property
    def is_exactly_diagonal(self) -> bool:
        """Not to be relied on: the next draw may be fractional."""
        return False

    def draw(self, generator: torch.Generator) -> None:
        """Choose spread and bend, or in half of the draws neither."""
        chance, along, bend = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        if chance < STEADY:
            self.land(self._places)
            return
        low, high = self._spread
        self.land(_moved(self._places, low * (high / low) ** along, self._bend * (2 * bend - 1)))

    def land(self, offsets: Tensor) -> None:
        """Let the bands land at these offsets `(C,)`, in place: compiled code reads them there."""
        # As in `dispersion`: residue of arithmetic is no part of a pixel.
        rounded = torch.round(offsets.double(), decimals=9)
        whole = rounded.floor()
        self._whole.copy_(whole.long())
        self._rest.copy_(rounded - whole)
        object.__setattr__(self, "_lit", _extent_of(rounded))

    def forward(self, cube: Tensor, mask: Tensor) -> Tensor:
        """A x, `(B, H, W + extent)`."""
        return self._shear(cube * self.check_cube_and_mask(cube, mask))

    def unshear(self, measurement: Tensor) -> Tensor:
        """Every band's window of the measurement, `(B, C, H, W)`."""
        width = self.scene_size((measurement.shape[-2], measurement.shape[-1]))[1]
        return unshear(measurement, self._whole, self._rest, width)

    def throughput(self, mask: Tensor) -> Tensor:
        """Σ_λ shear(m)."""
        return self._shear(self._all_bands(as_mask_batch(mask)))

    def gram_diagonal(self, mask: Tensor) -> Tensor:
        """Not known without squared weights, which no network asks for."""
        raise ConfigError(
            "this method needs the diagonal of A Aᵀ: train it with camera.spread = [1, 1] and "
            "camera.bend = 0."
        )

    def _shear(self, planes: Tensor) -> Tensor:
        return shear_sum(planes, self._whole, self._rest, planes.shape[-1] + self.extent)


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


def bent(along: Places, bend: float) -> Places:
    """Places u on the way from the first band (0) to the last (1), bent: u + 4 b u (1 − u)."""
    return along + 4 * bend * along * (1 - along)


def _moved(places: Tensor, spread: float, bend: float) -> Tensor:
    most = float(places.max())
    return places if most == 0 else spread * most * bent(places / most, bend)


def _extent_of(places: Tensor) -> int:
    """As `shear.shear_extent`; residue of arithmetic is no part of a pixel."""
    return math.ceil(round(float(places.max()), 9))
