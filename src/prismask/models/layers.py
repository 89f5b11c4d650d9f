"""Building blocks that several networks share: convolutions, the U, the trunk, the unfolded step.

Convolutions compute exactly what plain ones compute, in the shape that tensor cores like: channel
counts that are no multiples of eight take a slow path, so `conv_aligned` pads with zeros; bias and
ReLU are another trip through memory, so `conv_relu` lets cuDNN do them inside the convolution.

The U takes any size: halves are rounded up, and what comes back up is cut to the size it has to
meet. The trunk is the frame around transformer layers, which see a frame as `(B, H, W, C)`: with
channels last in memory that is no copy of what the convolutions see. Unfolded networks are called
with the camera and keep their estimate in float32 however the convolutions compute: the difference
between a measurement and its prediction is small, and half precision would round it away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.checks import choose
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI

ALIGNMENT = 8
"""Channels that half-precision tensor-core convolutions come in multiples of."""


def conv3x3(channels_in: int, channels_out: int) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size."""
    return nn.Conv2d(channels_in, channels_out, 3, padding=1)


def uses_tensor_cores(x: Tensor) -> bool:
    """Whether `x` is about to be convolved in half precision on a GPU."""
    if x.device.type != "cuda":
        return False
    return x.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled("cuda")


def conv_aligned(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`conv(x)`, with channels padded by zeros to multiples of eight where that is faster."""
    more_in = -conv.in_channels % ALIGNMENT
    more_out = -conv.out_channels % ALIGNMENT
    if not uses_tensor_cores(x) or not (more_in or more_out):
        out: Tensor = conv(x)
        return out
    weight = F.pad(conv.weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
    bias = None if conv.bias is None else F.pad(conv.bias, (0, more_out))
    padded = F.pad(x, (0, 0, 0, 0, 0, more_in))
    return F.conv2d(padded, weight, bias, padding=1)[:, : conv.out_channels]


def conv_then_relu(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`relu(conv(x))` for a 3×3 convolution with padding 1, in one kernel where cuDNN has it."""
    if not uses_tensor_cores(x) or conv.bias is None:
        return F.relu(conv(x), inplace=True)
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    fused: Tensor = _conv_relu(x.to(dtype), conv.weight.to(dtype), conv.bias.to(dtype))
    return fused


@torch.library.custom_op("prismask::conv_relu", mutates_args=())
def _conv_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.device.type == "cuda":
        return torch.cudnn_convolution_relu(x, weight, bias, (1, 1), (1, 1), (1, 1), 1)
    return F.relu(F.conv2d(x, weight, bias, padding=1))


@_conv_relu.register_fake
def _conv_relu_shape(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(x, weight, bias, padding=1)


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
    x, weight, output = ctx.saved_tensors
    through = torch.where(output > 0, gradient, 0)
    wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], False]
    to_x, to_weight, _ = torch.ops.aten.convolution_backward(
        through, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted
    )
    to_bias = through.sum((0, 2, 3), dtype=torch.float32).to(gradient.dtype)
    return to_x, to_weight, to_bias


_conv_relu.register_autograd(_gradients, setup_context=_remember)


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


class UNet(nn.Module):
    """`encoders` from the top to the bottom, `ups` and `decoders` from the bottom to the top.

    A decoder sees what was kept on its level and what came up, side by side in the channels. The
    topmost may return anything.
    """

    def __init__(
        self,
        encoders: Sequence[nn.Module],
        ups: Sequence[nn.Module],
        decoders: Sequence[nn.Module],
        pool: str = "max",
    ) -> None:
        super().__init__()
        choose(pool, ("max", "mean"), "pool")
        self.encoders = nn.ModuleList(encoders)
        self.ups = nn.ModuleList(ups)
        self.decoders = nn.ModuleList(decoders)
        self.pool = pool

    def forward(self, x: Tensor) -> Any:
        """`(B, channels, H, W)` → what the topmost decoder returns."""
        kept = []
        for encode in self.encoders[:-1]:
            kept.append(encode(x))
            x = self._halved(kept[-1])
        x = self.encoders[-1](x)
        for up, decode in zip(self.ups, self.decoders, strict=True):
            beside = kept.pop()
            height, width = beside.shape[-2:]
            x = decode(torch.cat([beside, up(x)[..., :height, :width]], dim=1))
        return x

    def _halved(self, x: Tensor) -> Tensor:
        if self.pool == "max":
            return F.max_pool2d(x, 2, ceil_mode=True)
        return F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)


def up_conv(channels_in: int, channels_out: int) -> nn.ConvTranspose2d:
    """Twice the size by a learned 2×2 stamp."""
    return nn.ConvTranspose2d(channels_in, channels_out, 2, stride=2)


class Unfolded(nn.Module):
    """An iteration as a network: `(x, measurement, mask, camera)` → cube `(B, C, H, W)`."""

    wants_physics = True

    def __init__(self, planes: int, bands: int) -> None:
        super().__init__()
        # Other inputs than one plane per band, such as those of a `+` variant, need a first guess.
        self.first_guess = nn.Identity() if planes == bands else conv3x3(planes, bands)

    def start(self, x: Tensor) -> Tensor:
        """The first estimate from the input planes, float32."""
        guess: Tensor = self.first_guess(x)
        return guess.float()


def in_dtype_of(weights: nn.Module, x: Tensor) -> Tensor:
    """`x` as a network with these weights takes it; autocast and float32 need no change."""
    return x.to(next(weights.parameters()).dtype)


def misfit(estimate: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """`(2/C) · (A x − y)`, `(B, H, L)`: scaled so that Aᵀ of it is a step of about the right size.

    A Aᵀ grows with the bands (its diagonal is Σ_λ m² ≤ C); with the networks' usual factor 2/C a
    step width of about one is right for every camera.
    """
    return (camera.forward(estimate, mask) - measurement) * network_scale(camera.bands)


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
