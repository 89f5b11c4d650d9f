"""What a backbone may see.

A backbone declares names from `INPUTS`; `network_input` makes them from the measurement, the
mask and the camera. A variant with better inputs is therefore a line of configuration, and no
backbone knows about shears.

The paper's input is `x_in[λ] = unshear(y)_λ ⊙ m` with `y` scaled by `2/C`: about half of the
mask is open, so the scaled measurement has roughly the cube's own range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from prismask.checks import choose
from prismask.optics.camera import CASSI
from prismask.optics.noise import estimate_noise

NOISE_GAIN = 20.0
"""Makes noise of 5 % of the cube's range, which is much, a plane of ones."""
UNKNOWN = -1.0
"""What a `mask_std` says where it is unknown how wrong the mask is: any negative number."""


def network_scale(bands: int) -> float:
    """The factor `2/C` by which networks like the measurement scaled."""
    return 2.0 / bands


Noise = Tensor | None
"""Standard deviation of the measurement's noise `(B|1,)` in its units; None: to be estimated.

Backbones that work from the snapshot also take that of each of its pixels, `(B|1, H, L)`.
"""
BLIND = 1e4
"""Noise of a sensor pixel that says nothing about the light, far above full scale."""


class Observation(NamedTuple):
    """Snapshots, and all that is known about how they were taken.

    Models are called with its fields one by one, `model(*seen)`: that is what is compiled and
    recorded, and what people write. Whatever lies around a model passes the record on.
    """

    measurement: Tensor
    """`(B, H, L)`."""
    mask: Tensor
    """`(B|1, 1|C, H, W)`."""
    camera: CASSI
    noise: Noise = None
    mask_std: Tensor | None = None
    """Rms error of the mask `(B|1, 1|C, H, W)`, negative where unknown; None: everywhere."""

    @property
    def scene_size(self) -> tuple[int, int]:
        """Height and width of the cube."""
        return self.camera.scene_size((self.measurement.shape[-2], self.measurement.shape[-1]))

    def with_images(self, change: Callable[[Tensor], Tensor]) -> Observation:
        """With the same change made to its measurement, mask and mask_std, such as a cut.

        To the noise too, where each pixel has its own.
        """
        noise = self.noise
        if noise is not None and noise.ndim > 1:
            noise = change(noise)
        std = None if self.mask_std is None else change(self.mask_std)
        shot, code = change(self.measurement), change(self.mask)
        return self._replace(measurement=shot, mask=code, noise=noise, mask_std=std)

    def one_by_one(self) -> Iterator[Observation]:
        """Each snapshot for itself, where all were taken through one mask."""
        noises = (
            len(self.measurement) * [None] if self.noise is None else torch.split(self.noise, 1)
        )
        for shot, noise in zip(torch.split(self.measurement, 1), noises, strict=True):
            yield self._replace(measurement=shot, noise=noise)


def _backprojection(measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise) -> Tensor:
    """`(2/C) · Aᵀ y`, the paper's input."""
    return camera.adjoint(measurement * network_scale(camera.bands), mask)


def _normalised(measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise) -> Tensor:
    """`unshear(y / Σ_λ shear(m))`: the mask's own throughput divided out."""
    return camera.spread(measurement, mask)


def _unsheared(measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise) -> Tensor:
    """`(2/C) · unshear(y)`: the measurement at each band's place, without the mask."""
    return camera.unshear(measurement * network_scale(camera.bands))


def _mask(measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise) -> Tensor:
    """The code at each scene pixel, averaged over the bands where they differ: one plane."""
    return camera.code(mask).mean(1, keepdim=True)


def _noise(measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise) -> Tensor:
    """How noisy the scaled measurement is: one even plane."""
    std = estimate_noise(measurement, mask, camera) if noise is None else noise
    scaled = NOISE_GAIN * network_scale(camera.bands) * std
    size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
    return scaled.to(measurement)[:, None, None, None].expand(-1, 1, *size)


@dataclass(frozen=True)
class Input:
    """One thing a backbone can see."""

    make: Callable[[Tensor, Tensor, CASSI, Noise], Tensor]
    planes: Callable[[int], int]
    """Channels it contributes, given the band count."""


INPUTS: dict[str, Input] = {
    "backprojection": Input(_backprojection, lambda bands: bands),
    "normalised": Input(_normalised, lambda bands: bands),
    "unsheared": Input(_unsheared, lambda bands: bands),
    "mask": Input(_mask, lambda bands: 1),
    "noise": Input(_noise, lambda bands: 1),
}


def input_planes(names: Sequence[str], bands: int) -> int:
    """Channels of the concatenated inputs."""
    return sum(INPUTS[choose(name, INPUTS, "network input")].planes(bands) for name in names)


def network_input(
    names: Sequence[str], measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise = None
) -> Tensor:
    """All inputs side by side, `(B, K, H, W)`; without a name none, `(B, 0, H, W)`."""
    batch = max(measurement.shape[0], 1 if mask.ndim < 4 else mask.shape[0])
    if not names:
        size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
        return measurement.new_empty(batch, 0, *size)
    parts = [INPUTS[name].make(measurement, mask, camera, noise) for name in names]
    return torch.cat([part.expand(batch, -1, -1, -1) for part in parts], dim=1)
