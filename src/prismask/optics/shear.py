"""Where each band lands on the sensor, and shearing bands apart and summing them.

Offsets in pixels come from what people know of their prism. The functions of its two halves work on
the last axis. A band λ with offset `o = k + t` (k whole, 0 ≤ t < 1) is moved by linear
interpolation,

    shear_λ(u)[v] = (1 − t) · u[v − k] + t · u[v − k − 1],

and `unshear` is the exact transpose of that, so the pair passes ⟨S u, y⟩ = ⟨u, Sᵀ y⟩ to rounding.
Equal whole steps, the common case, run as strided views without a loop over the bands. Other
offsets go band by band through a CPU's cache, and by one gather on other devices, where every band
would be kernels of its own.

The gather (`gathered_shear_sum`, `gathered_unshear`) reads instead of writing: a moved band is read
from where it came,

    y[v] = Σ_λ (1 − t_λ) · z_λ[v − k_λ] + t_λ · z_λ[v − k_λ − 1],

and 0 from beyond the ends. The transpose reads y the same way, and each is the other's gradient, so
nothing is ever scattered and a compiler can fuse all of it. Where a band lands is a number on the
device, `places (C,)` or `(B, C)` in pixels: compiled code has no offsets built in, and every step,
or every sample, may have others.

A graph that is exported (`inference.export`) has one camera for good and nobody to compile it, so
it reads with two fixed tables of columns, `(C, W)` and `(C, L)`: no loop, nothing scattered, and no
index as large as the cube.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.scenes.defaults import BANDS, STEP

BLOCK = 2**15 - 1
"""Values of a band that are worked on at a time; from one more on, torch starts threads."""
EXACT = (torch.float32, torch.float64)
"""Types in which a sum over the bands may be rounded after every one of them."""
Offsets = tuple[float, ...]
"""Displacement of each band in pixels; the smallest is 0."""


def shear_extent(offsets: Offsets) -> int:
    """How many pixels the sheared image is wider than the scene."""
    return math.ceil(max(offsets))


def whole_step(offsets: Offsets) -> int | None:
    """The common whole step between bands (negative when they run backwards), or None."""
    if len(offsets) == 1:
        return 0 if offsets[0] == 0 else None
    step = offsets[1] - offsets[0]
    if step != int(step):
        return None
    start = offsets[0]
    equal = all(offset == start + step * band for band, offset in enumerate(offsets))
    return int(step) if equal else None


def shear_sum(planes: Tensor, offsets: Offsets) -> Tensor:
    """Shear every band by its offset and sum: `(B, C, H, W)` → `(B, H, W + extent)`."""
    step = whole_step(offsets)
    if step is None:
        return _shear_sum_anyhow(planes, None, offsets, power=1)
    if step == 0:
        return planes.sum(1)
    if step < 0:
        planes, step = planes.flip(1), -step
    bands, width = planes.shape[1], planes.shape[-1]
    length = width + step * (bands - 1)
    # A row padded to length + step, read again with rows of `length`, starts `step` later in
    # every band: the shear is a reinterpretation of memory, and one sum does the rest.
    padded = F.pad(planes.permute(0, 2, 1, 3), (0, length + step - width))
    return _sum_reread(padded, bands, length)


def masked_shear_sum(cube: Tensor, mask: Tensor, offsets: Offsets) -> Tensor:
    """`shear_sum(cube * mask)`; without autograd the product lands in the sheared rows at once."""
    step = whole_step(offsets)
    if step is None:
        return _shear_sum_anyhow(cube, mask, offsets, power=1)
    # Writing into a part of a tensor is what autograd cannot follow and a compiler fuses better.
    if step <= 0 or _is_followed(cube, mask):
        return shear_sum(cube * mask, offsets)
    batch = max(cube.shape[0], mask.shape[0])
    bands, height, width = cube.shape[1:]
    length = width + step * (bands - 1)
    dtype = torch.promote_types(cube.dtype, mask.dtype)
    rows = torch.empty(batch, height, bands, length + step, dtype=dtype, device=cube.device)
    rows[..., width:].zero_()
    torch.mul(
        cube.permute(0, 2, 1, 3).expand(batch, height, bands, width),
        mask.permute(0, 2, 1, 3).expand(batch, height, bands, width),
        out=rows[..., :width],
    )
    return _sum_reread(rows, bands, length)


def unshear(image: Tensor, offsets: Offsets, width: int) -> Tensor:
    """Cut each band's window back out: `(B, H, W + extent)` → `(B, C, H, W)`.

    With equal whole steps the result is a view of `image`, not a copy: do not write into it.
    """
    if whole_step(offsets) is None:
        if torch.compiler.is_exporting():
            return _unshear_by_table(image, offsets, width)
        if _gathers(image):
            return gathered_unshear(image, _places(offsets, image.device), width)
        return torch.stack([_window(image, offset, width) for offset in offsets], dim=1)
    if torch.is_grad_enabled() and image.requires_grad:
        windows: Tensor = _Windows.apply(image, offsets, width)  # type: ignore[no-untyped-call]
        return windows
    return _windows(image, offsets, width)


def masked_unshear(image: Tensor, mask: Tensor, offsets: Offsets, width: int) -> Tensor:
    """`unshear(image) * mask (B|1, 1|C, H, W)`; without autograd no band is written twice."""
    step = whole_step(offsets)
    if (step is not None and step >= 0) or not _goes_by_band(image, mask):
        return unshear(image, offsets, width) * mask
    batch, height = max(image.shape[0], mask.shape[0]), image.shape[1]
    dtype = torch.promote_types(image.dtype, mask.dtype)
    cube = _like(image, (batch, len(offsets), height, width), dtype)
    for rows in _blocks(cube):
        for band, offset in enumerate(offsets):
            window, code = _window(image[:, rows], offset, width), _of_band(mask, band)
            torch.mul(window, code[:, rows], out=cube[:, band, rows])
    return cube


def _windows(image: Tensor, offsets: Offsets, width: int) -> Tensor:
    """Whole windows of `image (B, H, L)`, a view `(B, C, H, W)`."""
    step = whole_step(offsets)
    assert step is not None
    if step == 0:
        return image.unsqueeze(1).expand(-1, len(offsets), -1, -1)
    windows = image.unfold(-1, width, abs(step)).permute(0, 2, 1, 3)
    return windows.flip(1) if step < 0 else windows


class _Windows(torch.autograd.Function):
    """`_windows` that knows its gradient: the transpose of unshearing is shearing.

    Autograd would scatter every window back by itself, which is slow, and is not fused with what
    is around it by a compiler.
    """

    @staticmethod
    def forward(image: Tensor, offsets: Offsets, width: int) -> Tensor:
        """The windows."""
        return _windows(image, offsets, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing but the offsets is needed backwards."""
        ctx.offsets = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Windows laid over each other again, `(B, C, H, W)` → `(B, H, L)`."""
        return shear_sum(gradient, ctx.offsets), None, None


def unshear_bands(planes: Tensor, offsets: Offsets, width: int) -> Tensor:
    """Like `unshear`, from one sheared image per band: `(B, C, H, W + extent)` → `(B, C, H, W)`."""
    pairs = zip(planes.unbind(1), offsets, strict=True)
    return torch.stack([_window(plane, offset, width) for plane, offset in pairs], dim=1)


def shear_sum_of_squares(squares: Tensor, offsets: Offsets) -> Tensor:
    """Σ_λ S_λ² u_λ with squared interpolation weights: the diagonal of Σ_λ S_λ diag(u_λ) S_λᵀ."""
    if whole_step(offsets) is not None:
        return shear_sum(squares, offsets)
    return _shear_sum_anyhow(squares, None, offsets, power=2)


def _sum_reread(rows: Tensor, bands: int, length: int) -> Tensor:
    batch, height = rows.shape[:2]
    flat = rows.reshape(batch, height, -1)[..., : bands * length]
    return flat.view(batch, height, bands, length).sum(2)


def _split(offset: float) -> tuple[int, float]:
    whole = math.floor(offset)
    return whole, offset - whole


def _window(image: Tensor, offset: float, width: int) -> Tensor:
    whole, rest = _split(offset)
    window = image[..., whole : whole + width]
    if rest == 0:
        return window
    return torch.lerp(window, image[..., whole + 1 : whole + 1 + width], rest)


def _shear_sum_anyhow(planes: Tensor, mask: Tensor | None, offsets: Offsets, power: int) -> Tensor:
    """Σ_λ of band λ (times its mask), moved by any offset; on a CPU one band after the other."""
    length = planes.shape[-1] + shear_extent(offsets)
    if torch.compiler.is_exporting():
        coded = planes if mask is None else planes * mask
        return _shear_sum_by_table(coded, offsets, length, power)
    if _gathers(planes):
        coded = planes if mask is None else planes * mask
        return gathered_shear_sum(coded, _places(offsets, planes.device), length, power)
    batch, dtype = planes.shape[0], planes.dtype
    if mask is not None:
        batch, dtype = max(batch, mask.shape[0]), torch.promote_types(dtype, mask.dtype)
    image = _like(planes, (batch, planes.shape[2], length), dtype).zero_()
    if not _goes_by_band(planes, *(() if mask is None else (mask,))):
        _add_bands(image, planes, mask, offsets, power)
        return image
    for rows in _blocks(image):
        # Channels last: every band would be read through all others.
        part = planes[:, :, rows].contiguous() if planes.stride(1) == 1 else planes[:, :, rows]
        _add_bands(image[:, rows], part, None if mask is None else mask[:, :, rows], offsets, power)
    return image


def _add_bands(
    image: Tensor, planes: Tensor, mask: Tensor | None, offsets: Offsets, power: int
) -> None:
    width = planes.shape[-1]
    for band, offset in enumerate(offsets):
        whole, rest = _split(offset)
        near, plane = image[..., whole : whole + width], planes[:, band]
        if mask is not None and not rest:
            near.addcmul_(plane, _of_band(mask, band))
            continue
        if mask is not None:
            plane = plane * _of_band(mask, band)
        near.add_(plane, alpha=(1 - rest) ** power)
        if rest:
            image[..., whole + 1 : whole + 1 + width].add_(plane, alpha=rest**power)


def _blocks(planes: Tensor) -> list[slice]:
    """Rows of `planes (B, …, H, W)` that stay in a cache while all bands pass.

    And that torch works on without calling its threads together: where other programs keep the
    cores busy, waiting for them once a band would take longer than the work.
    """
    height = planes.shape[-2]
    rows = max(1, BLOCK // max(1, planes.shape[0] * planes.shape[-1]))
    return [slice(first, first + rows) for first in range(0, height, rows)]


def _of_band(mask: Tensor, band: int) -> Tensor:
    """`(B|1, 1|C, H, W)` → `(B|1, H, W)`."""
    return mask[:, band if mask.shape[1] > 1 else 0]


def _like(planes: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room for planes of this shape whose pixels follow each other as in `planes`."""
    if planes.stride(-1) != 1 and planes.stride(-2) == 1:  # turned, for a prism along the height
        return planes.new_empty((*shape[:-2], shape[-1], shape[-2]), dtype=dtype).mT
    return planes.new_empty(shape, dtype=dtype)


