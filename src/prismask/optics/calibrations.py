"""Repeated calibrations of one mask: their mean, and how far they are apart.

Two calibrations of one aperture differ: it was touched, the light was another, the sensor is noisy.
How far they differ says how far the mask may be wrong in a snapshot taken between or after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prismask.checks import size_text
from prismask.errors import ShapeError
from prismask.scenes.conversion import as_mask
from prismask.scenes.records import Mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prismask.scenes.conversion import MaskLike


def combine_calibrations(calibrations: Sequence[MaskLike] | NDArray[Any]) -> Mask:
    """One mask of two or more calibrations: their mean, and as `std` their standard deviation.

    calibrations: a list of masks, files or arrays `(H, W)` or `(C, H, W)`; or an array `(N, H, W)`.

    The standard deviation is that of one calibration, not of the mean: light, focus and position
    change from one to the next, and the snapshot is one more of them.

    >>> mask = combine_calibrations(np.array([[[0.1, 0.9]], [[0.3, 0.9]]]))
    >>> mask.values.round(3), mask.std.round(3)
    (array([[0.2, 0.9]], dtype=float32), array([[0.141, 0.   ]], dtype=float32))
    """
    masks = [as_mask(one, f"calibration {number}") for number, one in enumerate(calibrations, 1)]
    sizes = dict.fromkeys(size_text(mask.values.shape) for mask in masks)
    if len(masks) < 2 or len(sizes) > 1:
        came = f"{len(masks)} came" if len(masks) < 2 else f"they are {', '.join(sizes)}"
        raise ShapeError(
            f"a spread needs two or more calibrations of one mask, all of one size; {came}."
        )
    stack = np.stack([mask.values for mask in masks]).astype(np.float64)
    attrs = {**masks[0].attrs, "calibrations": len(masks)}
    # Masks lie in [0, 1], so that no deviation exceeds 1 either.
    return Mask(stack.mean(0), masks[0].wavelengths, attrs, stack.std(0, ddof=1))
