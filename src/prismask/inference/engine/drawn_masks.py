"""Masks drawn from a posterior, and its mean, for frames of any size."""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.inference.engine.tiling import Tile, Tiling, spans
from prismask.models.posterior import MaskPosterior, perturb, prior_noise

WHOLE_MASK_PIXELS = 1 << 20
"""Largest mask whose graph is laid over all of it at once; larger ones are tiled."""
MASK_TILING = Tiling(tile=512, halo=8, blend=8)


def draw_masks(posterior: MaskPosterior, mask: Tensor, count: int, seed: int) -> Tensor:
    """`count` masks m′ around `mask (1, 1|C, H, W)`, on the CPU; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    std = mask_std(posterior, mask).cpu()
    config = posterior.config
    shape = (count, *mask.shape[1:])
    noise = prior_noise(shape, config.prior_mean, config.prior_std, generator, std)
    return perturb(mask.cpu(), std, noise)


def mean_mask(posterior: MaskPosterior, mask: Tensor) -> Tensor:
    """The mask of a deterministic pass, clamp(m + μ·g)."""
    mean = posterior.config.prior_mean
    if not posterior.is_random or mean == 0:
        return mask
    return perturb(mask, mask_std(posterior, mask), torch.full_like(mask, mean))


def mask_std(posterior: MaskPosterior, mask: Tensor) -> Tensor:
    """g_φ(m), with the graph over pieces of a mask too large for one."""
    height, width = mask.shape[-2:]
    if height * width <= WHOLE_MASK_PIXELS:
        return posterior.std(mask)
    out = torch.zeros_like(mask, device="cpu")
    for row in spans(height, MASK_TILING):
        for column in spans(width, MASK_TILING):
            piece = mask[..., row.first : row.last, column.first : column.last]
            Tile(row, column).add(posterior.std(piece), out)
    return out.to(mask.device)
