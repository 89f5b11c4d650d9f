"""SwinIR: residual groups of transformer layers that look around inside shifted windows.

CONV → 4 groups of 6 layers, embedding 60, 6 heads, windows of 8×8 → CONV, skip → CONV. Every
other layer shifts its windows by half of one. The mask ensemble's strongest backbone in the
paper; its description leaves the MLP's width open, twice the embedding is SwinIR's lightweight
setting, to which the other numbers belong.

A shifted frame is rolled, so its last windows hold pixels from opposite borders; those may not
look at each other. Windows and heads share one axis in the fused attention, so that the table of
positions is stored once for the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.layers import ALIGNMENT, FeedForward, Trunk, uses_tensor_cores
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


Size = tuple[int, int]
"""Height and width of a frame."""

APART = -100.0
"""Added to the score of two pixels that may not look at each other; exp(−100) is no weight."""
WINDOWS_AT_ONCE = 1024
"""Windows of one attention call: bounds the table of positions, which every window needs."""


def to_windows(x: Tensor, window: int, heads: int) -> Tensor:
    """`(B, H, W, heads·D)` → `(B, N·heads, window², D)`, N windows in reading order."""
    batch, height, width, _ = x.shape
    x = x.reshape(batch, height // window, window, width // window, window, heads, -1)
    return x.permute(0, 1, 3, 5, 2, 4, 6).reshape(batch, -1, window * window, x.shape[-1])


def from_windows(x: Tensor, window: int, heads: int, size: Size) -> Tensor:
    """The inverse of `to_windows` for a frame of `size`."""
    rows, columns = size[0] // window, size[1] // window
    x = x.reshape(x.shape[0], rows, columns, heads, window, window, -1)
    return x.permute(0, 1, 4, 2, 5, 3, 6).reshape(x.shape[0], *size, -1)


def pad_to_windows(x: Tensor, window: int) -> Tensor:
    """Repeat the lower and right border of `(B, C, H, W)` until windows fill the frame."""
    down, right = -x.shape[-2] % window, -x.shape[-1] % window
    return F.pad(x, (0, right, 0, down), mode="replicate") if down or right else x


def shifted_window_mask(size: Size, window: int, shift: int, like: Tensor) -> Tensor:
    """`(N, window², window²)`: 0 for pixels from one side of the frame, else APART.

    The frame has been rolled by `−shift`: its last `shift` rows and columns come from the top
    and the left.
    """
    from_above, from_left = (
        torch.arange(length, device=like.device) >= length - shift for length in size
    )
    side = 2 * from_above[:, None] + from_left[None].long()
    side = to_windows(side[None, :, :, None], window, 1)[0, :, :, 0]
    apart = side[:, :, None] != side[:, None, :]
    return torch.zeros_like(apart, dtype=like.dtype).masked_fill(apart, APART)


def relative_positions(window: int) -> Tensor:
    """`(window², window²)`: which entry of the table belongs to each pair of pixels."""
    place = torch.arange(window)
    rows, columns = (grid.flatten() for grid in torch.meshgrid(place, place, indexing="ij"))
    down = rows[:, None] - rows[None] + window - 1
    across = columns[:, None] - columns[None] + window - 1
    return down * (2 * window - 1) + across


class WindowAttention(nn.Module):
    """Multi-head self-attention of `(B, H, W, C)` inside windows, with learned position scores.

    H and W are multiples of the window.
    """

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.width, self.heads, self.window, self.shift = width, heads, window, shift
        self.to_parts = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.position_scores = nn.Parameter(torch.empty(heads, (2 * window - 1) ** 2))
        nn.init.trunc_normal_(self.position_scores, std=0.02)
        self.register_buffer("positions", relative_positions(window), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, H, W, C)` → the same."""
        size = (x.shape[1], x.shape[2])
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        # Fused kernels want heads of a multiple of eight numbers. Zeros change no score, and
        # padding the weights instead of the result makes them free.
        more = -(self.width // self.heads) % ALIGNMENT if uses_tensor_cores(x) else 0
        parts = F.linear(x, *self._padded_parts(more)).chunk(3, dim=-1)
        query, key, value = (to_windows(part, self.window, self.heads) for part in parts)
        attended = from_windows(
            self._attend(query, key, value, size), self.window, self.heads, size
        )
        out = F.linear(attended, self._padded_projection(more), self.project.bias)
        return torch.roll(out, (self.shift, self.shift), (1, 2)) if self.shift else out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, size: Size) -> Tensor:
        """`(B, N·heads, window², D)`, a bounded number of windows at a time."""
        scale = (self.width // self.heads) ** -0.5
        scores = self.position_scores[:, self.positions]  # type: ignore[index]  # a buffer
        apart = shifted_window_mask(size, self.window, self.shift, scores) if self.shift else None
        windows, step, results = query.shape[1] // self.heads, WINDOWS_AT_ONCE, []
        for first in range(0, windows, step):
            last = min(first + step, windows)
            table = scores.expand(last - first, -1, -1, -1)
            if apart is not None:
                table = table + apart[first:last, None]
            piece = slice(first * self.heads, last * self.heads)
            results.append(
                F.scaled_dot_product_attention(
                    query[:, piece],
                    key[:, piece],
                    value[:, piece],
                    attn_mask=table.flatten(0, 1)[None],
                    scale=scale,
                )
            )
        return results[0] if len(results) == 1 else torch.cat(results, dim=1)

    def _padded_parts(self, more: int) -> tuple[Tensor, Tensor]:
        weight, bias = self.to_parts.weight, self.to_parts.bias
        if not more:
            return weight, bias
        per_head = weight.view(3 * self.heads, -1, self.width)
        weight = F.pad(per_head, (0, 0, 0, more)).flatten(0, 1)
        return weight, F.pad(bias.view(3 * self.heads, -1), (0, more)).flatten()

    def _padded_projection(self, more: int) -> Tensor:
        weight = self.project.weight
        if not more:
            return weight
        return F.pad(weight.view(self.width, self.heads, -1), (0, more)).flatten(1)
