"""Small layers that several networks share."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose
from prismask.models.fused import ALIGNMENT, conv_aligned, conv_then_relu
from prismask.models.srn import conv3x3

FEW_CHANNELS = 256
"""Up to here PyTorch's layer norm leaves most of a GPU idle."""


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


class PixelNorm(nn.LayerNorm):
    """Layer norm over the last axis, the channels of each pixel of `(B, H, W, C)`.

    It sees neither the batch nor the frame: parts of a batch on several processes, averaged
    weights and tiles of a frame all give what the whole gives. PyTorch computes it in float32
    under autocast and with float32 sums otherwise. Its CUDA kernel spends a block of threads on
    every pixel, of which a few tens of channels keep two or three busy; written out, the same is
    several times faster where no compiler does that and no gradient has to be kept.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)

    def forward(self, x: Tensor) -> Tensor:
        """`(…, C)` → the same."""
        by_hand = x.is_cuda and not torch.is_grad_enabled() and x.shape[-1] <= FEW_CHANNELS
        if by_hand and not torch.compiler.is_compiling():
            return written_out_norm(x, self.weight, self.bias, self.eps)
        return super().forward(x)


def written_out_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """`weight · (x − mean) / sqrt(variance + eps) + bias` over the last axis."""
    centred = x - x.mean(-1, keepdim=True)
    exact = torch.promote_types(x.dtype, torch.float32)
    length = torch.linalg.vector_norm(centred, dim=-1, keepdim=True, dtype=exact)
    scale = torch.rsqrt(length.square() / x.shape[-1] + eps).to(x.dtype)
    return torch.addcmul(bias, centred * scale, weight)


class ChannelNorm(PixelNorm):
    """The same of `(B, C, H, W)`."""

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
