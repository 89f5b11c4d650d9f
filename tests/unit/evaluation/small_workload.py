"""An evaluation small enough for tests, made in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from prismask.evaluation.protocol.scene_set import SceneSet, load_scene_set
from prismask.evaluation.protocol.splits import EvaluationSplit, draw_groups
from prismask.evaluation.run.contenders import build_contender, read_entries
from prismask.evaluation.run.trials import Workload
from prismask.optics.camera import CASSI
from prismask.optics.masks import MaskRegion
from prismask.scenes.records import Cube, Mask

BANDS, SIDE = 4, 16
GRID = np.linspace(450.0, 650.0, BANDS)
CAMERA = CASSI.from_step(BANDS, 2.0)
METRICS = ("psnr_paper", "ssim", "sam")


def cube(seed: int, bands: int = BANDS, side: int = SIDE) -> Cube:
    values = np.random.default_rng(seed).random((bands, side, side), dtype=np.float32)
    return Cube(values, np.linspace(450.0, 650.0, bands))


def cubes(count: int = 3) -> dict[str, Cube]:
    return {f"leaf{number}": cube(number) for number in range(count)}


def mask(seed: int = 7, size: tuple[int, int] = (40, 44)) -> Mask:
    return Mask(np.random.default_rng(seed).random(size, dtype=np.float32))


def region(seed: int = 7, name: str = "lab") -> MaskRegion:
    return MaskRegion.of(mask(seed), name=name)


def scene_set(count: int = 3) -> SceneSet:
    return load_scene_set(EvaluationSplit(None), cubes(count), ())


def workload(
    models: Mapping[str, Any] | list[str],
    trials: int = 3,
    metrics: tuple[str, ...] = METRICS,
    **changes: Any,
) -> Workload:
    scenes = scene_set()
    groups = draw_groups({"lab": region()}, "many-to-many", trials, (SIDE, SIDE), 0)
    contenders = {entry.label: build_contender(entry, BANDS, 0) for entry in read_entries(models)}
    return Workload(scenes, CAMERA, contenders, groups, metrics, **changes)


def spread(measurement: torch.Tensor, aperture: torch.Tensor, camera: CASSI) -> torch.Tensor:
    """A method that any process can find by its name."""
    return camera.spread(measurement, aperture)
