"""Frames as a network knows them: bands no further apart than in its training.

A network that learned bands 2 px apart is lost where they are 3 px apart, though nothing about the
optics is strange. Read with larger pixels along the dispersion, by a factor f < 1, the same frame
is that of a camera whose offsets are f · o_λ: with u′ + ½ = f (u + ½) on sensor, mask and scene,

    y[v] = Σ_λ m[v − o_λ] x_λ[v − o_λ]      is      y′[v′] = Σ_λ m′[v′ − f o_λ] x′_λ[v′ − f o_λ].

So snapshot and mask are read like that before the network sees them, and its cube is read back.
Detail finer than 1/f pixels along the dispersion is lost; smaller pixels (f > 1) would bring
nothing to a camera that spreads its spectrum less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline
from torch import Tensor

from prismask.inference.alignment.pose import BLUR, Place
from prismask.optics.camera import CASSI

FINE = 4
"""Places that are averaged in each larger pixel."""


@dataclass(frozen=True)
class Stretch:
    """A frame of `camera`, which disperses along the width, with `width` columns of the scene."""

    camera: CASSI
    width: int
    columns: int
    """Columns that the network sees of them, at most as many."""

    @classmethod
    def by(cls, factor: float, camera: CASSI, width: int) -> Stretch:
        """The nearest to `factor` with which the scene ends where a pixel does."""
        return cls(camera, width, max(1, round(factor * width)))

    @property
    def factor(self) -> float:
        """Pixels of the network in one of the camera's."""
        return self.columns / self.width

    @property
    def is_needed(self) -> bool:
        """Whether frames change at all."""
        return self.columns != self.width

    @property
    def shown(self) -> CASSI:
        """The camera as the network sees it."""
        if not self.is_needed:
            return self.camera
        return replace(self.camera, offsets=tuple(self.factor * o for o in self.camera.offsets))

    def signal(self, signal: Tensor, noise_std: float) -> tuple[Tensor, float]:
        """A snapshot `(H, L)` for the network, and what is left of its noise in larger pixels."""
        if not self.is_needed:
            return signal, noise_std
        weights = self._there(signal.shape[-1], self.shown.measurement_size((1, self.columns))[1])
        left = float(weights.square().sum(1).mean().sqrt())
        return signal @ weights.T, noise_std * left

    def mask(self, mask: Tensor) -> Tensor:
        """A mask `(1, 1|C, H, W)` for the network."""
        if not self.is_needed:
            return mask
        columns = self.shown.mask_size((1, self.columns))[1]
        return (mask @ self._there(mask.shape[-1], columns).T).clamp(0, 1)

    def back(self, values: Tensor) -> Tensor:
        """What the network says `(C, H, W′)`, in the camera's pixels `(C, H, W)`."""
        return values @ self._back(3).T if self.is_needed else values

    def back_distance(self, values: Tensor) -> Tensor:
        """The same for what is never negative, such as the width of an interval."""
        return values @ self._back(1).T if self.is_needed else values

    def place_back(self, place: Place) -> Place:
        """A place found in frames of the network, in the camera's pixels."""
        if not self.is_needed:
            return place
        numbers = list(place.numbers)
        for along in (1, 4, 5, 6, 7):  # right, its growths, spread and bend
            numbers[along] /= self.factor
        # Its pixels are longer than high, the blur of a place is round.
        numbers[BLUR] *= (1 + self.factor**-2) / 2
        return Place(tuple(numbers))

    def _there(self, length: int, columns: int) -> Tensor:
        fine = (np.arange(FINE * columns, dtype=np.float64) + 0.5) / (FINE * self.factor)
        weights = _spline(length, fine - 0.5, 3)
        return torch.from_numpy(weights.reshape(columns, FINE, length).mean(1)).float()

    def _back(self, degree: int) -> Tensor:
        at = self.factor * (np.arange(self.width, dtype=np.float64) + 0.5) - 0.5
        return torch.from_numpy(_spline(self.columns, at, degree)).float()


def _spline(length: int, at: NDArray[np.float64], degree: int) -> NDArray[np.float64]:
    """Weights `(n, length)` of the values at 0 … length − 1 for those at `at`; edges continue."""
    degree = min(degree, length - 1)
    if degree < 1:
        return np.ones((len(at), 1))
    spline = make_interp_spline(np.arange(length), np.eye(length), k=degree)
    return np.asarray(spline(np.clip(at, 0, length - 1)))
