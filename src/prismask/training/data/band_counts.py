"""The same scenes and the same prism, cut into more or fewer bands.

A network that serves any band count has to meet some. Between steps, not within one: every count is
a shape of its own that a compiler has to know, so there are few of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from prismask.optics.camera import CASSI
from prismask.optics.varied_prism import PrismFamily


def positions(count: int, bands: int) -> Tensor:
    """Where `count` bands lie between the first and the last of `bands`, `(count,)`."""
    return torch.linspace(0, bands - 1, count, dtype=torch.float64)


def resampling_matrix(count: int, bands: int) -> Tensor:
    """`(count, bands)`: how much of each band a new one gets; rows sum to one."""
    band = torch.arange(bands, dtype=torch.float64)
    return (1 - (positions(count, bands)[:, None] - band).abs()).clamp_min(0).float()


def with_bands(camera: CASSI | PrismFamily, count: int) -> CASSI | PrismFamily:
    """The camera with the same prism and another number of bands, as far apart as before in all."""
    nominal = camera.nominal if isinstance(camera, PrismFamily) else camera
    at = positions(count, nominal.bands).numpy()
    offsets = np.interp(at, np.arange(nominal.bands), nominal.offsets)
    other = CASSI(tuple(offsets.tolist()), nominal.axis, nominal.design)
    if not isinstance(camera, PrismFamily):
        return other
    return PrismFamily(other, camera.spread, camera.bend, camera.jitter, camera.device)
