"""Asking a network more than once.

A snapshot mirrored across the dispersion is the snapshot of the mirrored scene behind the mirrored
mask: the camera is the same. Networks do not know that. Asked both ways their two cubes differ, and

- their mean is closer to the truth than either, for twice the time;
- how much they differ says where neither should be trusted (`inference.intervals.model`).

How often weights want to be asked is the number `ways` of their record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.inputs import Noise
from prismask.models.network import run_backbone
from prismask.optics.camera import CASSI

WAYS = (1, 2)
"""As it is; also mirrored across the dispersion."""


def ways_of(record: Mapping[str, Any]) -> int:
    """How often the weights of a record want to be asked."""
    ways = record.get("ways", 1)
    if ways not in WAYS:
        raise ConfigError(f"ways = {ways!r}: a network is asked once (1), or also mirrored (2).")
    return int(ways)


def run_ways(
    backbone: nn.Module,
    seen: Tensor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    ways: int,
    noise: Noise = None,
    mask_std: Tensor | None = None,
) -> Tensor:
    """Every answer of a backbone to its input planes `seen (B, K, H, W)`: `(ways, B, C, H, W)`.

    noise, mask_std: for one that works from the snapshot (`models.network.SnapshotBackbone`).
    """
    answers = [run_backbone(backbone, seen, measurement, mask, camera, noise, mask_std)]
    if ways > 1:
        across = -2 if camera.axis == "width" else -1
        # The planes of the mirrored snapshot are the mirrored planes: nothing in them looks across.
        planes, shot, code = (given.flip(across) for given in (seen, measurement, mask))
        spread = None if mask_std is None else mask_std.flip(across)
        mirrored = run_backbone(backbone, planes, shot, code, camera, noise, spread)
        answers.append(mirrored.flip(across))
    return torch.stack(answers) if ways > 1 else answers[0][None]


def combined(answers: Tensor) -> tuple[Tensor, Tensor | None]:
    """Mean and standard deviation over `(ways, …)`; no deviation where there is one answer."""
    if len(answers) == 1:
        return answers[0], None
    return answers.mean(0), answers.std(0)
