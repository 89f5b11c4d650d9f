"""What `prismask calibrate` uses: validation scenes and masks, nothing of the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from prismask.inference.intervals.snapshots import Plan, Studio

CAMERA_SEED = 977_201
"""Seed of the other cameras; neither training nor testing draws from it."""
TRAINING_SEED = 7
"""Added to the seed of a plan for snapshots of training scenes."""


def studio_for(
    data: Path | None, record: dict[str, Any], plan: Plan, cameras: int, group: str = "validation"
) -> tuple[Studio, dict[str, Any]]:
    """Scenes of a group, the region that the training masks came from, other cameras; and what they
    are, for the record.

    From those of `validation` the network itself did not learn (its mask posterior may have).
    """
    from prismask.inference.intervals.snapshots import HELD_OUT, Studio, draw_cameras
    from prismask.models.trained import trained_camera, trained_variation
    from prismask.scenes.datasets import data_folder, load_scenes

    folder = data_folder(data)
    scenes = load_scenes(folder, group, wavelengths=record.get("wavelengths_nm"))
    if group != "validation":
        plan = replace(plan, seed=plan.seed + TRAINING_SEED)
    own, region = trained_camera(record), _training_region(folder, record)
    others = draw_cameras(own, cameras, CAMERA_SEED, trained_variation(record)) if cameras else []
    about = {
        "fitted_on": list(scenes),
        "crops_of_training_masks": region is not None,
        "lamps_held_out": list(HELD_OUT),
        "camera_seed": CAMERA_SEED,
    }
    return Studio(plan, scenes, own, others, region), about


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
