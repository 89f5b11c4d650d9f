"""A mirror ensemble: a network run on a snapshot and on its mirror image.

A snapshot mirrored across the dispersion is the snapshot of the mirrored scene behind the mirrored
mask: the camera is the same. Networks do not know that. Run on both, their two cubes differ, and

- their mean is closer to the truth than either, for twice the time;
- how much they differ says where neither should be trusted (`inference.intervals.evidence`).

The record of some weights says in `mirror_ensemble` how many members they are to have: 1 or 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.inputs import Noise
from prismask.models.network import run_backbone
from prismask.optics.camera import CASSI

SIZES = (1, 2)
"""As it is; also mirrored across the dispersion."""
KEY, OLD_KEY = "mirror_ensemble", "ways"
"""The number in a record, and what weights of the first versions call it."""


def ensemble_size(record: Mapping[str, Any]) -> int:
    """How many members the mirror ensemble of a record's weights has."""
    size = record.get(KEY, record.get(OLD_KEY, 1))
    if size not in SIZES:
        raise ConfigError(
            f"{KEY} = {size!r}: a network is run once (1), or also on the mirrored snapshot (2)."
        )
    return int(size)


def run_ensemble(
    backbone: nn.Module,
    seen: Tensor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    size: int,
    noise: Noise = None,
    mask_std: Tensor | None = None,
) -> Tensor:
    """Every answer of a backbone to its input planes `seen (B, K, H, W)`: `(size, B, C, H, W)`.

    noise, mask_std: for one that works from the snapshot (`models.network.SnapshotBackbone`).
    """
    answers = [run_backbone(backbone, seen, measurement, mask, camera, noise, mask_std)]
    if size > 1:
        across = -2 if camera.axis == "width" else -1
        # The planes of the mirrored snapshot are the mirrored planes: nothing in them looks across.
        planes, shot, code = (given.flip(across) for given in (seen, measurement, mask))
        spread = None if mask_std is None else mask_std.flip(across)
        mirrored = run_backbone(backbone, planes, shot, code, camera, noise, spread)
        answers.append(mirrored.flip(across))
    return torch.stack(answers) if size > 1 else answers[0][None]


def combined(answers: Tensor) -> tuple[Tensor, Tensor | None]:
    """Mean and standard deviation over `(size, …)`; no deviation where there is one answer."""
    if len(answers) == 1:
        return answers[0], None
    first, second = answers
    # What `std` says of two numbers, in a tenth of its time on a CPU.
    return answers.mean(0), (first - second).abs() * math.sqrt(0.5)
