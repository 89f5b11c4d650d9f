"""A network built for C′ bands behind a camera that has C.

A network knows a spectrum as C′ places along the dispersion. Any other camera is shown to it as a
*virtual camera* with C′ bands spread over the same pixels: the offsets of its bands lie at equal
fractions of the way from the camera's first band to its last, so they are fractional in general.
A scene with a smooth spectrum gives the same snapshot through both, except that the light of C
terms is now spread over C′ terms. The snapshot is multiplied by C′ / C before the network sees
it, which keeps the cube in the camera's own units; the C′ bands of the result are interpolated
back to the C of the camera, and re-projecting those explains the snapshot again.

What this cannot do is teach the network another dispersion: windows that were 2 px apart in
training and are now 1.7 px apart overlap differently. Small differences cost little; `strangeness`
says how large they are, and beyond `LIMIT` a solver is the better choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismask.optics.camera import CASSI, as_mask_batch
from prismask.scenes.resample import resampling_weights

LIMIT = 1.6
"""Ratio of pixels a band, to training, beyond which a network is not taken by default."""
NOTICEABLE = 1.2
"""Ratio from which the result is accompanied by a remark."""


@dataclass(frozen=True)
class BandAdapter:
    """The camera a network is shown, and the way to it and back."""

    camera: CASSI
    """The real camera."""
    shown: CASSI
    """The camera as the network sees it: the same one, or a virtual one with its band count."""
    trained_step: float | None = None
    """Pixels a band in the network's training, where its record says so."""
    trained_design: str = "single"
    """Behind how many dispersers that was."""

    @classmethod
    def between(
        cls,
        camera: CASSI,
        bands: int,
        trained_step: float | None = None,
        trained_design: str = "single",
    ) -> BandAdapter:
        """The adapter from `camera` to a network built for `bands` bands."""
        if bands == camera.bands:
            return cls(camera, camera, trained_step, trained_design)
        here, there = band_places(camera.bands), band_places(bands)
        offsets = np.interp(there, here, camera.offsets)
        shown = replace(camera, offsets=tuple(float(o) for o in offsets))
        return cls(camera, shown, trained_step, trained_design)

    @property
    def is_needed(self) -> bool:
        """Whether the band counts differ."""
        return self.shown.bands != self.camera.bands

    @property
    def gain(self) -> float:
        """The factor C′ / C on the snapshot."""
        return self.shown.bands / self.camera.bands

    @property
    def strangeness(self) -> float:
        """Pixels a band as the network sees them over those of its training, at least 1."""
        if not self.trained_step or self.shown.bands < 2:
            return 1.0
        step = (max(self.shown.offsets) - min(self.shown.offsets)) / (self.shown.bands - 1)
        ratio = step / abs(self.trained_step)
        return float("inf") if ratio == 0 else max(ratio, 1 / ratio)

    @property
    def is_within_reach(self) -> bool:
        """Whether the network may be taken by default."""
        return self.camera.design == self.trained_design and self.strangeness <= LIMIT

    def mask(self, mask: Tensor) -> Tensor:
        """A mask `(B|1, 1|C, H, W)` for the shown camera; one plane for all bands stays as is."""
        mask = as_mask_batch(mask)
        if not self.is_needed or mask.shape[1] == 1:
            return mask
        weights = _weights(self.camera.bands, self.shown.bands)
        return torch.einsum("kc,bchw->bkhw", torch.from_numpy(weights).to(mask), mask)

    def back(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bands of the network `(C′, H, W)` → bands of the camera `(C, H, W)`."""
        if not self.is_needed:
            return values
        weights = _weights(self.shown.bands, self.camera.bands)
        flat = weights @ values.reshape(self.shown.bands, -1)
        return np.asarray(flat.reshape(self.camera.bands, *values.shape[1:]), dtype=np.float32)


def band_places(bands: int) -> NDArray[np.float64]:
    """Where each band lies from the first (0) to the last (1); a single one in the middle."""
    return np.linspace(0.0, 1.0, bands) if bands > 1 else np.array([0.5])


def _weights(source: int, target: int) -> NDArray[np.float32]:
    return resampling_weights(band_places(source), band_places(target), extrapolate="hold").astype(
        np.float32
    )
