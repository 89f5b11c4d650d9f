"""Small layers that several networks share."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose
from prismask.models.layers.fused import ALIGNMENT, conv3x3, conv_aligned, conv_then_relu


class ConvReLU(nn.Module):
    """ReLU(CONV(x)) with a 3×3 convolution, in one kernel where its channels allow it."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = conv3x3(channels_in, channels_out)
        self.is_aligned = not (channels_in % ALIGNMENT or channels_out % ALIGNMENT)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels_in, H, W)` → `(B, channels_out, H, W)`."""
        if self.is_aligned:
            return conv_then_relu(self.conv, x)
        return F.relu(conv_aligned(self.conv, x))


def conv_relus(channels_in: int, channels_out: int, count: int) -> nn.Sequential:
    """`count` convolutions in a row, the first of which changes the channels."""
    widths = [channels_in, *[channels_out] * count]
    return nn.Sequential(*(ConvReLU(before, after) for before, after in pairwise(widths)))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each pixel, of `(B, C, H, W)`.

    It sees neither the batch nor the frame: parts of a batch on several processes, averaged
    weights and tiles of a frame all give what the whole gives. PyTorch computes it in float32
    under autocast and with float32 sums otherwise.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → the same."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def make_norm(kind: str, channels: int) -> nn.Module:
    """ "layer" (each pixel by itself) or "batch" (over the batch, with running averages)."""
    choose(kind, ("layer", "batch"), "norm")
    return ChannelNorm(channels) if kind == "layer" else nn.BatchNorm2d(channels)


def attend_few(query: Tensor, key: Tensor, value: Tensor, scale: float | Tensor) -> Tensor:
    """softmax(scale · Q Kᵀ) V for few tokens with long values, `(…, T, D)` and `(…, T, L)`.

    This is attention over channels, rows or columns: tens of tokens, each a plane or a row of
    planes. PyTorch's fused attention keeps whole tokens of at most 256 numbers on chip and has
    nothing to gain where the T×T matrix is the smallest thing around; its fallback would copy
    the values to float32. Two matrix products and a small softmax are the fast form.
    """
    weights = torch.softmax(query @ key.transpose(-1, -2) * scale, dim=-1)
    return weights.to(value.dtype) @ value
