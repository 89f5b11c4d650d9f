"""TSA-Net: an encoder-decoder whose decoder looks along the width, the height and the spectrum.

The three attentions are computed apart: rows with rows, columns with columns, channels with
channels, each from tokens made of the other two axes, and applied one after the other to values
of which every head has its own. Spatial attention runs on frames of a quarter of the full size at
most; on the topmost level a fixed cosine adds that neighbouring bands are alike.

Any size. The published tokens are linear maps of whole rows, columns and planes of a 256×256
frame. Here rows and planes of another size are first averaged to the length they have there.

Size: 45.3 M parameters and 104.9 G multiply-adds at 28 bands, against published 44.25 M and 110.06
G. Convolutions in front of the spectral tokens keep the borders here, so that small frames have
tokens too, and those in front of the attention are 3×3, as in its authors' first version.

Norm. The published network normalises over the batch, which makes samples of a batch depend on
each other and running averages disagree with averaged weights; here each pixel is normalised by
itself, unless `norm="batch"` selects the original. The published loss is the root of the squared
error, `loss.kind = "rmse"`; the real-data variant of its authors adds a term on the spectrum's
slope, which is left out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.layers import ConvReLU, UNet, attend_few, conv_relus, make_norm, up_conv
from prismask.models.registry import register

SIDE = 256
"""Height and width of the frame the published tokens are made for."""
SMOOTHNESS_SCALE = 1.1
"""By whose root attention is divided where the cosine has been added."""


class Res2Block(nn.Module):
    """A residual of four quarters: each sees the one before through a convolution."""

    def __init__(self, channels: int, quarter: int, norm: str) -> None:
        super().__init__()
        self.widen = nn.Conv2d(channels, 4 * quarter, 1, bias=False)
        self.convs = nn.ModuleList(
            nn.Conv2d(quarter, quarter, 3, padding=1, bias=False) for _ in range(3)
        )
        self.join = nn.Conv2d(4 * quarter, channels, 1, bias=False)
        self.norms = nn.ModuleList(
            make_norm(norm, width) for width in (4 * quarter, *[quarter] * 3, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → the same."""
        first, *inner, last = self.norms
        quarters = F.relu(first(self.widen(x))).chunk(4, dim=1)
        passed, before = [], torch.zeros_like(quarters[0])
        for conv, norm, quarter in zip(self.convs, inner, quarters, strict=False):
            before = F.relu(norm(conv(quarter + before)))
            passed.append(before)
        joined: Tensor = last(self.join(torch.cat([*passed, quarters[3]], dim=1)))
        return F.relu(x + joined)


