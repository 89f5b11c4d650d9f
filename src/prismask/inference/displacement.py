"""A mask and a spectrum that lie beside their calibration: eight numbers and what they do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from torch import Tensor

from prismask.inference.bands import band_places
from prismask.optics.camera import CASSI
from prismask.optics.resample import pixel_grid, read_further

NUMBERS = 8


@dataclass(frozen=True)
class Place:
    """Where each pixel q of a mask is read, q + shift + M (q − centre), and where bands land.

    M is told by what it does at the frame's edges, in pixels there. Band λ lands δ_λ pixels further
    along the dispersion than calibrated,

        δ_λ = spread · t + bend · (t² − 1/3),        t from −1 for the first band to 1 for the last.

    Seen from the sensor, light that lands further has met a mask that lies further and comes from
    a scene that does: m̃_λ[u] = m[u − δ_λ] and x̃_λ[u] = x_λ[u − δ_λ] give the same snapshot. So
    the camera stays as it is, with a mask of its own for each band, and the bands of its cube are
    taken back afterwards (`straightened`).
    """

    numbers: tuple[float, ...] = (0.0,) * NUMBERS
    """Down, right; down by column, down by row; right by column, right by row; spread, bend.

    Those left out at the end are 0."""

    def __post_init__(self) -> None:
        missing = NUMBERS - len(self.numbers)
        object.__setattr__(self, "numbers", (*self.numbers, *[0.0] * missing))

    def read(self, mask: Tensor, camera: CASSI) -> Tensor:
        """`mask (1, 1|C, H, W)` as the light met it, one plane or one for each band."""
        moved = self.moved(mask)
        return self.by_band(moved, camera).clamp(0, 1) if any(self.numbers[6:]) else moved

    def moved(self, mask: Tensor) -> Tensor:
        """`mask (1, 1|C, H, W)` read at its place; its edge continues outside."""
        if not any(self.numbers[:6]):
            return mask
        rows, columns, u, v = _coordinates(mask)
        down, right, down_u, down_v, right_u, right_v = self.numbers[:6]
        at_rows = rows + down + down_u * u + down_v * v
        at_columns = columns + right + right_u * u + right_v * v
        # Splines: a linear mixture of neighbours would be a blurred mask between pixels.
        places = torch.stack([at_rows, at_columns]).numpy()
        planes = mask.double().cpu().numpy()[0]
        read = np.stack([map_coordinates(plane, places, mode="nearest") for plane in planes])
        return torch.from_numpy(read)[None].clamp(0, 1).to(mask)

    def by_band(self, mask: Tensor, camera: CASSI) -> Tensor:
        """A mask that is in its place, or a strip of it, as every band meets it."""
        if not any(self.numbers[6:]):
            return mask
        return _along(mask, camera, [-shift for shift in self.shifts(camera.bands)])

    def straightened(self, cube: Tensor, camera: CASSI) -> Tensor:
        """The scene `(1, C, H, W)` behind a cube that was made with these masks."""
        if not any(self.numbers[6:]) or camera.design == "dual":
            return cube  # a second disperser puts the bands back by itself
        return _along(cube, camera, self.shifts(camera.bands))

    def shifts(self, bands: int) -> list[float]:
        """δ of every band in pixels."""
        spread, bend = self.numbers[6:]
        return [spread * t + bend * (t * t - 1 / 3) for t in _from_the_middle(bands).tolist()]

    def stepped(self, step: Tensor) -> Place:
        """This place and a step `(8,)` further."""
        return Place(tuple(a + b for a, b in zip(self.numbers, step.tolist(), strict=True)))

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """In the words of optics, for a mask of `(H, W)`."""
        down, right, down_u, down_v, right_u, right_v = self.numbers[:6]
        height, width = size[0] / 2, size[1] / 2
        turn = math.degrees((down_u / width - right_v / height) / 2)
        skew = math.degrees((down_u / width + right_v / height) / 2)
        spread, bend = self.numbers[6:]
        over = max(camera.offsets)
        # Told along the axis: to the left, bands that land further right lie closer together.
        wider = 2 * spread if camera.offsets[-1] >= camera.offsets[0] else -2 * spread
        return (
            f"{right:+.2f} px to the right and {down:+.2f} px down, turned by {turn:+.3f}°, "
            f"stretched by {100 * right_u / width:+.2f} % across its columns and "
            f"{100 * down_v / height:+.2f} % across its rows, skewed by {skew:+.3f}°, and the "
            f"spectrum is spread over {over + wider:.2f} px instead of {over:g}, bent by "
            f"{bend:+.2f} px"
        )


def derivatives(mask: Tensor) -> list[Tensor]:
    """∂ mask / ∂ each of the six numbers of its place."""
    _, _, u, v = (each.to(mask) for each in _coordinates(mask))
    down, right = slope_along(mask, -2), slope_along(mask, -1)
    return [down, right, down * u, down * v, right * u, right * v]


def band_derivatives(mask: Tensor, camera: CASSI) -> list[Tensor]:
    """∂ mask / ∂ spread and ∂ bend for `mask (1, 1|C, H, W)`, each `(1, C, H, W)`."""
    slope = slope_along(mask, -1 if camera.axis == "width" else -2)
    t = mask.new_tensor(_from_the_middle(camera.bands))[:, None, None]
    return [-slope * t, -slope * (t.square() - 1 / 3)]


def slope_along(values: Tensor, axis: int) -> Tensor:
    """Half the difference of both neighbours along an axis, 0 at the ends."""
    slope = torch.zeros_like(values)
    if values.shape[axis] < 3:
        return slope  # there are only ends
    inner = slope.narrow(axis, 1, values.shape[axis] - 2)
    before, after = (values.narrow(axis, k, values.shape[axis] - 2) for k in (0, 2))
    inner.copy_((after - before) / 2)
    return slope


def _from_the_middle(bands: int) -> NDArray[np.float64]:
    """t of every band: −1 for the first, 1 for the last, 0 for the only one."""
    return 2 * band_places(bands) - 1


def _along(values: Tensor, camera: CASSI, further: list[float]) -> Tensor:
    """Each plane read so many pixels further along the dispersion."""
    if camera.axis == "width":
        return read_further(values, further)
    return read_further(values.mT, further).mT


def _coordinates(mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, columns, and both from −1 to 1 (column first), all `(H, W)` float64 on the CPU."""
    rows, columns = (each.expand(mask.shape[-2:]) for each in pixel_grid(mask.double().cpu()))
    height, width = mask.shape[-2:]
    v = (rows - (height - 1) / 2) / (height / 2)
    u = (columns - (width - 1) / 2) / (width / 2)
    return rows, columns, u, v
