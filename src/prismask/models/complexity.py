"""Parameters and multiply-adds, counted rather than estimated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from prismask.models.network import Reconstructor
from prismask.models.registry import backbone, create_model, from_record
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import BANDS, SIZE

SPEEDS = {"fast": 100e9, "medium": 300e9}
"""Most multiply-adds of a snapshot in each class; what needs more is "slow"."""


@dataclass(frozen=True)
class Description:
    """What a table of networks says about one."""

    name: str
    summary: str
    """What it is, in one line."""
    paper: str
    """Where it was published."""
    inputs: tuple[str, ...]
    """What it sees (names of `models.inputs.INPUTS`)."""
    wants_physics: bool
    """Whether it also contains the camera."""
    parameters: int
    multiply_adds: int
    """Of one snapshot of the default size."""
    speed: str
    """"fast", "medium" or "slow", by multiply-adds; benchmarks/backbones.py has milliseconds."""


def describe(name: str, bands: int = BANDS, size: tuple[int, int] = (SIZE, SIZE)) -> Description:
    """Facts about a network of `list_models()`, counted without computing anything."""
    found = backbone(name.removesuffix("+"))
    with torch.device("meta"):
        model = create_model(name, bands=bands)
    operations = count_multiply_adds(model, CASSI.from_step(bands), size)
    speed = next((word for word, most in SPEEDS.items() if operations <= most), "slow")
    return Description(
        name=name,
        summary=found.summary,
        paper=found.paper,
        inputs=model.inputs,
        wants_physics=found.wants_physics,
        parameters=count_parameters(model),
        multiply_adds=operations,
        speed=speed,
    )


def count_parameters(module: nn.Module) -> int:
    """Number of learnable values."""
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def count_multiply_adds(
    model: Reconstructor, camera: CASSI, size: tuple[int, int] = (SIZE, SIZE)
) -> int:
    """Multiply-adds of one snapshot of scene size `(H, W)`, mask posterior included.

    Runs on the meta device: shapes only, no arithmetic.
    """
    with torch.device("meta"):
        meta = from_record(model.record)
    mask = torch.empty(1, 1, *camera.mask_size(size), device="meta")
    measurement = torch.empty(1, *camera.measurement_size(size), device="meta")
    with FlopCounterMode(display=False) as counter:
        if meta.posterior.is_learned:
            meta.posterior.std(mask)
        # Told, because it cannot be estimated from numbers that are not there.
        meta.reconstruct(measurement, mask, camera, noise=measurement.new_zeros(1))
    return int(counter.get_total_flops()) // 2
