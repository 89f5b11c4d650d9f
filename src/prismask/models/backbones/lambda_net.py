"""λ-net: a U-Net with self-attention makes the cube, a second U-Net refines it.

The generator sees the measurement at each band's place and the mask; its attention lies where
the frame is a quarter of its size. The refinement adds a residual to the generator's cube.

Size. Published are 62.64 M parameters and 117.98 G multiply-adds. The authors refine one band at
a time with a narrower U-Net, which would cost 28 passes; that count only holds for one pass over
all bands, so this refines them together, with the widths 64 … 1024 that meet both numbers
(62.7 M, 118 G). Attention has eight heads of 32 numbers each instead of one head with eight
times shorter queries: as many operations, and a form that fused attention takes.

Training. The authors train the two stages one after the other, the first with intermediate
outputs; here one loss on the result trains both. The adversarial loss is `loss.adversarial` of a
training configuration and works for every backbone.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.layers import UNet, conv_relus, up_conv
from prismask.models.registry import register

HEADS = 8
LEVELS = 5
ATTENTION_LEVEL = 2
"""The level, counted from the top, whose decoder ends in self-attention: a quarter of the size."""


class SelfAttention(nn.Module):
    """x + attention between all pixels of `(B, C, H, W)`."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_parts = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, H, W)` → the same."""
        pixels = x.flatten(2).transpose(1, 2)
        parts = self.to_parts(pixels).reshape(*pixels.shape[:2], 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (B, heads, HW, D)
        attended = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.project(attended.transpose(1, 2).flatten(2))
        return x + out.transpose(1, 2).reshape(x.shape)


def conv_unet(
    planes: int, bands: int, width: int, convs: tuple[int, ...], attention: bool
) -> nn.Sequential:
    """A U-Net of plain convolutions, `convs` of them on each level from the top."""
    widths = [width * 2**level for level in range(LEVELS)]
    encoders = [
        conv_relus(before, here, count)
        for before, here, count in zip([planes, *widths], widths, convs, strict=False)
    ]
    ups, decoders = [], []
    for level in reversed(range(LEVELS - 1)):
        ups.append(up_conv(widths[level + 1], widths[level]))
        decoder = conv_relus(2 * widths[level], widths[level], convs[level])
        if attention and level == ATTENTION_LEVEL:
            decoder.append(SelfAttention(widths[level], HEADS))
        decoders.append(decoder)
    return nn.Sequential(UNet(encoders, ups, decoders), nn.Conv2d(width, bands, 1))


@register("lambda-net", paper="Miao et al. 2019, λ-net", inputs=("unsheared", "mask"), speed="fast")
class LambdaNet(nn.Module):
    """Two U-Nets in a row, the first with self-attention."""

    io_layers = ("*.0.encoders.0.0.*", "generator.1.*", "refinement.1.*")

    def __init__(self, planes: int, bands: int, width: int = 64) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError(f"lambda-net: width {width} must be even, for its {HEADS} heads.")
        self.generator = conv_unet(planes, bands, width, (3, 3, 2, 2, 2), attention=True)
        self.refinement = conv_unet(bands, bands, width, (2, 2, 2, 2, 2), attention=False)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)`."""
        cube: Tensor = self.generator(x)
        refined: Tensor = cube + self.refinement(cube)
        return refined
