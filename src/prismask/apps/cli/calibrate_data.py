"""What `prismask calibrate` uses: validation scenes and masks, nothing of the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from prismask.optics.camera import CASSI

MASK_SEED = 977_101
"""Seed of the calibration masks; neither training nor testing draws from it."""
CAMERA_SEED = 977_201
"""Seed of the other cameras and of the masks in them, likewise."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Scenes from which the network itself did not learn (its mask posterior may have), and masks:
    crops of the region of the training masks, and fabricated ones."""

    scenes: Tensor
    """`(N, C, H, W)`, crops in the network's bands."""
    scene_of: list[int]
    """The number of the scene that each is a crop of."""
    wavelengths: list[float]
    """Of the bands, in nm."""
    masks: Tensor
    """`(M, 1, h, w)`."""
    about: dict[str, Any]
    """What they are, for the record."""


def validation(
    data: Path | None, record: dict[str, Any], camera: CASSI, masks: int, size: int
) -> Validation:
    """Read the validation scenes, and cut or make the masks."""
    import numpy as np
    import torch

    from prismask.evaluation.run.validation import validation_cubes
    from prismask.scenes.datasets import data_folder, load_scenes

    folder = data_folder(data)
    listed = load_scenes(folder, "validation", wavelengths=record.get("wavelengths_nm"))
    cubes = torch.from_numpy(np.stack([cube.values for cube in listed.values()]))
    scenes = validation_cubes(cubes, size)
    region = _training_region(folder, record)
    apertures = _masks(region, camera.mask_size((scenes.shape[-2], scenes.shape[-1])), masks)
    about = {"fitted_on": list(listed), "crops_of_training_masks": region is not None}
    at = next(iter(listed.values())).wavelengths
    assert at is not None, "scenes of a data set have wavelengths"
    # Crops of one scene come after all scenes had their first, and belong together.
    scene_of = [number % len(listed) for number in range(len(scenes))]
    return Validation(scenes, scene_of, at.tolist(), apertures, about)


def _masks(region: Tensor | None, size: tuple[int, int], count: int) -> Tensor:
    """`(count, 1, h, w)`: crops of the region and fabricated instruments in turn."""
    import torch

    from prismask.optics.fabricate import fabricate_mask, random_aperture

    generator = torch.Generator().manual_seed(MASK_SEED)
    made = []
    for number in range(count):
        fits = region is not None and region.shape[0] >= size[0] and region.shape[1] >= size[1]
        if region is None or not fits or number % 2:
            made.append(fabricate_mask(size, generator, random_aperture(generator)))
            continue
        free = (region.shape[0] - size[0] + 1, region.shape[1] - size[1] + 1)
        row, column = (int(torch.randint(n, (), generator=generator)) for n in free)
        made.append(region[row : row + size[0], column : column + size[1]])
    return torch.stack(made)[:, None]


def _training_region(folder: Path, record: dict[str, Any]) -> Tensor | None:
    """The region that the training masks were cut from, where the record names one."""
    import torch

    from prismask.scenes.datasets import load_mask_file, read_split

    source = str((record.get("masks") or {}).get("source"))
    regions = read_split(folder).masks
    if source not in regions:
        return None
    region = regions[source]
    values = torch.tensor(load_mask_file(folder, region.file).values)
    rows, columns = record["masks"].get("rows"), record["masks"].get("columns")
    if rows and columns:
        values = values[..., rows[0] : rows[1], columns[0] : columns[1]]
    return values
