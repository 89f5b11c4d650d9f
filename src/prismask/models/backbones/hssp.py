"""HSSP: an iteration against the camera, with a small spatial and spectral prior in each step.

Half-quadratic splitting of ‖y − A x‖² + τ R(x), its quadratic step done by gradient descent,

    x ← x − ε [Aᵀ(A x − y) + η (x − h(x))],

and the prior's step h learned: a residual of two 3×3 convolutions for the space, then a 1×1
convolution for the spectrum. Nine steps, each with its own weights, ε and η. The published work
gives no count of parameters; with its 64 features this has 0.30 M at 28 bands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prismask.models.layers import (
    ConvReLU,
    Unfolded,
    conv3x3,
    conv_aligned,
    in_dtype_of,
    misfit,
)
from prismask.models.registry import register
from prismask.optics.camera import CASSI


class SpatialSpectralPrior(nn.Module):
    """h(x): a spatial residual, then a mixture of the bands."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.features = ConvReLU(bands, width)
        self.spatial = conv3x3(width, bands)
        self.spectral = nn.Conv2d(bands, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → the same."""
        out: Tensor = self.spectral(x + conv_aligned(self.spatial, self.features(x)))
        return out


@register("hssp", paper="Wang et al. 2019, HSSP", inputs=("backprojection",), speed="fast")
class HSSP(Unfolded):
    """Unfolded splitting with a spatial and spectral prior in each step."""

    io_layers = ("first_guess.*",)

    def __init__(self, planes: int, bands: int, width: int = 64, stages: int = 9) -> None:
        super().__init__(planes, bands)
        self.priors = nn.ModuleList(SpatialSpectralPrior(bands, width) for _ in range(stages))
        self.step = nn.Parameter(torch.full((stages,), 0.5))  # ε
        self.trust = nn.Parameter(torch.full((stages,), 0.5))  # η

    def forward(self, x: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        """`(B, planes, H, W)` and the snapshot → cube `(B, C, H, W)`."""
        estimate = self.start(x)
        for prior, step, trust in zip(self.priors, self.step, self.trust, strict=True):
            data = camera.adjoint(misfit(estimate, measurement, mask, camera), mask)
            expected = prior(in_dtype_of(prior, estimate))
            estimate = estimate - step * (data + trust * (estimate - expected))
        return estimate
