"""A mask from snapshots whose cubes are given: regularised least squares.

For given cubes x_n a snapshot is linear in the mask, y_n = B_n (g + d) with g the calibration in
its pose and d what it does not say. The change d, one plane for all bands, minimises

    Σ_n ‖(y_n − B_n (g + d)) / σ_n‖² + Σ_q (d_q / τ_q)²,

by conjugate gradients through the exact camera and its transpose.

σ_n² is the mean square of what the fit itself leaves around a pixel, at least the noise: cubes have
errors of their own, and larger ones in some places than in others. Taken before the fit it would
count a wrong mask as noise, so both are found in turn.

τ_q is what is known of such changes. Where the mask has one value over several pixels calibrations
agree; at the rims of its cells they do not. So pixels are sorted by value and by how much their
neighbours differ, and each class has a scale of its own, found from the changes themselves. Single
pixels may exceed it, because dust does: Student's t with few degrees of freedom instead of a
normal distribution.

What is left is uncertain for three reasons: τ where snapshots say little, σ, whose errors are alike
at many pixels, and cubes that have followed the mask they were made with,

    std² = ((1 − S)² + β² S²) τ² + S² κ / D,      S = D / (D + 1 / τ²),

D being the curvature of the first sum. κ and β were set where the truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.inference.alignment.steps import Observed
from prismask.optics.mask_adjoint import mask_adjoint, mask_curvature

TURNS, STEPS = 5, 20
"""How often σ and τ are found anew, and steps of conjugate gradients each time."""
ENOUGH = 1e-4
"""Share of the first gradient at which conjugate gradients stop."""
VALUES = (0.1, 0.25, 0.5, 0.75, 0.92, 0.98)
"""Limits between classes of mask values."""
UNEVEN = 0.4
"""Range within a pixel's neighbourhood from which it counts as lying at a rim."""
FREEDOM = 4.0
"""Degrees of freedom of Student's t."""
FIRST_SCALE, LEAST_SCALE = 0.08, 0.005
"""τ to begin with, and the least that a class may have."""
ALIKE = 10.0
"""κ: sensor pixels whose errors are alike count as one."""
FOLLOWED = 0.5
"""β: share of a change that cubes made with another mask hide."""


@dataclass(frozen=True, eq=False)
class MaskFit:
    """The change of a mask, and how far it may be wrong."""

    change: Tensor
    """d `(1, 1, H, W)`; mask + d lies between 0 and 1."""
    scale: Tensor
    """τ, of the same shape."""
    curvature: Tensor
    """D, of the same shape."""

    @cached_property
    def std(self) -> Tensor:
        """How far each pixel may still be wrong, `(1, 1, H, W)`."""
        variance = self.scale.square()
        share = self.curvature * variance / (1 + self.curvature * variance)
        # S² κ / D without dividing by a curvature that may be 0.
        of_snapshots = ALIKE * share * variance / (1 + self.curvature * variance)
        hidden = ((1 - share).square() + FOLLOWED**2 * share.square()) * variance
        return (hidden + of_snapshots).sqrt()


def fit_mask(observed: Observed, centre: Tensor, start: Tensor | None = None) -> MaskFit:
    """The change of `centre (1, 1|C, H, W)` that explains what was observed.

    start: a change `(1, 1, H, W)` to begin with.
    """
    change = torch.zeros_like(centre[:, :1]) if start is None else start
    kinds = classes(centre)
    scale = torch.full_like(change, FIRST_SCALE)
    base = scale.square()
    for _ in range(TURNS):
        weights = observed.weights(centre + change)
        change, curvature = _solved(observed, weights, centre, change, scale.square())
        expected = change.square() + 1 / (curvature + 1 / scale.square())
        scale = ((FREEDOM * base + expected) / (FREEDOM + 1)).sqrt()
        base = _by_class(scale.square(), kinds).clamp_min(LEAST_SCALE**2)
    return MaskFit(change, scale, curvature)


def classes(mask: Tensor) -> Tensor:
    """What kind of place each pixel of `mask (1, 1|C, H, W)` is, `(1, 1, H, W)` whole numbers."""
    plane = mask.mean(1, keepdim=True).contiguous()
    spread = F.max_pool2d(plane, 3, 1, 1) + F.max_pool2d(-plane, 3, 1, 1)
    return 2 * torch.bucketize(plane, plane.new_tensor(VALUES)) + (spread > UNEVEN)


def _by_class(variance: Tensor, kinds: Tensor) -> Tensor:
    """The harmonic mean of each class at its pixels: the scale of Student's t."""
    count = 2 * len(VALUES) + 2
    each = torch.bincount(kinds.flatten(), minlength=count).clamp_min(1)
    sums = torch.zeros(count, dtype=torch.float64, device=variance.device)
    sums.index_add_(0, kinds.flatten(), variance.double().reciprocal().flatten())
    return (each / sums.clamp_min(1e-12)).to(variance)[kinds]


def _solved(
    observed: Observed, weights: Tensor, centre: Tensor, start: Tensor, variance: Tensor
) -> tuple[Tensor, Tensor]:
    """d by conjugate gradients for given σ and τ, kept within the mask's range, and D."""
    camera, cubes = observed.camera, observed.cubes

    def back(left: Tensor) -> Tensor:
        return mask_adjoint(camera, weights * left, cubes).sum(0, keepdim=True)

    curvature = mask_curvature(camera, weights, cubes).sum(0, keepdim=True)
    divide = 1 / (curvature + 1 / variance)
    change = start
    left = back(observed.left(centre + change)) - change / variance
    step = divide * left
    size = first = (left * step).sum()
    for _ in range(STEPS):
        if not float(size) > ENOUGH**2 * float(first):
            break
        product = back(camera.forward(cubes, step)) + step / variance
        length = size / (step * product).sum()
        change, left = change + length * step, left - length * product
        better = divide * left
        before, size = size, (left * better).sum()
        step = better + size / before * step
    plane = centre.mean(1, keepdim=True)
    return (plane + change).clamp(0, 1) - plane, curvature
