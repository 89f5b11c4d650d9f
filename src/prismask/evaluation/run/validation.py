"""The validation that training looks at: validation scenes, validation masks, nothing of the test.

Two groups of masks: crops of the region that training masks come from (hardware seen in
training), and fabricated instruments with seeds that training never uses (hardware not seen).
Selection looks at the mean of both, because the network that ships has to serve cameras that
nobody trained on. A training that shows noise, wrong masks or lamps with lines is also judged on
those: half a pixel between the told mask and the true one, and a lamp that no training has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.evaluation.metrics import psnr
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Shift
from prismask.scenes.defaults import SIZE

SEED = 977_001
"""Seed of the validation masks; no training seed reaches it."""
LAMP = "FL11"
"""A triband lamp, held out of every training (`training.data.structured`)."""


@dataclass(frozen=True)
class _Group:
    """One way of photographing the cubes; the model is told `masks`."""

    cubes: Tensor
    masks: Tensor
    noise_std: float = 0.0
    true_masks: Tensor | None = None
    """What the light meets instead of `masks`, where they differ."""


def make_validation(
    scenes: Tensor,
    region: Tensor | None,
    camera: CASSI,
    masks: int = 4,
    size: int = SIZE,
    noise_std: float = 0.0,
    misplaced: float = 0.0,
    lamp: Tensor | None = None,
) -> Callable[[Any], dict[str, float]]:
    """A function that scores a model on `scenes (N, C, H, W)`.

    region: `(H, W)` mask that training crops come from, or None when it has none.
    noise_std: above 0, the fabricated masks once more with noise of this σ (as in training,
        relative to the cube's range), and selection looks at that as well.
    misplaced: above 0, once more with the true mask that many pixels beside the told one.
    lamp: `(C,)`, once more with the scenes lit by it.
    """
    cubes = validation_cubes(scenes, size)
    fabricated = fabricated_masks(cubes, camera, masks)
    groups = {"fabricated": _Group(cubes, fabricated)}
    if region is not None:
        groups["seen"] = _Group(cubes, region_masks(region, cubes, camera, masks))
    if noise_std > 0:
        groups["noisy"] = _Group(cubes, fabricated, noise_std)
    if misplaced > 0:
        # Across and along the dispersion, which cost differently.
        beside = Shift(rows=0.6 * misplaced, columns=0.8 * misplaced).apply(fabricated)
        groups["misplaced"] = _Group(cubes, fabricated, true_masks=beside)
    if lamp is not None:
        lit = cubes * lamp.to(cubes)[:, None, None]
        lit = lit / lit.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)
        groups["lamp"] = _Group(lit, fabricated)

    def validate(model: Any) -> dict[str, float]:
        scores = {f"psnr_{name}": _score(model, group, camera) for name, group in groups.items()}
        return {"score": sum(scores.values()) / len(scores), **scores}

    return validate


def validation_cubes(scenes: Tensor, size: int) -> Tensor:
    """The middle of every scene, and where it is large enough the whole averaged 2×2."""
    height, width = scenes.shape[-2:]
    size = min(size, height, width)
    top, left = (height - size) // 2, (width - size) // 2
    cubes = [scenes[..., top : top + size, left : left + size]]
    if min(height, width) >= 2 * size:
        half = F.avg_pool2d(scenes, 2)
        top, left = (half.shape[-2] - size) // 2, (half.shape[-1] - size) // 2
        cubes.append(half[..., top : top + size, left : left + size])
    return torch.cat(cubes)


@torch.no_grad()
def _score(model: Any, group: _Group, camera: CASSI) -> float:
    """Mean PSNR "paper" over cubes and masks."""
    half = group.cubes.device.type == "cuda"
    generator = torch.Generator().manual_seed(SEED + 2)
    true_masks = group.masks if group.true_masks is None else group.true_masks
    values = []
    for mask, true in zip(group.masks, true_masks, strict=True):
        for cube in torch.split(group.cubes, 6):
            measurement = camera.forward(cube, true[None])
            if group.noise_std:
                drawn = torch.randn(measurement.shape, generator=generator).to(cube.device)
                std = group.noise_std / network_scale(camera.bands)
                measurement = measurement + drawn * std
            estimate = estimated(model, measurement, mask[None], camera, half)
            values.append(psnr(estimate, cube, convention="paper"))
    return float(torch.cat(values).mean())


def estimated(model: Any, measurement: Tensor, mask: Tensor, camera: CASSI, half: bool) -> Tensor:
    """The model's cube in float32; computed in half precision if asked for and finite there.

    A network whose features grow beyond what float16 holds is not a bad network.
    """
    if half:
        with torch.autocast(measurement.device.type, torch.float16):
            cube: Tensor = model(measurement, mask, camera)
        if torch.isfinite(cube).all():
            return cube.float()
    cube = model(measurement, mask, camera)
    return cube.float()


def fabricated_masks(cubes: Tensor, camera: CASSI, count: int) -> Tensor:
    """Masks `(count, 1, h, w)` of instruments that nobody trained on."""
    generator = torch.Generator().manual_seed(SEED)
    size = camera.mask_size((cubes.shape[-2], cubes.shape[-1]))
    made = [fabricate_mask(size, generator, random_aperture(generator)) for _ in range(count)]
    return torch.stack(made)[:, None].to(cubes.device)


def region_masks(region: Tensor, cubes: Tensor, camera: CASSI, count: int) -> Tensor:
    """Crops `(count, 1, h, w)` of the masks that training knows; one, if no other fits."""
    generator = torch.Generator().manual_seed(SEED + 1)
    height, width = camera.mask_size((cubes.shape[-2], cubes.shape[-1]))
    free_rows, free_columns = region.shape[0] - height, region.shape[1] - width
    if min(free_rows, free_columns) < 0:
        raise ConfigError(
            f"validation needs masks of {height}×{width} and the training region has "
            f"{region.shape[0]}×{region.shape[1]}: use smaller scenes or a larger region."
        )
    if free_rows == 0 and free_columns == 0:
        count = 1
    crops = []
    for _ in range(count):
        row = int(torch.randint(free_rows + 1, (), generator=generator))
        column = int(torch.randint(free_columns + 1, (), generator=generator))
        crops.append(region[row : row + height, column : column + width])
    return torch.stack(crops)[:, None].to(cubes.device)
