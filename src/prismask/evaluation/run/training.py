"""`prismask.train`: training with the validation that selection uses.

It stands here because `training` itself knows no metrics: they live to its right.

That validation has validation scenes, validation masks and nothing of the test. Two groups of
masks: crops of the region that training masks come from (hardware seen in training), and fabricated
instruments with seeds that training never uses (hardware not seen). Selection looks at the mean of
both, because the network that ships has to serve cameras it was not trained on. A training that
shows noise, wrong masks, enlarged scenes or lamps with lines is also judged on those: half a pixel
between the given mask and the true one, scenes enlarged twice, and a lamp that no training has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.evaluation.metrics import psnr
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.faults import Shift
from prismask.scenes.colour import lamp_in_bands
from prismask.scenes.conversion import as_cube, as_mask
from prismask.scenes.defaults import SIZE
from prismask.training import run
from prismask.training.config import TrainConfig, from_table, read_config
from prismask.training.setup import GivenData, Prepared, wavelengths
from prismask.training.step import Report, Validate
from prismask.wording import told_in_python

if TYPE_CHECKING:
    from prismask.scenes.conversion import CubeLike, MaskLike

SEED = 977_001
"""Seed of the validation masks; no training seed reaches it."""
LAMP = "FL11"
"""A triband lamp, held out of every training (`training.data.cubes`)."""


@dataclass(frozen=True)
class _Group:
    """One way of photographing the cubes; the model is given `masks`."""

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
    enlarged: bool = False,
    lamp: Tensor | None = None,
) -> Callable[[Any], dict[str, float]]:
    """A function that scores a model on `scenes (N, C, H, W)`.

    region: `(H, W)` mask that training crops come from, or None when it has none.
    noise_std: above 0, the fabricated masks once more with noise of this σ (as in training,
        relative to the cube's range), and selection looks at that as well.
    misplaced: above 0, once more with the true mask that many pixels off the given one.
    enlarged: once more with the middle of every scene enlarged twice: as the paper trains, and as
        smooth as lenses and prisms make real scenes.
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
        displaced = Shift(rows=0.6 * misplaced, columns=0.8 * misplaced).apply(fabricated)
        groups["misplaced"] = _Group(cubes, fabricated, true_masks=displaced)
    if enlarged:
        groups["enlarged"] = _Group(enlarged_middles(scenes, size), fabricated)
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


def enlarged_middles(scenes: Tensor, size: int) -> Tensor:
    """The middle of every scene, twice as large: `(N, C, h, w)`."""
    size = min(size, *scenes.shape[-2:])
    half = -(-size // 2) + 2  # a pixel more on each side, for what interpolation reads there
    top, left = ((side - half) // 2 for side in scenes.shape[-2:])
    middle = scenes[..., top : top + half, left : left + half]
    # With antialias the cubic is Keys' (a = −½), which keeps a ramp straight; without it is not.
    large = F.interpolate(
        middle, scale_factor=2, mode="bicubic", align_corners=False, antialias=True
    )
    return large[..., 2 : 2 + size, 2 : 2 + size].clamp(0, 1).contiguous()


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
    """The model's cube in float32; computed in half precision if wanted and finite there.

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
    """Masks `(count, 1, h, w)` of instruments that no training has seen."""
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


@told_in_python
def train(
    config: TrainConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    scenes: Sequence[CubeLike] | None = None,
    validation: Sequence[CubeLike] | None = None,
    mask: MaskLike | None = None,
    resume: bool = False,
    report: Report | None = None,
    stop_after: float | None = None,
) -> run.Outcome:
    """Train a network; everything worth keeping goes to `folder`, or nowhere.

    config: a TOML file, its tables as dictionaries (`{"schedule": {"batch": 4}}`), or a
        `TrainConfig`.
    scenes, validation: cubes `(C, H, W)` of one size in memory or in files, instead of the data
        set that the configuration names; without `validation` the last third of `scenes` is it.
    mask: where masks are cut from, instead of the configured source.
    resume: go on from the folder's checkpoint.
    report: called with each line that also goes to metrics.jsonl.
    stop_after: pause with a checkpoint after so many seconds.
    """
    if not isinstance(config, TrainConfig):
        is_table = isinstance(config, Mapping)
        config = from_table(dict(config)) if is_table else read_config(config)  # type: ignore[arg-type]
    return run.train(
        config,
        folder,
        resume=resume,
        make_validate=_make_validate,
        report=report,
        stop_after=stop_after,
        given=_given(scenes, validation, mask),
    )


def _given(
    scenes: Sequence[CubeLike] | None,
    validation: Sequence[CubeLike] | None,
    mask: MaskLike | None,
) -> GivenData | None:
    if scenes is None and validation is not None:
        raise ConfigError("validation scenes go with scenes to train on: give both, or scenes.")
    aperture = None if mask is None else as_mask(mask)
    if scenes is None:
        return None if aperture is None else GivenData(mask=aperture)
    cubes = [as_cube(scene, "a scene") for scene in scenes]
    others = [as_cube(scene, "a validation scene") for scene in validation or ()]
    if validation is None:
        kept = max(1, len(cubes) // 3)
        cubes, others = cubes[:-kept], cubes[-kept:]
    if not cubes or not others:
        raise ConfigError("training needs at least one training and one validation scene.")
    return GivenData(cubes, others, aperture)


def _make_validate(config: TrainConfig, prepared: Prepared) -> Validate:
    region = None if prepared.region is None else torch.tensor(prepared.region.values)
    lamp = lamp_in_bands(LAMP, wavelengths(config.camera)) if config.data.lamps > 0 else None
    return make_validation(
        prepared.validation_scenes,
        region,
        prepared.camera,
        noise_std=sum(config.data.noise_std) / 2,
        misplaced=0.5 if config.masks.fault_share > 0 else 0.0,
        enlarged=config.data.scale[1] >= 2,
        lamp=None if lamp is None else torch.from_numpy(lamp),
    )