def _is_followed(*tensors: Tensor) -> bool:
    """Whether autograd or a compiler takes note of what is done."""
    needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    return needs_grad or torch.compiler.is_compiling()


def _goes_by_band(*tensors: Tensor) -> bool:
    """Whether a loop over the bands is the fastest there is; sums stay as exact as they were."""
    exact = all(one.device.type == "cpu" and one.dtype in EXACT for one in tensors)
    return exact and not _is_followed(*tensors)


def _gathers(image: Tensor) -> bool:
    """Whether one gather is faster than a loop over the bands."""
    return image.device.type not in ("cpu", "meta")


def _places(offsets: Offsets, device: torch.device) -> Tensor:
    # A compiler makes constants of them; elsewhere a copy would make the host wait, so it is kept.
    return _copied(offsets, device) if torch.compiler.is_compiling() else _kept(offsets, device)


def _copied(offsets: Offsets, device: torch.device) -> Tensor:
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.tensor(offsets, dtype=dtype, device=device)


_kept = lru_cache(maxsize=64)(_copied)


def gathered_shear_sum(planes: Tensor, places: Tensor, length: int, power: int = 1) -> Tensor:
    """Shear every band to its place and sum: `(B, C, H, W)` → `(B, H, length)`.

    power: 2 squares the interpolation weights, for the diagonal of A Aᵀ.
    """
    found: Tensor = _Shear.apply(planes, places, length, power)  # type: ignore[no-untyped-call]
    return found


