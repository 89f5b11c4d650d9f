"""`prismask.train`: training with the validation that selection uses.

It stands here because `training` itself knows no metrics: they live to its right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prismask.errors import ConfigError
from prismask.evaluation.run.validation import LAMP, make_validation
from prismask.scenes.conversion import as_cube, as_mask
from prismask.scenes.illuminants import lamp_in_bands
from prismask.training import run
from prismask.training.config import TrainConfig, from_table, read_config
from prismask.training.setup import GivenData, Prepared, wavelengths
from prismask.training.step import Report, Validate

if TYPE_CHECKING:
    from prismask.scenes.conversion import CubeLike, MaskLike


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
        lamp=None if lamp is None else torch.from_numpy(lamp),
    )
