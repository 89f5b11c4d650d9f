"""The camera on large frames, a strip at a time.

Rows across the dispersion never mix, so a camera applied to strips and joined again is the camera
applied to the whole, without ever holding a sheared copy of a large cube.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prismask.optics.camera import CASSI

LINES = 256
"""Rows (or columns, for a prism along the height) of a strip."""


def project(cube: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """A x of one `cube (C, H, W)` through `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda part, code: camera.forward(part, code)[0], camera, cube[None], mask)


def throughput(mask: Tensor, camera: CASSI) -> Tensor:
    """Σ_λ shear(m) of `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda code: camera.throughput(code)[0], camera, mask)


def _joined(function: Callable[..., Tensor], camera: CASSI, *images: Tensor) -> Tensor:
    axis = -2 if camera.axis == "width" else -1
    pieces = zip(*(torch.split(image, LINES, dim=axis) for image in images), strict=True)
    return torch.cat([function(*parts) for parts in pieces], dim=axis)
