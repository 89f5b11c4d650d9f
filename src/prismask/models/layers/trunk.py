"""The frame around transformer layers: CONV, groups of layers with skips, CONV, skip, CONV.

Layers see a frame as `(B, H, W, C)`; with channels last in memory the convolutions between them
see the same numbers as `(B, C, H, W)`, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from prismask.models.layers.fused import conv3x3, conv_aligned


class Group(nn.Module):
    """x + CONV(layers(x))."""

    def __init__(self, width: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.conv = conv3x3(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        return x + _convolved(self.conv, self.layers(x))


class Trunk(nn.Module):
    """`(B, planes, H, W)` → `(B, bands, H, W)` through `groups` of `layers` layers.

    make_layer: builds the layer with that number in its group.
    """

    def __init__(
        self,
        planes: int,
        bands: int,
        width: int,
        groups: int,
        layers: int,
        make_layer: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        self.head = conv3x3(planes, width)
        self.groups = nn.Sequential(
            *(Group(width, [make_layer(number) for number in range(layers)]) for _ in range(groups))
        )
        self.norm = nn.LayerNorm(width)
        self.after_body = conv3x3(width, width)
        self.tail = conv3x3(width, bands)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → `(B, bands, H, W)`."""
        shallow = conv_aligned(self.head, x.contiguous(memory_format=torch.channels_last))
        deep = self.norm(self.groups(shallow.permute(0, 2, 3, 1)))
        deep = _convolved(self.after_body, deep).permute(0, 3, 1, 2)
        return conv_aligned(self.tail, shallow + deep)


class FeedForward(nn.Sequential):
    """Two linear layers on every pixel with a GELU between."""

    def __init__(self, width: int, expansion: int) -> None:
        super().__init__(
            nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width)
        )


def _convolved(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """A convolution of `(B, H, W, C)`."""
    return conv_aligned(conv, x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
