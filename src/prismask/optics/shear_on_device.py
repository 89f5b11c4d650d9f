"""`optics.shear` for offsets that are numbers on the device instead of constants.

Compiled code has the offsets of a camera built in; here they are read from tensors, so that they
may be others in the next step: `whole (C,)` pixels and the `rest (C,)` of a pixel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def shear_sum(planes: Tensor, whole: Tensor, rest: Tensor, length: int) -> Tensor:
    """Shear every band by its offset and sum: `(B, C, H, W)` → `(B, H, length)`."""
    found: Tensor = _Shear.apply(planes, whole, rest, length)  # type: ignore[no-untyped-call]
    return found


def unshear(image: Tensor, whole: Tensor, rest: Tensor, width: int) -> Tensor:
    """Cut each band's window back out: `(B, H, L)` → `(B, C, H, width)`."""
    found: Tensor = _Unshear.apply(image, whole, rest, width)  # type: ignore[no-untyped-call]
    return found


def _sheared(planes: Tensor, whole: Tensor, rest: Tensor, length: int) -> Tensor:
    """Σ_λ of planes `(B, C, H, W)` at their offsets, `(B, H, length)`."""
    batch, bands, height, width = planes.shape
    # A column of zeros on either side stands for everything beyond.
    padded = F.pad(planes, (1, 1))
    column = torch.arange(length, device=planes.device)[None] - whole[:, None] + 1
    size = (batch, bands, height, length)
    near, far = (
        padded.gather(-1, at.clamp(0, width + 1)[None, :, None].expand(size))
        for at in (column, column - 1)
    )
    share = rest.to(planes.dtype)[None, :, None, None]
    return ((1 - share) * near + share * far).sum(1)


def _unsheared(image: Tensor, whole: Tensor, rest: Tensor, width: int) -> Tensor:
    """The windows of image `(B, H, L)`, `(B, C, H, width)`."""
    batch, height, length = image.shape
    bands = whole.shape[0]
    column = torch.arange(width, device=image.device)[None] + whole[:, None]
    rows = F.pad(image, (0, 1))[:, None].expand(-1, bands, -1, -1)
    size = (batch, bands, height, width)
    near, far = (
        rows.gather(-1, at.clamp(0, length)[None, :, None].expand(size))
        for at in (column, column + 1)
    )
    share = rest.to(image.dtype)[None, :, None, None]
    return (1 - share) * near + share * far


class _Shear(torch.autograd.Function):
    """Autograd would scatter; the transpose of shearing is unshearing, which gathers."""

    @staticmethod
    def forward(planes: Tensor, whole: Tensor, rest: Tensor, length: int) -> Tensor:
        """The sheared sum."""
        return _sheared(planes, whole, rest, length)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how wide they are."""
        ctx.save_for_backward(inputs[1], inputs[2])
        ctx.width = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        whole, rest = ctx.saved_tensors
        return _unsheared(gradient, whole, rest, ctx.width), None, None, None


class _Unshear(torch.autograd.Function):
    """The same the other way round."""

    @staticmethod
    def forward(image: Tensor, whole: Tensor, rest: Tensor, width: int) -> Tensor:
        """The windows."""
        return _unsheared(image, whole, rest, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how long the image is."""
        ctx.save_for_backward(inputs[1], inputs[2])
        ctx.length = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        whole, rest = ctx.saved_tensors
        return _sheared(gradient, whole, rest, ctx.length), None, None, None