def gathered_unshear(image: Tensor, places: Tensor, width: int, power: int = 1) -> Tensor:
    """Cut each band's window back out: `(B, H, L)` → `(B, C, H, width)`."""
    found: Tensor = _Unshear.apply(image, places, width, power)  # type: ignore[no-untyped-call]
    return found


def _split_places(places: Tensor, dtype: torch.dtype, power: int) -> tuple[Tensor, Tensor, Tensor]:
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
    whole, near, far = _split_places(places, planes.dtype, power)
    column = torch.arange(length, device=planes.device, dtype=torch.int32) - whole
    return (near * _read(planes, column) + far * _read(planes, column - 1)).sum(1)


def _unsheared(image: Tensor, places: Tensor, width: int, power: int) -> Tensor:
    whole, near, far = _split_places(places, image.dtype, power)
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


def _unshear_by_table(image: Tensor, offsets: Offsets, width: int) -> Tensor:
    """`(B, H, L)` → `(B, C, H, width)`."""
    whole, rest = _tables(offsets)
    at = whole + np.arange(width)
    # Beyond the end is only what has no weight.
    far = np.minimum(at + 1, image.shape[-1] - 1)
    share = torch.tensor(rest, dtype=image.dtype, device=image.device)
    windows = (1 - share) * _columns(image, at) + share * _columns(image, far)
    return windows.permute(0, 2, 1, 3)


