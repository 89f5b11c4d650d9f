"""SRN, the residual backbone f_θ of the paper (its v1: no rescaling pairs).

head CONV → 16 blocks x + CONV(ReLU(CONV(x))) → CONV, skip over all of it → tail CONV, all 3×3.
"""

from __future__ import annotations

from torch import Tensor, nn

from prismask.checks import choose
from prismask.models.layers import conv3x3, conv_aligned, conv_then_relu
from prismask.models.registry import register


class ResidualBlock(nn.Module):
    """x + CONV(ReLU(CONV(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = conv3x3(channels, channels)
        self.second = conv3x3(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, F, H, W)` → the same."""
        out: Tensor = self.second(conv_then_relu(self.first, x))
        # In its own place: another trip through memory costs a CPU half as much as a convolution.
        return out.add_(x) if out.dtype == x.dtype else out + x


@register(
    "srn", paper="Wang et al. 2021, SSI-ResU-Net v1", inputs=("backprojection",), speed="fast"
)
class SRN(nn.Module):
    """The lightweight residual network; 1,250,972 parameters at 28 bands.

    start: "xavier" (uniform, gain 1: the paper), under which sixteen blocks begin by enlarging
        their input about 25 times, or "torch" (smaller weights), which learns faster at first.
    """

    io_layers: tuple[str, ...] = ("head.*", "tail.*")

    def __init__(
        self, planes: int, bands: int, width: int = 64, blocks: int = 16, start: str = "xavier"
    ) -> None:
        super().__init__()
        choose(start, ("xavier", "torch"), "start of SRN")
        self.head = conv3x3(planes, width)
        self.body = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.after_body = conv3x3(width, width)
        self.tail = conv3x3(width, bands)
        if start == "xavier":
            self.apply(xavier_uniform)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, planes, H, W)` → cube `(B, C, H, W)`."""
        shallow = conv_aligned(self.head, x)
        return conv_aligned(self.tail, shallow + self.after_body(self.body(shallow)))


def xavier_uniform(module: nn.Module) -> None:
    """Xavier-uniform weights with gain 1 and zero biases, as the paper initialises."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.xavier_uniform_(module.weight, gain=1.0)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
