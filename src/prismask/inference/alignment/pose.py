"""A mask and a spectrum that are not as calibrated: twelve numbers and what they do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import convolve1d, map_coordinates
from scipy.special import ive
from torch import Tensor

from prismask.inference.camera_match.bands import band_places
from prismask.optics.camera import CASSI
from prismask.optics.resample import pixel_grid, read_further

POSITION, BANDS, BLUR, TONES = slice(0, 6), slice(6, 8), 8, slice(9, 12)
"""Which of the numbers say where the mask lies, where bands land, how much less sharp it is, and
how its values are bent."""
NUMBERS = 12
SHARPEST, SOFTEST = -1.0, 9.0
"""Blur beyond which nothing is told apart any more, in px²."""
DIFFERENCE = 0.02
"""Step over which derivatives are taken."""


@dataclass(frozen=True)
class Place:
    """Where each pixel q of a mask is read, what its value counts, and where bands land.

    It is read at q + shift + M (q − centre); M is told by what it does at the frame's edges, in
    pixels there. The picture by which a mask was calibrated had a dark level, an exposure and a
    curve of its own, so that a value m lets through

        m + 2 middle · m (1 − m) + 16 contrast · m (1 − m) (m − ½) + haze · (1 − m)

    of the light, between 0 and 1. Out of focus all that is blurred, by a variance `blur` in px²
    along both axes; below 0 it was the calibration that was out of focus. Band λ lands δ_λ pixels
    further along the dispersion than calibrated,

        δ_λ = spread · t + bend · (t² − 1/3),        t from −1 where the first band lands to 1 for
                                                     the last.

    Seen from the sensor, light that lands further has met a mask that lies further and comes from
    a scene that does: m̃_λ[u] = m[u − δ_λ] and x̃_λ[u] = x_λ[u − δ_λ] give the same snapshot. So
    the camera stays as it is, with a mask of its own for each band, and the bands of its cube are
    taken back afterwards (`straightened`).
    """

    numbers: tuple[float, ...] = (0.0,) * NUMBERS
    """Down, right; down by column, down by row; right by column, right by row; spread, bend; blur;
    middle, contrast, haze.

    Those left out at the end are 0."""

    def __post_init__(self) -> None:
        missing = NUMBERS - len(self.numbers)
        object.__setattr__(self, "numbers", (*self.numbers, *[0.0] * missing))

    def read(self, mask: Tensor, camera: CASSI) -> Tensor:
        """`mask (1, 1|C, H, W)` as the light met it, one plane or one for each band."""
        moved = self.moved(mask)
        return self.by_band(moved, camera).clamp(0, 1) if any(self.numbers[BANDS]) else moved

    def moved(self, mask: Tensor) -> Tensor:
        """`mask (1, 1|C, H, W)` at its place, bent and blurred; its edge continues outside."""
        return self._blurred(self._toned(self._shifted(mask)))

    def _shifted(self, mask: Tensor) -> Tensor:
        if not any(self.numbers[POSITION]):
            return mask
        rows, columns, u, v = _coordinates(mask)
        down, right, down_u, down_v, right_u, right_v = self.numbers[POSITION]
        at_rows = rows + down + down_u * u + down_v * v
        at_columns = columns + right + right_u * u + right_v * v
        # Splines: a linear mixture of neighbours would be a blurred mask between pixels.
        places = torch.stack([at_rows, at_columns]).numpy()
        planes = mask.double().cpu().numpy()[0]
        read = np.stack([map_coordinates(plane, places, mode="nearest") for plane in planes])
        return torch.from_numpy(read)[None].clamp(0, 1).to(mask)

    def _toned(self, mask: Tensor) -> Tensor:
        if not any(self.numbers[TONES]):
            return mask
        middle, contrast, haze = self.numbers[TONES]
        bent = 2 * middle + 16 * contrast * (mask - 0.5)
        return (mask + (1 - mask) * (bent * mask + haze)).clamp(0, 1)

    def _blurred(self, mask: Tensor) -> Tensor:
        variance = min(max(self.numbers[BLUR], SHARPEST), SOFTEST)
        if not variance:
            return mask
        values, kernel = mask.double().cpu().numpy(), _blur_kernel(variance)
        for axis in (-2, -1):
            values = convolve1d(values, kernel, axis, mode="nearest")
        return torch.from_numpy(values).clamp(0, 1).to(mask)

    def by_band(self, mask: Tensor, camera: CASSI) -> Tensor:
        """A mask that is in its place, or a strip of it, as every band meets it."""
        if not any(self.numbers[BANDS]):
            return mask
        return _along(mask, camera, [-shift for shift in self.shifts(camera)])

    def straightened(self, cube: Tensor, camera: CASSI) -> Tensor:
        """The scene `(1, C, H, W)` behind a cube that was made with these masks."""
        if not any(self.numbers[BANDS]) or camera.design == "dual":
            return cube  # a second disperser puts the bands back by itself
        return _along(cube, camera, self.shifts(camera))

    def shown(self, scene: Tensor, camera: CASSI) -> Tensor:
        """What the calibrated camera would have to look at to see `scene (1, C, H, W)` as here."""
        back = Place((*[0.0] * BANDS.start, *(-number for number in self.numbers[BANDS])))
        return back.straightened(scene, camera)

    def shifts(self, camera: CASSI) -> list[float]:
        """δ of every band in pixels."""
        spread, bend = self.numbers[BANDS]
        return [spread * t + bend * (t * t - 1 / 3) for t in _from_the_middle(camera).tolist()]

    def stepped(self, step: Tensor) -> Place:
        """This place and a step `(12,)` further."""
        return Place(tuple(a + b for a, b in zip(self.numbers, step.tolist(), strict=True)))

    def derivatives(self, mask: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """`moved`, its derivative by each number of the position, and by blur and tones."""
        shifted = self._shifted(mask)
        here = self._blurred(self._toned(shifted))
        down, right = ((self._next(k).moved(mask) - here) / DIFFERENCE for k in (0, 1))
        _, _, u, v = (each.to(mask) for each in _coordinates(mask))
        values = []
        for number in range(BLUR, NUMBERS):
            further = self._next(number)
            values.append((further._blurred(further._toned(shifted)) - here) / DIFFERENCE)
        return here, [down, right, down * u, down * v, right * u, right * v], values

    def band_derivatives(self, mask: Tensor, camera: CASSI) -> list[Tensor]:
        """∂ by_band / ∂ spread and ∂ bend, each `(1, C, H, W)`."""
        here = self.by_band(mask, camera)
        return [(self._next(k).by_band(mask, camera) - here) / DIFFERENCE for k in (6, 7)]

    def _next(self, number: int) -> Place:
        """A little further in one of the numbers."""
        return self.stepped(DIFFERENCE * torch.eye(NUMBERS, dtype=torch.float64)[number])

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """In the words of optics, for a mask of `(H, W)`."""
        down, right, down_u, down_v, right_u, right_v = self.numbers[POSITION]
        height, width = size[0] / 2, size[1] / 2
        turn = math.degrees((down_u / width - right_v / height) / 2)
        skew = math.degrees((down_u / width + right_v / height) / 2)
        spread, bend = self.numbers[BANDS]
        over = max(camera.offsets)
        # Told along the axis: to the left, bands that land further right lie closer together.
        wider = 2 * spread if camera.offsets[-1] >= camera.offsets[0] else -2 * spread
        return (
            f"{right:+.2f} px to the right and {down:+.2f} px down, turned by {turn:+.3f}°, "
            f"stretched by {100 * right_u / width:+.2f} % across its columns and "
            f"{100 * down_v / height:+.2f} % across its rows, skewed by {skew:+.3f}°, and the "
            f"spectrum is spread over {over + wider:.2f} px instead of {over:g}, bent by "
            f"{bend:+.2f} px{self._blur_text()}{self._tones_text()}"
        )

    def _blur_text(self) -> str:
        """As a standard deviation, which is what people know blur by."""
        variance = self.numbers[BLUR]
        if not variance:
            return ""
        word = "blurred" if variance > 0 else "sharpened"
        return f"; it is {word} by {math.sqrt(abs(variance)):.2f} px (standard deviation)"

    def _tones_text(self) -> str:
        if not any(self.numbers[TONES]):
            return ""
        shares = self._toned(torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=torch.float64))
        first, second, third, last = (f"{100 * share:.0f}" for share in shares.tolist())
        return (
            "; cells calibrated as closed, a quarter, half and three quarters open let "
            f"{first}, {second}, {third} and {last} % of the light through"
        )


def _blur_kernel(variance: float) -> NDArray[np.float64]:
    """The discrete Gaussian e^(−v) I_n(v): its variance is v exactly, also where v is small.

    Its spectrum is exp(−v (1 − cos ω)), so that −v undoes what v does.
    """
    away = np.arange(-_REACH, _REACH + 1)
    kernel = ive(np.abs(away), abs(variance))
    if variance < 0:
        kernel = kernel * np.where(away % 2, -1.0, 1.0) * math.exp(-2 * variance)
    return np.asarray(kernel / kernel.sum())


_REACH = 14
"""Pixels to each side, enough for `SOFTEST`."""


def _from_the_middle(camera: CASSI) -> NDArray[np.float64]:
    """t of every band: −1 for the first, 1 for the last, 0 for the only one."""
    return 2 * band_places(camera) - 1


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
