"""Parameters and multiply-adds, counted rather than estimated."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from prismask.models.network import Reconstructor
from prismask.models.registry import from_record
from prismask.optics.camera import CASSI
from prismask.scenes.defaults import SIZE


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
        meta.reconstruct(measurement, mask, camera)
    return int(counter.get_total_flops()) // 2
