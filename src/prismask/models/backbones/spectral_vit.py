"""Spectral ViT: attention between channels instead of pixels, after XCiT.

A token is the plane of one channel; X = V softmax(Kᵀ Q / δ) with planes of norm one and a
learned δ for each head. The paper puts this in the place of SwinIR's window attention, so the
rest is SwinIR's: 4 groups of 6 layers, embedding 60, 6 heads. Attention between channels moves
nothing from pixel to pixel; XCiT adds two small depthwise convolutions to every layer for that,
and so does this. Its cost is linear in the pixels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.layers import FeedForward, Trunk, attend_few
from prismask.models.registry import register


class ChannelAttention(nn.Module):
    """Multi-head self-attention between the channels of `(B, H, W, C)`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_parts = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.sharpness = nn.Parameter(torch.ones(heads, 1, 1))  # 1/δ

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        batch, height, width, _ = x.shape
        parts = self.to_parts(x).reshape(batch, height * width, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 4, 1)  # each (B, heads, D, HW)
        attended = attend_few(_unit(query), _unit(key), value, self.sharpness)
        out: Tensor = self.project(attended.permute(0, 3, 1, 2).reshape(x.shape))
        return out


def _unit(planes: Tensor) -> Tensor:
    """Planes of norm one: their products stay in [−1, 1], which half precision can hold."""
    norm = torch.linalg.vector_norm(planes, dim=-1, keepdim=True, dtype=torch.float32)
    unit: Tensor = planes * norm.clamp_min(1e-6).reciprocal().to(planes.dtype)
    return unit


class Neighbours(nn.Module):
    """Two depthwise 3×3 convolutions with a GELU between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.second = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        out: Tensor = self.second(F.gelu(self.first(x.permute(0, 3, 1, 2))))
        return out.permute(0, 2, 3, 1)


class ChannelLayer(nn.Module):
    """x + attention(norm(x)), x + neighbours(norm(x)), x + MLP(norm(x))."""

    def __init__(self, width: int, heads: int, expansion: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            (ChannelAttention(width, heads), Neighbours(width), FeedForward(width, expansion))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.parts)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        for norm, part in zip(self.norms, self.parts, strict=True):
            x = x + part(norm(x))
        return x


@register(
    "spectral-vit", paper="El-Nouby et al. 2021, XCiT", inputs=("backprojection",), speed="slow"
)
class SpectralViT(nn.Module):
    """Transformer with attention between channels, linear in the pixels."""

    compiled_alone = (ChannelLayer,)
    io_layers = ("trunk.head.*", "trunk.tail.*", "*.sharpness", "*.parts.1.*")

    def __init__(
        self,
        planes: int,
        bands: int,
        width: int = 60,
        groups: int = 4,
        layers: int = 6,
        heads: int = 6,
        expansion: int = 2,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"spectral-vit: width {width} must be a multiple of heads {heads}.")
        self.trunk = Trunk(
            planes, bands, width, groups, layers, lambda _: ChannelLayer(width, heads, expansion)
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)`."""
        out: Tensor = self.trunk(x)
        return out