def _shear_sum_by_table(planes: Tensor, offsets: Offsets, length: int, power: int) -> Tensor:
    """`(B, C, H, W)` → `(B, H, length)`."""
    whole, rest = _tables(offsets)
    batch, bands, height, width = planes.shape
    # Bands side by side in a row, with a zero after each, which is read for all that is outside.
    rows = F.pad(planes, (0, 1)).permute(0, 2, 1, 3).reshape(batch, height, bands * (width + 1))
    start = np.arange(bands)[:, None] * (width + 1)
    near = np.arange(length) - whole
    first, second = (
        _columns(rows, start + np.where((at >= 0) & (at < width), at, width))
        for at in (near, near - 1)
    )
    share = torch.tensor(rest, dtype=planes.dtype, device=planes.device)
    return ((1 - share) ** power * first + share**power * second).sum(2)


def _tables(offsets: Offsets) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole pixels and the rest of every offset, `(C, 1)` each."""
    whole, rest = zip(*(_split(offset) for offset in offsets), strict=True)
    return np.array(whole, dtype=np.int64)[:, None], np.array(rest)[:, None]


def _columns(rows: Tensor, table: NDArray[np.int64]) -> Tensor:
    """`rows (B, H, N)` at the columns of a table `(C, M)`: `(B, H, C, M)`."""
    at = torch.tensor(table.ravel(), device=rows.device)
    return rows.index_select(-1, at).reshape(*rows.shape[:-1], *table.shape)


def offsets_from_step(bands: int = BANDS, step: float = STEP) -> Offsets:
    """Equal steps of `step` pixels per band; a negative step runs the other way."""
    if bands < 1:
        raise ConfigError(f"a camera needs at least one band, not {bands}.")
    return offsets_from_array([step * band for band in range(bands)])


def offsets_from_array(offsets: Sequence[float]) -> Offsets:
    """Any displacement per band in pixels; only differences matter, so the smallest becomes 0."""
    try:
        values = np.asarray(offsets, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ConfigError(
            f"band offsets must be a list of finite pixel numbers, one per band; got {offsets!r}."
        )
    # 1e-9 px is far below any calibration: it turns 0.1·10 style residue into whole pixels.
    return tuple(float(v) for v in np.round(values - values.min(), 9) + 0.0)


def offsets_from_polynomial(
    wavelengths_nm: Sequence[float], coefficients: Sequence[float]
) -> Offsets:
    """Offsets from a wavelength calibration `px(λ) = Σ_k coefficients[k] · λ_nmᵏ`.

    Coefficients start with the constant term, as `numpy.polynomial` orders them.
    """
    if len(coefficients) < 2:
        raise ConfigError("a calibration polynomial needs at least a constant and a slope.")
    positions = np.polynomial.Polynomial(np.asarray(coefficients, dtype=np.float64))(
        np.asarray(wavelengths_nm, dtype=np.float64)
    )
    return offsets_from_array([float(p) for p in positions])


Places = TypeVar("Places", Tensor, NDArray[np.float64])


def bent(along: Places, bend: float) -> Places:
    """Places u on the way from the first band (0) to the last (1), bent: u + 4 b u (1 − u)."""
    return along + 4 * bend * along * (1 - along)
