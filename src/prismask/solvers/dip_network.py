"""The untrained network of PnP-DIP: an hourglass of convolutions with skip connections.

Fitted to one snapshot it draws shapes that repeat and edges that the bands share long before it
draws what the wrong bands leave behind: its structure is the prior. Nothing in it was learnt from
other scenes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INPUT_CHANNELS = 32
"""Planes of fixed noise that the network turns into a cube."""
SKIP_CHANNELS = 16
"""What passes from the way down to the way up on each level; few, so that the depth counts."""
LEAST_SIDE = 4
"""Shortest side of the deepest level in pixels: statistics over fewer say nothing."""


class Hourglass(nn.Module):
    """`(1, INPUT_CHANNELS, H, W)` → `(1, bands, H, W)` in 0 … 1, for any size."""

    def __init__(self, bands: int, width: int, levels: int) -> None:
        super().__init__()
        self.head = _block(INPUT_CHANNELS, width)
        self.downs = nn.ModuleList(
            nn.Sequential(_block(width, width, stride=2), _block(width, width))
            for _ in range(levels)
        )
        self.skips = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, SKIP_CHANNELS, 1), nn.LeakyReLU(0.2))
            for _ in range(levels)
        )
        self.ups = nn.ModuleList(
            nn.Sequential(_block(width + SKIP_CHANNELS, width), _block(width, width))
            for _ in range(levels)
        )
        self.tail = nn.Conv2d(width, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Down by two on each level (sizes rounded up), and up again to the sizes kept."""
        x = self.head(x)
        kept = []
        for down, skip in zip(self.downs, self.skips, strict=True):
            kept.append(skip(x))
            x = down(x)
        for up in self.ups:
            beside = kept.pop()
            x = F.interpolate(x, size=beside.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([beside, x], dim=1))
        # In half precision the sigmoid alone would round a bright pixel by 0.4 %.
        return torch.sigmoid(self.tail(x).float())


def levels_for(levels: int, height: int, width: int) -> int:
    """`levels`, or as many as leave the deepest one `LEAST_SIDE` pixels; at least 0."""
    side, fit = min(height, width), 0
    while fit < levels and (side + 1) // 2 >= LEAST_SIDE:
        side, fit = (side + 1) // 2, fit + 1
    return fit


def build_hourglass(
    bands: int, width: int, levels: int, size: tuple[int, int], seed: int, device: torch.device
) -> tuple[Hourglass, Tensor]:
    """A network with its seeded start and its fixed input `(1, INPUT_CHANNELS, H, W)`.

    Both are drawn on the CPU: the same seed is the same start on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Hourglass(bands, width, levels_for(levels, *size))
        noise = 0.1 * torch.rand(1, INPUT_CHANNELS, *size)
    # Convolutions in bf16 run on tensor cores in this layout.
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    network.to(device=device, memory_format=layout)  # type: ignore[call-overload]
    return network, noise.to(device=device, memory_format=layout)


def _block(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    # Statistics of the one image at hand: there is no other, and none is to be remembered.
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
        nn.BatchNorm2d(channels_out, track_running_stats=False),
        nn.LeakyReLU(0.2),
    )
