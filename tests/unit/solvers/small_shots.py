"""What the solvers' tests photograph: a scene of few shapes through a coin-toss aperture."""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.optics.camera import CASSI

CAMERA = CASSI.from_step(bands=6, step=2)


def scene(bands: int = 6, height: int = 40, width: int = 44) -> Tensor:
    """Discs and bars of different spectra on a grey ground, `(1, C, H, W)`."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    band = torch.linspace(0, 1, bands)[:, None, None]
    cube = 0.2 + 0.1 * band.expand(bands, height, width)
    disc = ((y - height // 2) ** 2 + (x - width // 3) ** 2 < (height // 4) ** 2).float()
    bar = ((x > 2 * width // 3) & (x < 5 * width // 6)).float()
    return (cube + 0.5 * disc * band + 0.4 * bar * (1 - band))[None].clamp(0, 1)


def aperture(height: int = 40, width: int = 44, seed: int = 0, planes: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (planes, height, width) if planes else (height, width)
    return torch.where(torch.rand(shape, generator=generator) < 0.5, 0.05, 0.95)


def psnr(estimate: Tensor, truth: Tensor) -> float:
    return float(-10 * torch.log10((estimate - truth).square().mean()))
