"""Spectral correlation: how the bands of a cube go together, and how far an estimate is from it.

The matrix holds the Pearson correlation of every pair of bands over all pixels. A constant band
goes together with nothing: its correlation with every other band counts as 0.

The distance of two matrices is the root mean square of their differences over all pairs of
different bands: 0 for equal matrices, at most 2. The diagonal is 1 by definition and left out, or
more bands would make any two matrices look closer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prismask.checks import check_finite, check_shape
from prismask.errors import ShapeError


def spectral_correlation(cube: Tensor) -> Tensor:
    """Correlation of every pair of bands of `cube (C, H, W)`, `(C, C)` float64."""
    check_shape(cube, ("C", "H", "W"), "cube")
    check_finite(cube, "cube")
    bands = cube.detach().flatten(1).double()
    constant = bands.amax(1) == bands.amin(1)
    centred = bands - bands.mean(1, keepdim=True)
    length = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
    centred = torch.where(constant[:, None], 0.0, centred / length)
    matrix = (centred @ centred.T).clamp(-1, 1)
    return matrix.fill_diagonal_(1.0)


def correlation_distance(first: Tensor, second: Tensor) -> float:
    """Root mean square difference of two matrices `(C, C)` over pairs of different bands."""
    if first.shape != second.shape or first.ndim != 2 or first.shape[0] != first.shape[1]:
        raise ShapeError(
            f"correlation matrices are {tuple(first.shape)} and {tuple(second.shape)}; two square "
            "ones of equal size are needed."
        )
    if len(first) < 2:
        raise ShapeError("one band goes together with no other: there is nothing to compare.")
    others = ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return float((first - second)[others].square().mean().sqrt())