class RowTokens(nn.Module):
    """One token for each row of a frame and each head, made of the row's pixels.

    halved: whether the first and the second convolution also join every two rows.
    """

    def __init__(
        self, channels: int, heads: int, length: int, size: int, halved: list[bool], norm: str
    ) -> None:
        super().__init__()
        self.length = length
        self.convs = nn.Sequential()
        for joins in halved:
            kernel, stride, padding = (
                ((3, 5), (2, 2), (1, 2)) if joins else ((1, 5), (1, 2), (0, 2))
            )
            conv = nn.Conv2d(channels, heads, kernel, stride, padding)
            self.convs.extend([conv, make_norm(norm, heads), nn.ReLU()])
            channels = heads
        self.linear = nn.Linear(length, size)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → `(B, heads, rows, size)`."""
        features = self.convs(x)
        pooled = F.adaptive_avg_pool2d(features, (features.shape[-2], self.length))
        tokens: Tensor = self.linear(pooled)
        return tokens


class BandTokens(nn.Module):
    """One token for each channel and each head, made of the channel's plane."""

    def __init__(self, channels: int, heads: int, length: int, size: int, norm: str) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.convs = nn.Sequential()
        for _ in range(2):
            conv = nn.Conv2d(channels, channels, 5, stride=2, padding=2)
            self.convs.extend([conv, make_norm(norm, channels), nn.ReLU()])
        self.linear = nn.Linear(length**2, heads * size)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → `(B, heads, C, size)`."""
        pooled = F.adaptive_avg_pool2d(self.convs(x), (self.length, self.length))
        tokens: Tensor = self.linear(pooled.flatten(2))
        return tokens.reshape(*tokens.shape[:2], self.heads, -1).transpose(1, 2)


class TripleAttention(nn.Module):
    """x + attention along the rows, the columns and the channels, `(B, C, H, W)`.

    level: 0 at full size; values are halved so often that spatial attention runs at a quarter.
    """

    def __init__(
        self,
        channels_in: int,
        channels: int,
        level: int,
        heads: int,
        sizes: tuple[int, int],
        norm: str,
    ) -> None:
        super().__init__()
        self.heads, self.channels, self.is_topmost = heads, channels, level == 0
        halvings, length = 2 - level, SIDE // 2**level // 4
        halved = [number < halvings for number in range(2)]
        self.prepare = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, padding=1, bias=False), make_norm(norm, channels)
        )
        spatial, spectral = sizes
        rows = [RowTokens(channels, heads, length, spatial, halved, norm) for _ in range(4)]
        self.row_query, self.row_key, self.column_query, self.column_key = rows
        self.band_query = BandTokens(channels, heads, length, spectral, norm)
        self.band_key = BandTokens(channels, heads, length, spectral, norm)
        self.value = nn.Sequential(
            nn.Conv2d(channels, heads * channels, 1, bias=False), make_norm(norm, heads * channels)
        )
        self.narrow = nn.Sequential()
        for number in range(halvings):
            before, after = channels * 2**number, channels * 2 ** (number + 1)
            conv = nn.Conv2d(before, after, 3, stride=2, padding=1)
            self.narrow.extend([conv, make_norm(norm, after), nn.ReLU()])
        factor = 2**halvings
        self.widen: nn.Module = nn.Identity()
        if halvings:
            self.widen = nn.ConvTranspose2d(channels * factor, channels, factor, stride=factor)
        self.aggregate = nn.Conv2d(heads * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels_in, H, W)` → `(B, channels, H, W)`."""
        x = self.prepare(x)
        turned = x.transpose(-1, -2)
        values = self.narrow(self.value(x).reshape(-1, self.channels, *x.shape[-2:]))
        values = values.reshape(-1, self.heads, *values.shape[1:])  # (B, heads, C', h, w)
        values = _along_rows(values, self.row_query(x), self.row_key(x))
        values = values.transpose(-1, -2)
        values = _along_rows(values, self.column_query(turned), self.column_key(turned))
        values = values.transpose(-1, -2)
        values = self.widen(values.flatten(0, 1))[..., : x.shape[-2], : x.shape[-1]]
        values = values.reshape(x.shape[0], self.heads, self.channels, -1)
        values = self._along_bands(values, self.band_query(x), self.band_key(x))
        out: Tensor = x + self.aggregate(values.reshape(x.shape[0], -1, *x.shape[-2:]))
        return out

    def _along_bands(self, values: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """`(B, heads, C, HW)` → the same."""
        mixed = attend_few(query, key, values, query.shape[-1] ** -0.5)
        if not self.is_topmost:
            return mixed
        cosine = neighbouring_bands(self.channels, values)
        return (mixed + cosine @ values) / math.sqrt(SMOOTHNESS_SCALE)


def neighbouring_bands(bands: int, like: Tensor) -> Tensor:
    """`(C, C)`: half a cosine, from 1 for a band and itself to 0 for the first and the last."""
    band = torch.arange(bands, device=like.device, dtype=torch.float32)
    apart = (band[:, None] - band[None]) / max(bands - 1, 1)
    return ((torch.cos(math.pi * apart) + 1) / 2).to(like.dtype)


def _along_rows(values: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Mix the rows of `(B, heads, C, H, W)` by tokens `(B, heads, H, D)`."""
    rows = values.transpose(2, 3)  # (B, heads, H, C, W)
    mixed = attend_few(query, key, rows.flatten(3), query.shape[-1] ** -0.5)
    return mixed.reshape(rows.shape).transpose(2, 3)


@register("tsa-net", paper="Meng et al. 2020, TSA-Net", inputs=("backprojection",), speed="medium")
class TSANet(nn.Module):
    """Encoder-decoder with attention along rows, columns and bands."""

    io_layers = ("unet.encoders.0.0.*", "unet.decoders.3.2.*", "tail.*")

    def __init__(
        self, planes: int, bands: int, width: int = 64, heads: int = 8, norm: str = "layer"
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        encoders = [conv_relus(planes, widths[0], 2), conv_relus(widths[0], widths[1], 2)]
        for level in (2, 3):
            first = ConvReLU(widths[level - 1], widths[level])
            encoders.append(
                nn.Sequential(first, Res2Block(widths[level], widths[level] // 4, norm))
            )
        encoders.append(conv_relus(widths[3], widths[4], 2))
        sizes = {0: (48, 30), 1: (64, 40), 2: (64, 80)}
        ups, decoders = [], []
        for level in (3, 2, 1, 0):
            here = widths[level]
            ups.append(nn.Sequential(up_conv(widths[level + 1], here), nn.ReLU()))
            decoder = nn.Sequential(Res2Block(2 * here, here // 2, norm), ConvReLU(2 * here, here))
            if level in sizes:
                channels = here if level else bands
                decoder.append(TripleAttention(here, channels, level, heads, sizes[level], norm))
            decoders.append(decoder)
        self.unet = UNet(encoders, ups, decoders)
        self.tail = nn.Conv2d(bands, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)` in (0, 1)."""
        return torch.sigmoid(self.tail(self.unet(x)))
