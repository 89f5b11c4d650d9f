"""GSM: MAP estimation under a Gaussian scale mixture, unfolded.

Every voxel is Gaussian around a local mean u with a scale of its own. The MAP estimate descends

    x ← x − 2δ [Aᵀ(A x − y) + w ⊙ (x − u)],

where a U-Net looks at the estimate (and at what it saw in earlier steps) and gives w, which is
the noise over the scale, and three filters of seven taps for each voxel: u is the estimate
filtered along the width, the height and the spectrum. Four steps share the U-Net.

The camera. As published, two residual networks stand for the mask on both sides of the shear;
convolutions cannot know a mask they are not shown, and a mask posterior would have nothing to act
on. By default those networks therefore correct the real operator, A (1 + N₁) and (1 + N₂) Aᵀ;
`operator="learned"` leaves only the dispersion to the camera, as published.

Size: 3.81 M parameters and 661 G multiply-adds at 28 bands, 1.4 and 2.2 % over the published 3.76
M and 646.65 G, because the filters' hidden channels are rounded up from 7·28 to a multiple of
eight, the granularity of tensor cores.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prismask.checks import choose
from prismask.models.backbones.srn import ResidualBlock
from prismask.models.layers import (
    ALIGNMENT,
    ConvReLU,
    UNet,
    Unfolded,
    conv3x3,
    conv_aligned,
    conv_relus,
    in_dtype_of,
    misfit,
)
from prismask.models.registry import register
from prismask.optics.camera import CASSI

AXES = (3, 2, 1)
"""Width, height and spectrum of a cube, in the order in which it is filtered."""


class VoxelFilter(nn.Module):
    """A cube filtered along one axis, each voxel with its own taps."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, cube: Tensor, taps: Tensor) -> Tensor:
        """`(B, C, H, W)` and taps `(B, T, C, H, W)` → the cube's shape.

        Taps are taken at norm one, borders are repeated.
        """
        count, length = taps.shape[1], cube.shape[self.axis]
        places = torch.arange(-(count // 2), length + count - 1 - count // 2, device=cube.device)
        repeated = cube.index_select(self.axis, places.clamp(0, length - 1))
        windows = repeated.unfold(self.axis, count, 1).movedim(-1, 1)
        norm = torch.linalg.vector_norm(taps, dim=1, dtype=torch.float32)
        mixed: Tensor = (windows * taps).sum(1) / norm.clamp_min(1e-6)
        return mixed


class Mixture(nn.Module):
    """From features to w `(B, C, H, W)` and the taps of the three filters."""

    def __init__(self, channels: int, bands: int, width: int, taps: int) -> None:
        super().__init__()
        self.taps = taps
        self.precision = nn.Sequential(
            conv_relus(channels, width, 3),
            ConvReLU(width, bands),
            nn.Conv2d(bands, bands, 1),
            nn.Softplus(),
        )
        hidden = taps * bands + -(taps * bands) % ALIGNMENT
        self.filters = nn.ModuleList(
            nn.Sequential(conv_relus(channels, hidden, 2), nn.Conv2d(hidden, taps * bands, 1))
            for _ in AXES
        )

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`(B, channels, H, W)` → w and three times `(B, taps, C, H, W)`."""
        filters = [make(x).unflatten(1, (self.taps, -1)) for make in self.filters]
        return self.precision(x), filters


def mixture_unet(bands: int, width: int, taps: int) -> UNet:
    """The U-Net: five levels of two convolutions, averages on the way down."""
    widths = [width, 2 * width, 2 * width, 4 * width, 4 * width]
    encoders = [
        conv_relus(before, here, 2) for before, here in zip([width, *widths], widths, strict=False)
    ]
    decoders: list[nn.Module] = [
        conv_relus(widths[level] + widths[level + 1], widths[level], 2) for level in (3, 2, 1)
    ]
    decoders.append(Mixture(widths[0] + widths[1], bands, width, taps))
    ups = [nn.Upsample(scale_factor=2, mode="bilinear") for _ in decoders]
    return UNet(encoders, ups, decoders, pool="mean")


class OperatorNet(nn.Module):
    """What the calibrated operator does not know: a residual network on the cube."""

    def __init__(self, bands: int, width: int, blocks: int = 4) -> None:
        super().__init__()
        self.head = ConvReLU(bands, width)
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.tail = conv3x3(width, bands)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → the same."""
        return conv_aligned(self.tail, self.body(self.head(x)))


@register(
    "gsm",
    paper="Huang et al. 2021, deep Gaussian scale mixture prior",
    inputs=("unsheared",),
    speed="slow",
)
class GaussianScaleMixture(Unfolded):
    """Unfolded MAP estimation with learned local means and scales."""

    compiled_alone = (UNet, OperatorNet, VoxelFilter)
    io_layers = (
        "*_camera.head.*",
        "*_camera.tail.*",
        "first_guess.*",
        "look.*",
        "*.precision.[12].*",
        "*.filters.?.1.*",
    )

    def __init__(
        self,
        planes: int,
        bands: int,
        width: int = 32,
        stages: int = 4,
        taps: int = 7,
        operator: str = "corrected",
    ) -> None:
        super().__init__(planes, bands)
        self.is_corrected = choose(operator, ("corrected", "learned"), "operator") == "corrected"
        self.before_camera = OperatorNet(bands, 2 * width)
        self.after_camera = OperatorNet(bands, 2 * width)
        self.look = conv3x3(bands, width)
        self.recall = nn.ModuleList(nn.Conv2d(width * (i + 1), width, 1) for i in range(stages))
        self.prior = mixture_unet(bands, width, taps)
        self.local_mean = nn.ModuleList(VoxelFilter(axis) for axis in AXES)
        self.step = nn.Parameter(torch.full((stages,), 0.1))  # δ

    def forward(self, x: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        """`(B, planes, H, W)` and the snapshot → cube `(B, C, H, W)`."""
        estimate = self.start(x)
        seen: list[Tensor] = []
        for recall, step in zip(self.recall, self.step, strict=True):
            data = self._data_term(estimate, measurement, mask, camera)
            seen.append(conv_aligned(self.look, in_dtype_of(self.look, estimate)))
            precision, taps = self.prior(recall(torch.cat(seen, dim=1)))
            mean = estimate
            for voxel_filter, along in zip(self.local_mean, taps, strict=True):
                mean = voxel_filter(mean, along)
            estimate = estimate - 2 * step * (data + precision * (estimate - mean))
        return estimate

    def _data_term(
        self, estimate: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI
    ) -> Tensor:
        """Aᵀ(A x − y) of the corrected or the learned operator."""
        learned: Tensor = self.before_camera(in_dtype_of(self.before_camera, estimate)).float()
        if not self.is_corrected:
            mask = torch.ones_like(mask)
        coded = estimate + learned if self.is_corrected else learned
        back = camera.adjoint(misfit(coded, measurement, mask, camera), mask)
        learned = self.after_camera(in_dtype_of(self.after_camera, back)).float()
        return back + learned if self.is_corrected else learned
