"""The camera as a linear operator on its mask.

A snapshot is bilinear: for a given cube x it is y = B_x m, linear in the mask m, and
`CASSI.forward` computes it. Here is the exact transpose B_xᵀ r, which is also the gradient of
⟨r, y⟩ by the mask, and the diagonal of B_xᵀ W B_x, the curvature of Σ W (y − B_x m)² / 2 at each
pixel of the mask.

Pixel q of the mask is met on the sensor at q + p, for p the whole pixels on which bands land, by

    c_p[q] = Σ_λ x_λ[q] · (share of band λ that lands p pixels further).

With a dual disperser mask and measurement change places: a measured pixel has met the mask at all
of its p.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from prismask.checks import check_shape
from prismask.errors import ShapeError
from prismask.optics.camera import CASSI


def mask_adjoint(camera: CASSI, measurement: Tensor, cube: Tensor, planes: int = 1) -> Tensor:
    """B_xᵀ r for r = `measurement (B, H, L)` and x = `cube (B, C, H, W)`: `(B, planes, H, W)`.

    planes: of the mask; 1, or one for each band.
    """
    return _gathered(camera, measurement, cube, planes, power=1)


def mask_curvature(camera: CASSI, weights: Tensor, cube: Tensor, planes: int = 1) -> Tensor:
    """The diagonal of B_xᵀ W B_x for W = diag(`weights (B, H, L)`): `(B, planes, H, W)`."""
    return _gathered(camera, weights, cube, planes, power=2)


def _gathered(camera: CASSI, image: Tensor, cube: Tensor, planes: int, power: int) -> Tensor:
    """Σ_p c_p^power · image, each p read (or written, by a dual disperser) where it lands."""
    check_shape(cube, ("B", camera.bands, "H", "W"), "cube")
    size = camera.measurement_size((cube.shape[-2], cube.shape[-1]))
    check_shape(image, (cube.shape[0], *size), "measurement")
    if planes not in (1, camera.bands):
        raise ShapeError(f"a mask of {planes} planes; it has 1, or one for each of {camera.bands}.")
    along = -1 if camera.axis == "width" else -2
    width = cube.shape[along]
    found = cube.new_zeros(
        len(cube), planes, *camera.mask_size((cube.shape[-2], cube.shape[-1])),
        dtype=torch.promote_types(image.dtype, cube.dtype),
    )  # fmt: skip
    for plane, place, met in _coefficients(camera, cube, planes):
        weight = met if power == 1 else met.square()
        if camera.design == "single":
            found[:, plane] += weight * image.narrow(along, place, width)
        else:
            found[:, plane].narrow(along, place, width).add_(weight * image)
    return found


def _coefficients(camera: CASSI, cube: Tensor, planes: int) -> Iterator[tuple[int, int, Tensor]]:
    """Plane of the mask, p, and c_p `(B, H, W)`, for every p on which light of that plane lands."""
    landing: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for band, offset in enumerate(camera.offsets):
        whole = math.floor(offset)
        rest = offset - whole
        for place, share in ((whole, 1 - rest), (whole + 1, rest)):
            if share:
                landing.setdefault((band % planes, place), []).append((band, share))
    for (plane, place), parts in landing.items():
        met = [cube[:, band] if share == 1 else share * cube[:, band] for band, share in parts]
        yield plane, place, met[0] if len(met) == 1 else torch.stack(met).sum(0)
