"""Convolutions in the shape the GPU likes, computing exactly what the plain ones compute.

Two things cost time around a convolution on tensor cores. Channel counts that are not multiples
of eight take a slow path: `conv_aligned` pads with zeros, which changes no result. And bias and
ReLU are another trip through memory: `conv_relu` lets cuDNN do them inside the convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
