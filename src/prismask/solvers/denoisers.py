"""Denoisers for plug-and-play reconstruction: functions `(cube, sigma) → cube`.

Any callable of that form will do, a trained `torch.nn.Module` among them (put it in eval mode and
on the measurement's device first). Two need no training:

    tv          total variation, bands sharing their edges
    block-dct   3-D cosine transform of small blocks over the whole spectrum; coefficients below a
                multiple of sigma are set to zero; blocks in several positions are averaged
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, choose
from prismask.errors import ConfigError, ShapeError
from prismask.solvers.tv import denoise_tv
from prismask.solvers.wavelets import cosine_matrix

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""`denoise(cube (B, C, H, W), sigma (B,)) → cube`; sigma is the noise's standard deviation."""

TV_WEIGHT = 1.0
"""TV weight for noise of standard deviation 1."""
THRESHOLD = 2.7
"""Coefficients below this many sigma are taken for noise."""


@torch.no_grad()
def denoise_by_tv(cube: Tensor, sigma: float | Tensor) -> Tensor:
    """`cube (B, C, H, W)` with its total variation lowered, for noise of `sigma`, one or `(B,)`."""
    return denoise_tv(cube, TV_WEIGHT * sigma, 20, coupling="joint")


@torch.no_grad()
def denoise_by_block_dct(
    cube: Tensor, sigma: float | Tensor, block: int = 8, step: int = 4
) -> Tensor:
    """`cube (B, C, H, W)` without the small coefficients of its blocks.

    sigma: one number, or one a sample `(B,)`. step: between positions of the blocks' grid.
    """
    check_shape(cube, ("B", "C", "H", "W"), "cube")
    spectrum, space = (cosine_matrix(size, like=cube) for size in (cube.shape[1], block))
    least = THRESHOLD * torch.as_tensor(sigma, dtype=cube.dtype, device=cube.device)
    least = least.reshape(-1, 1, 1, 1, 1, 1)
    height, width = cube.shape[-2:]
    # The transform over the bands is the same in every position, so it is done once.
    mixed = torch.einsum("kc,bchw->bkhw", spectrum, cube)
    total, weights = torch.zeros_like(mixed), torch.zeros_like(mixed[:, :1])
    for down, right in itertools.product(range(0, block, step), repeat=2):
        below, beyond = -(height + down) % block, -(width + right) % block
        padded = F.pad(mixed, (right, beyond, down, below), mode="replicate")
        cleaned, weight = _cleaned(padded, space, least)
        inside = (..., slice(down, down + height), slice(right, right + width))
        total += cleaned[inside]
        weights += weight[inside]
    return torch.einsum("kc,bkhw->bchw", spectrum, total / weights)


def _cleaned(mixed: Tensor, space: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted cleaned blocks side by side, and the weights `(B, 1, H, W)`."""
    batch, bands, height, width = mixed.shape
    side = len(space)
    # (B, C, rows, side, columns, side) → coefficients of every block in the two `side` axes
    blocks = mixed.reshape(batch, bands, height // side, side, width // side, side)
    coefficients = torch.einsum("yi,bcrisj,xj->bcrysx", space, blocks, space)
    keep = coefficients.abs() > least
    # The mean of a block says how bright it is; taking it for noise would darken the scene.
    keep[:, 0, :, 0, :, 0] = True
    # Blocks that need few coefficients are the believable ones.
    weight = 1 / keep.sum((1, 3, 5), keepdim=True).to(mixed.dtype)
    cleaned = torch.einsum("yi,bcrysx,xj->bcrisj", space, coefficients * keep * weight, space)
    weight = weight.expand(batch, 1, height // side, side, width // side, side)
    return cleaned.reshape(mixed.shape), weight.reshape(batch, 1, height, width)


DENOISERS: dict[str, Denoiser] = {"tv": denoise_by_tv, "block-dct": denoise_by_block_dct}
"""Denoisers by name."""


def find_denoiser(denoiser: str | Denoiser) -> Denoiser:
    """The denoiser of that name, or the callable itself."""
    if isinstance(denoiser, str):
        return DENOISERS[choose(denoiser, DENOISERS, "denoiser")]
    if not callable(denoiser):
        raise ConfigError(
            f"denoiser is {denoiser!r}; give one of {', '.join(DENOISERS)}, or a function "
            "(cube, sigma) → cube."
        )
    return denoiser


def apply_denoiser(denoise: Denoiser, cube: Tensor, sigma: Tensor) -> Tensor:
    """`denoise(cube, sigma)`, checked: functions of others may give back anything."""
    came = denoise(cube, sigma)
    if came.shape != cube.shape:
        raise ShapeError(
            f"the denoiser turned {tuple(cube.shape)} into {tuple(came.shape)}; it must keep the "
            "cube's shape (B, C, H, W)."
        )
    return came.to(cube.dtype)
