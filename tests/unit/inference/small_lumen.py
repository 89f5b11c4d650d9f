"""A small lumen that has learned nothing, awake enough to say something, and its cameras."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prismask.models.backbones.lumen import BandsOut
from prismask.models.network import Reconstructor
from prismask.models.registry import create_model
from prismask.models.weights import trained_with
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded

OPTIONS: dict[str, Any] = {"width": 8, "stages": 2, "cosines": 8}
NOMINAL = CASSI.from_step(6, 2.0)
FAMILY: dict[str, Any] = {
    "spread": [0.5, 1.2], "bend": 0.1, "jitter": 0.3, "band_counts": [4, 12],
    "masks": {"fault_share": 0.5, "told_share": 0.7},
}  # fmt: skip
"""What its record says of the cameras and masks of its training."""
CAMERAS = {
    "of the training": NOMINAL,
    "few bands": CASSI.from_step(4, 3.0),
    "many bands": CASSI.from_step(11, 0.8),
    "backwards": CASSI.from_step(6, -2.0),
    "fractional": CASSI.from_step(6, 1.7),
    "uneven": CASSI((0.0, 1.4, 3.2, 5.3, 7.3, 10.0)),
    "along the height": CASSI.from_step(6, 2.0, axis="height"),
    "backwards along the height": CASSI.from_step(5, -1.5, axis="height"),
    "two dispersers": CASSI.from_step(6, 2.0, design="dual"),
}
SIZE = (24, 30)


def lumen(posterior: str = "none", size: float = 0.1, **more: Any) -> Reconstructor:
    """Seeded; size: of what it reads from its features, next to nothing when it is made."""
    model = create_model("lumen", bands=6, seed=3, mask_posterior=posterior, **{**OPTIONS, **more})
    for module in model.modules():
        if isinstance(module, BandsOut):
            nn.init.normal_(module.conv.weight, std=size, generator=seeded(5))
    model.record |= {**trained_with(NOMINAL), **FAMILY, "name": "lumen.small"}
    return model.eval().requires_grad_(False)


def snapshots(camera: CASSI, count: int = 1, planes: int = 1) -> tuple[Tensor, Tensor]:
    """Measurements `(B, H, L)` and their mask `(1, planes, H, W)`."""
    numbers = seeded(1)
    mask = torch.rand(1, planes, *camera.mask_size(SIZE), generator=numbers).clamp_min(0.05)
    cubes = torch.rand(count, camera.bands, *SIZE, generator=numbers)
    return camera.forward(cubes, mask), mask
