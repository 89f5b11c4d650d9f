"""SwinIR: residual groups of transformer layers that look around inside shifted windows.

CONV → 4 groups of 6 layers, embedding 60, 6 heads, windows of 8×8 → CONV, skip → CONV. Every
other layer shifts its windows by half of one. The mask ensemble's strongest backbone in the
paper; its description leaves the MLP's width open, twice the embedding is SwinIR's lightweight
setting, to which the other numbers belong.
"""

from __future__ import annotations

from torch import Tensor, nn

from prismask.errors import ConfigError
from prismask.models.layers.trunk import FeedForward, Trunk
from prismask.models.layers.windows import WindowAttention, pad_to_windows
from prismask.models.registry import register


class WindowLayer(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, width: int, heads: int, window: int, shift: int, expansion: int) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window, shift)
        self.second_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, expansion)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        x = x + self.attention(self.first_norm(x))
        out: Tensor = x + self.feed_forward(self.second_norm(x))
        return out


@register("swinir", paper="Liang et al. 2021, SwinIR", inputs=("backprojection",), speed="slow")
class SwinIR(nn.Module):
    """Transformer with attention between the pixels of shifted windows."""

    compiled_alone = (WindowLayer,)
    io_layers = ("trunk.head.*", "trunk.tail.*", "*.position_scores")

    def __init__(
        self,
        planes: int,
        bands: int,
        width: int = 60,
        groups: int = 4,
        layers: int = 6,
        heads: int = 6,
        window: int = 8,
        expansion: int = 2,
    ) -> None:
        super().__init__()
        if width % heads or window < 2:
            raise ConfigError(
                f"swinir: width {width} must be a multiple of heads {heads}, and the window "
                f"({window}) at least 2."
            )
        self.window = window

        def layer(number: int) -> nn.Module:
            return WindowLayer(width, heads, window, (window // 2) * (number % 2), expansion)

        self.trunk = Trunk(planes, bands, width, groups, layers, layer)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)`."""
        out: Tensor = self.trunk(pad_to_windows(x, self.window))
        return out[..., : x.shape[-2], : x.shape[-1]]
