"""Moving and smoothing image batches: the two things a lens does to a mask.

Beyond the border the edge value continues, because a calibrated mask is a window of a larger
aperture and neither darkness nor a mirror image lies outside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def pixel_grid(image: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column numbers of an image's pixels, `(H, 1)` and `(1, W)`, in its dtype."""
    height, width = image.shape[-2:]
    rows = torch.arange(height, dtype=image.dtype, device=image.device)
    columns = torch.arange(width, dtype=image.dtype, device=image.device)
    return rows[:, None], columns[None, :]


def sample_bilinear(image: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Bilinear values of `image (B|1, C, H, W)` at real positions `(B, H', W')`, edges continued.

    Whole positions give back the pixel itself, to the last bit.
    """
    height, width = image.shape[-2:]
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    top, left = rows.floor(), columns.floor()
    down, right = (rows - top).unsqueeze(1), (columns - left).unsqueeze(1)
    top_index, left_index = top.long(), left.long()
    bottom_index = (top_index + 1).clamp_max(height - 1)
    right_index = (left_index + 1).clamp_max(width - 1)
    batch = max(image.shape[0], rows.shape[0])
    flat = image.flatten(2).expand(batch, -1, -1)

    def pick(row: Tensor, column: Tensor) -> Tensor:
        index = (row * width + column).flatten(1).unsqueeze(1)
        found = flat.gather(2, index.expand(batch, flat.shape[1], -1))
        return found.reshape(batch, -1, *rows.shape[1:])

    upper = torch.lerp(pick(top_index, left_index), pick(top_index, right_index), right)
    lower = torch.lerp(pick(bottom_index, left_index), pick(bottom_index, right_index), right)
    return torch.lerp(upper, lower, down)


def read_further(image: Tensor, by: Sequence[float]) -> Tensor:
    """`(B, 1|C, H, W)` → `(B, C, H, W)`, plane c read `by[c]` pixels further along the width.

    Between pixels by the cubic of Keys; edges are continued. Whole numbers give back the pixels.
    """
    width, planes = image.shape[-1], []
    for number, shift in enumerate(by):
        whole = math.floor(shift)
        part = shift - whole
        places = torch.arange(whole - 1, whole + width + 2, device=image.device)
        plane = image[:, number if image.shape[1] > 1 else 0]
        around = plane.index_select(-1, places.clamp(0, width - 1))
        weights = (
            ((2 - part) * part - 1) * part / 2,
            ((3 * part - 5) * part * part + 2) / 2,
            ((4 - 3 * part) * part + 1) * part / 2,
            (part - 1) * part * part / 2,
        )
        total = around[..., :width] * weights[0]
        for step, weight in enumerate(weights[1:], start=1):
            total.add_(around[..., step : step + width], alpha=weight)
        planes.append(total)
    return torch.stack(planes, dim=1)


def gaussian_blur(image: Tensor, std: float) -> Tensor:
    """Gaussian blur of `(B, C, H, W)` by `std` pixels; the kernel ends at four deviations."""
    radius = int(4 * std + 0.5)
    if radius == 0:
        return image
    weights = [math.exp(-0.5 * (step / std) ** 2) for step in range(-radius, radius + 1)]
    total = sum(weights)
    kernel = [weight / total for weight in weights]
    return _filter_rows(_filter_rows(image, kernel).mT, kernel).mT.contiguous()


def _filter_rows(image: Tensor, kernel: list[float]) -> Tensor:
    """Correlate the last axis with a kernel of odd length, edges continued.

    A sum of shifted views rather than a convolution: GPUs run float32 convolutions in TF32, and
    a blur that differs in the fourth digit between devices could not be tested against another.
    """
    width, radius = image.shape[-1], len(kernel) // 2
    padded = F.pad(image, (radius, radius, 0, 0), mode="replicate")
    result = padded[..., :width] * kernel[0]
    for step, weight in enumerate(kernel[1:], start=1):
        result.add_(padded[..., step : step + width], alpha=weight)
    return result


def quarter_turn(number: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `number` quarter turns, exact (0 and ±1)."""
    whole = number.remainder(4)
    cosine = (whole == 0).to(number.dtype) - (whole == 2).to(number.dtype)
    sine = (whole == 1).to(number.dtype) - (whole == 3).to(number.dtype)
    return cosine, sine


def turned_grid(
    image: Tensor, cosine: Tensor | float, sine: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Positions `(B, H, W)` to read so that each image turns about its centre.

    `cosine` and `sine` are `(B, 1, 1)` or numbers; a positive angle turns counter-clockwise as
    the image is shown (rows downwards).
    """
    rows, columns = pixel_grid(image)
    row_centre, column_centre = (image.shape[-2] - 1) / 2, (image.shape[-1] - 1) / 2
    rows, columns = rows - row_centre, columns - column_centre
    return (
        cosine * rows + sine * columns + row_centre,
        -sine * rows + cosine * columns + column_centre,
    )
