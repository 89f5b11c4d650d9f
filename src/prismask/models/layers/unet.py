"""The U shape: down by two, down by two, …, and up again beside what was kept on the way.

What happens on each level is given; this only leads through it. Any size works: halves are
rounded up, and what comes back up is cut to the size it has to meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose


class UNet(nn.Module):
    """`encoders` from the top to the bottom, `ups` and `decoders` from the bottom to the top.

    A decoder sees what was kept on its level and what came up, side by side in the channels. The
    topmost may return anything.
    """

    def __init__(
        self,
        encoders: Sequence[nn.Module],
        ups: Sequence[nn.Module],
        decoders: Sequence[nn.Module],
        pool: str = "max",
    ) -> None:
        super().__init__()
        choose(pool, ("max", "mean"), "pool")
        self.encoders = nn.ModuleList(encoders)
        self.ups = nn.ModuleList(ups)
        self.decoders = nn.ModuleList(decoders)
        self.pool = pool

    def forward(self, x: Tensor) -> Any:
        """`(B, channels, H, W)` → what the topmost decoder returns."""
        kept = []
        for encode in self.encoders[:-1]:
            kept.append(encode(x))
            x = self._halved(kept[-1])
        x = self.encoders[-1](x)
        for up, decode in zip(self.ups, self.decoders, strict=True):
            beside = kept.pop()
            height, width = beside.shape[-2:]
            x = decode(torch.cat([beside, up(x)[..., :height, :width]], dim=1))
        return x

    def _halved(self, x: Tensor) -> Tensor:
        if self.pool == "max":
            return F.max_pool2d(x, 2, ceil_mode=True)
        return F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)


def up_conv(channels_in: int, channels_out: int) -> nn.ConvTranspose2d:
    """Twice the size by a learned 2×2 stamp."""
    return nn.ConvTranspose2d(channels_in, channels_out, 2, stride=2)
