"""A trained network from whose cubes another learns, in addition to the truth.

The teacher sees what the student sees: the snapshot, the nominal mask, the noise, how far the
mask may be wrong. Its cube is the best that a larger network makes of these; the truth also holds
what no network could know. It is computed in the step itself, on the student's own crops, so there
are as many lessons as there are crops, and nothing is stored.

A teacher is run without gradients, on CUDA in half precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.fast import half_dtype
from prismask.models.network import Reconstructor, compile_parts, works_from_snapshot
from prismask.models.weights import find_weights, load_weights, read_record
from prismask.training.config import TrainConfig, in_half
from prismask.training.data.batches import Batch


class Teacher:
    """A network that answers and never learns."""

    def __init__(self, network: Reconstructor, device: torch.device, half: bool) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        backbone: nn.Module = self.network.backbone
        dtype = half_dtype(device) if half else None
        if dtype is not None:
            backbone.to(dtype)
        if device.type == "cuda":
            backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        """What it makes of a batch, `(B, C, H, W)` float32."""
        network = self.network
        noise = batch.noise if network.wants_noise else None
        spread = batch.mask_std if network.wants_mask_std else None
        with torch.autocast(batch.measurement.device.type, enabled=False):
            cube: Tensor = network(batch.measurement, batch.mask, batch.camera, noise, spread)
        return cube.float()


def build_teacher(config: TrainConfig, device: torch.device) -> Teacher | None:
    """The configured teacher on its device; None where there is none, or it has no weight."""
    if not has_teacher(config):
        return None
    network = load_weights(find_weights(config.loss.teacher))
    check_teacher(network.record, config, works_from_snapshot(network.backbone))
    teacher = Teacher(network, device, in_half(config, device))
    if config.speed.compile:
        compile_parts(teacher.network.backbone)
    return teacher


def has_teacher(config: TrainConfig) -> bool:
    """Whether anything is learned from a teacher."""
    return bool(config.loss.teacher) and config.loss.teacher_weight > 0


def check_teacher(record: dict[str, Any], config: TrainConfig, serves_any: bool) -> None:
    """Raise where a teacher cannot say anything about the student's crops."""
    wanted = {config.camera.bands, *config.camera.more_bands}
    bands = int(record["bands"])
    if serves_any or wanted == {bands}:
        return
    listed = " and ".join(str(count) for count in sorted(wanted))
    raise ConfigError(
        f"loss.teacher {config.loss.teacher!r} was built for {bands} bands, and this training's "
        f"crops have {listed}. Take one that serves any band count, such as lumen.m2m, or set "
        f"camera.bands = {bands} without camera.more_bands."
    )


def teacher_record(config: TrainConfig) -> dict[str, Any]:
    """What the records of a run say about its teacher."""
    if not has_teacher(config):
        return {}
    before = read_record(find_weights(config.loss.teacher))
    kept = ("name", "backbone", "sha256")
    facts = {key: before[key] for key in kept if key in before}
    return {"teacher": {**facts, "weight": config.loss.teacher_weight}}
