"""`optics.shear` by reading instead of writing, one gather each way.

Band λ moved by o = k + t (k whole, 0 ≤ t < 1) is read from where it came,

    y[v] = Σ_λ (1 − t_λ) · z_λ[v − k_λ] + t_λ · z_λ[v − k_λ − 1],

and 0 from beyond the ends. The transpose reads y the same way, and each is the other's gradient, so
nothing is ever scattered and a compiler can fuse all of it. Where a band lands is a number on the
device, `places (C,)` or `(B, C)` in pixels: compiled code has no offsets built in, and every step,
or every sample, may have others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def shear_sum(planes: Tensor, places: Tensor, length: int, power: int = 1) -> Tensor:
    """Shear every band to its place and sum: `(B, C, H, W)` → `(B, H, length)`.

    power: 2 squares the interpolation weights, for the diagonal of A Aᵀ.
    """
    found: Tensor = _Shear.apply(planes, places, length, power)  # type: ignore[no-untyped-call]
    return found


def unshear(image: Tensor, places: Tensor, width: int, power: int = 1) -> Tensor:
    """Cut each band's window back out: `(B, H, L)` → `(B, C, H, width)`."""
    found: Tensor = _Unshear.apply(image, places, width, power)  # type: ignore[no-untyped-call]
    return found


def _split(places: Tensor, dtype: torch.dtype, power: int) -> tuple[Tensor, Tensor, Tensor]:
    """Whole pixels `(B|1, C, 1, 1)`, and the weights of the two pixels that share a value."""
    # Compiled, all of this is done over for every value that is read: so no double precision that
    # nobody asked for, no eight-byte numbers, no power of one.
    rows = (places if places.ndim == 2 else places[None])[:, :, None, None].to(dtype)
    whole = rows.floor()
    rest = rows - whole
    near = 1 - rest
    weights = (near, rest) if power == 1 else (near**power, rest**power)
    return whole.to(torch.int32), *weights


def _read(values: Tensor, column: Tensor) -> Tensor:
    """`values (B, C, H, N)` at columns `(B|1, C, 1, M)`, 0 beyond the ends: `(B, C, H, M)`."""
    batch, bands, height, count = values.shape
    inside = (column >= 0) & (column < count)
    index = column.clamp(0, count - 1).long().expand(batch, bands, height, -1)
    return torch.where(inside, values.gather(-1, index), 0)


def _sheared(planes: Tensor, places: Tensor, length: int, power: int) -> Tensor:
    whole, near, far = _split(places, planes.dtype, power)
    column = torch.arange(length, device=planes.device, dtype=torch.int32) - whole
    return (near * _read(planes, column) + far * _read(planes, column - 1)).sum(1)


def _unsheared(image: Tensor, places: Tensor, width: int, power: int) -> Tensor:
    whole, near, far = _split(places, image.dtype, power)
    column = torch.arange(width, device=image.device, dtype=torch.int32) + whole
    rows = image[:, None].expand(-1, whole.shape[1], -1, -1)
    return near * _read(rows, column) + far * _read(rows, column + 1)


class _Shear(torch.autograd.Function):
    """Autograd would scatter; the transpose of shearing is unshearing, which gathers."""

    @staticmethod
    def forward(planes: Tensor, places: Tensor, length: int, power: int) -> Tensor:
        """The sheared sum."""
        return _sheared(planes, places, length, power)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how wide they are."""
        ctx.save_for_backward(inputs[1])
        ctx.width, ctx.power = inputs[0].shape[-1], inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        (places,) = ctx.saved_tensors
        return _Unshear.apply(gradient, places, ctx.width, ctx.power), None, None, None  # type: ignore[no-untyped-call]


class _Unshear(torch.autograd.Function):
    """The same the other way round."""

    @staticmethod
    def forward(image: Tensor, places: Tensor, width: int, power: int) -> Tensor:
        """The windows."""
        return _unsheared(image, places, width, power)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Where bands land, and how long the image is."""
        ctx.save_for_backward(inputs[1])
        ctx.length, ctx.power = inputs[0].shape[-1], inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The transpose."""
        (places,) = ctx.saved_tensors
        return _Shear.apply(gradient, places, ctx.length, ctx.power), None, None, None  # type: ignore[no-untyped-call]
