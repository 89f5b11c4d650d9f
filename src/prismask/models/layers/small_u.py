"""A small U of residual blocks, as stages of an unrolled network have one each.

Blocks at full resolution, at half with twice the channels, and so on; what comes up is added to
what was kept. Dense 3×3 convolutions do nearly all of the work, because they are what a GPU does
best. Any size: frames are padded inside.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.layers.fused import conv3x3, conv_then_relu

BLOCK_START = 0.5
"""How large a new block's answer is beside its input, about."""


class Block(nn.Module):
    """x + CONV(ReLU(CONV(x))), the second convolution small at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv3x3(channels, channels)
        self.second = conv3x3(channels, channels)
        nn.init.normal_(self.second.weight, std=BLOCK_START / math.sqrt(9 * channels))
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        out: Tensor = x + self.second(conv_then_relu(self.first, x))
        return out


class Gate(nn.Module):
    """x + MIX(a ⊙ sigmoid(DEPTHWISE(b))): far neighbours decide which channels go on."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.split = nn.Conv2d(channels, 2 * channels, 1)
        self.around = nn.Conv2d(channels, channels, size, padding=size // 2, groups=channels)
        self.mix = nn.Conv2d(channels, channels, 1)
        nn.init.normal_(self.mix.weight, std=BLOCK_START / math.sqrt(channels))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        value, wide = self.split(x).chunk(2, dim=1)
        out: Tensor = x + self.mix(value * torch.sigmoid(self.around(wide)))
        return out


class Context(nn.Module):
    """x ⊙ (1 + tanh(MIX(mean of x))): what holds for the whole frame is known everywhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(channels, channels)
        nn.init.normal_(self.mix.weight, std=0.1 / math.sqrt(channels))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        scale = torch.tanh(self.mix(x.mean((-2, -1))))
        return x * (1 + scale[:, :, None, None]).to(x.dtype)


class SmallU(nn.Module):
    """`levels` resolutions with `blocks` blocks each on the way down and up.

    encode: False leaves out the blocks on the way down; what is kept for the way up is then the
        input at every resolution.
    widest: most channels of a level, which has twice those of the level above; 0: no limit.
    gate: side of the gate's window at the lowest level, odd; 0: no gate.
    context: whether the lowest level knows its mean over the frame.
    """

    def __init__(
        self,
        width: int,
        levels: int,
        blocks: int,
        gate: int = 0,
        context: bool = False,
        widest: int = 0,
        encode: bool = True,
    ) -> None:
        super().__init__()
        most = max(width, widest or width * 2**levels)
        widths = [min(width * 2**level, most) for level in range(levels)]
        steps = list(pairwise(widths))

        def row(channels: int) -> list[nn.Module]:
            return [Block(channels) for _ in range(blocks)]

        lowest: list[nn.Module] = [Gate(widths[-1], gate)] if gate else []
        lowest += [Context(widths[-1])] if context else []
        self.encoders = nn.ModuleList(
            nn.Sequential(*(row(channels) if encode else ())) for channels in widths[:-1]
        )
        self.downs = nn.ModuleList(nn.Conv2d(w, lower, 2, stride=2) for w, lower in steps)
        self.lowest = nn.Sequential(*lowest, *row(widths[-1]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(lower, w, 2, stride=2) for w, lower in steps)
        self.decoders = nn.ModuleList(nn.Sequential(*row(channels)) for channels in widths[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        height, width = x.shape[-2:]
        side = 2 ** len(self.downs)
        x = F.pad(x, (0, -width % side, 0, -height % side))
        kept = []
        for encode, down in zip(self.encoders, self.downs, strict=True):
            kept.append(encode(x))
            x = down(kept[-1])
        x = self.lowest(x)
        for up, decode in zip(reversed(self.ups), reversed(self.decoders), strict=True):
            x = decode(kept.pop() + up(x))
        return x[..., :height, :width]
