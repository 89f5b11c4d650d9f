"""GST, the variance network g_φ: how far each mask pixel may be from its calibration.

mask → CONV-ReLU-CONV-ReLU → H₀; two 1×1 CONVs → H₁, H₂; pixel graph E = H₁ᵀH₂ over the nodes
M = H₀; A = H₀ ⊙ (σ(E Mᵀ W) + 1); g = softplus(CONV(A)).

E has (HW)² entries and is never built: there is no softmax between the factors, so the product
is associative and `H₁ᵀ (H₂ Mᵀ / N) W` costs and holds only what is linear in the pixels. The
division by the number of nodes N makes the attention independent of the mask's size.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.backbones.srn import xavier_uniform
from prismask.models.layers.fused import conv3x3

WIDTH = 36
"""Feature channels: the size at which SRN + GST has the published 1.27 M parameters."""


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """A block in which autocast is off, on devices that have it at all."""
    if not _has_autocast(device.type):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, enabled=False)


def _has_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type)


# A compiler would break its graph at this call and compile the pieces anew. The mark says that the
# answer never changes; torch.compiler.assume_constant_result sets it too, but loads the compiler
# to do so, which takes a second.
_has_autocast._dynamo_marked_constant = True  # type: ignore[attr-defined]


class GraphAttention(nn.Module):
    """σ(E Mᵀ W) over the graph of all pixels, in linear cost."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_first = nn.Conv2d(width, width, 1)
        self.to_second = nn.Conv2d(width, width, 1)
        self.weight = nn.Linear(width, width, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """H₀ `(B, F, H, W)` → attention in (0, 1), same shape."""
        shape = features.shape
        nodes = features.flatten(2)  # M: (B, F, N)
        first = self.to_first(features).flatten(2)
        second = self.to_second(features).flatten(2)
        summary = second @ nodes.transpose(1, 2) / nodes.shape[-1]  # H₂ Mᵀ / N: (B, F, F)
        reasoned = first.transpose(1, 2) @ self.weight(summary)  # (B, N, F)
        return torch.sigmoid(reasoned).transpose(1, 2).reshape(shape)


class ConvAttention(nn.Module):
    """The ablation without graph: one convolution with more parameters in its place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv3x3(width, width)

    def forward(self, features: Tensor) -> Tensor:
        """H₀ `(B, F, H, W)` → attention in (0, 1), same shape."""
        return torch.sigmoid(self.conv(features))


class SelfTuning(nn.Module):
    """g_φ: a mask of any size → the standard deviation of each of its pixels."""

    def __init__(self, graph: bool = True, initial_std: float = 0.05, width: int = WIDTH) -> None:
        super().__init__()
        self.embed = nn.Sequential(conv3x3(1, width), nn.ReLU(), conv3x3(width, width), nn.ReLU())
        self.attention = GraphAttention(width) if graph else ConvAttention(width)
        self.to_std = conv3x3(width, 1)
        self.apply(xavier_uniform)
        # softplus(0) = 0.69 would drown a mask in [0, 1]: start where softplus gives initial_std.
        nn.init.constant_(self.to_std.bias, math.log(math.expm1(initial_std)))  # type: ignore[arg-type]

    def forward(self, mask: Tensor) -> Tensor:
        """`(B, 1|C, H, W)` → g of the same shape; every plane is looked at by itself.

        Never in half precision: g is small, and the graph sums over all pixels, which float16
        cannot hold.
        """
        planes = mask.reshape(-1, 1, *mask.shape[-2:])
        with full_precision(mask.device):
            features = self.embed(planes)
            raw = self.to_std(features * (self.attention(features) + 1))
            return F.softplus(raw).reshape(mask.shape)
