"""How far a pattern has moved from one picture to another, in fractions of a pixel.

The cross-correlation of both pictures' fine detail says it to a pixel. Then the shift d, a gain a
and a level b are fitted by least squares on the pixels that both pictures show,

    second[v] ≈ a · first[v − d] + b

with steps of Gauss and Newton: the picture moved so far is compared with the second, and its
slopes say how much further it has to go.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from prismask.checks import size_text
from prismask.errors import ShapeError, ValuesError

Picture = NDArray[np.floating[Any]]

DETAIL = 8.0
"""Width (std, px) of the blur that is taken off: uneven light is wider, a mask's cells narrower."""
GRAIN = 0.7
"""Width (std, px) of the blur below which detail is not looked at: sharp cells are finer than
pixels can tell, and what aliases stays where it is. Halves the error for cells of 1.5 px."""
LEAST_OVERLAP = 0.3
"""Share of each side that both pictures have to show."""
STEPS, STILL = 12, 1e-4
"""Most steps of the fit, and the step in pixels below which it has arrived."""
BORDER = 4
"""Pixels at the edges that a moved picture does not know."""
LEAST_QUARTER = 16
"""Side of a quarter below which it is too small to tell a shift of its own."""
SURE = 0.7
"""Likeness below which a quarter is dark or noisy, and its shift is chance. One that the pattern
only borders on is alike, but faint."""


@dataclass(frozen=True)
class Shift:
    """second[row, column] = first[row − down, column − right]."""

    down: float
    right: float
    likeness: float
    """Correlation of the two where both are seen: 1 is the same pattern, 0 is chance."""
    uneven: float
    """How far apart the shifts of the four quarters of the pictures are, in pixels: 0 where the
    pattern moves as a whole."""


def find_shift(first: Picture, second: Picture) -> Shift:
    """The shift from `first` to `second`, both `(H, W)`."""
    if first.shape != second.shape:
        raise ShapeError(
            f"the pictures are {size_text(first.shape)} and {size_text(second.shape)}; a shift is "
            "between two of the same size."
        )
    start, moving = (_detail(picture) for picture in (first, second))
    down, right = _whole_pixels(start, moving)
    for _ in range(STEPS):
        step = _step(start, moving, down, right)
        down, right = down + step[0], right + step[1]
        if max(abs(step[0]), abs(step[1])) < STILL:
            break
    ours, theirs = _common(start, moving, down, right)
    return Shift(down, right, _likeness(ours, theirs), _unevenness(ours, theirs))


def moved(picture: Picture, down: float, right: float) -> Picture:
    """The picture moved by any distance; what comes in from outside repeats its edge."""
    found: Picture = ndimage.shift(picture, (down, right), order=3, mode="nearest")
    return found


def _detail(picture: Picture) -> Picture:
    values = np.asarray(picture, dtype=np.float64)
    fine: Picture = ndimage.gaussian_filter(values, GRAIN) - ndimage.gaussian_filter(values, DETAIL)
    if not float(fine.std()) > 0:
        raise ValuesError("a picture is even everywhere: there is no pattern in it to follow.")
    return fine


def _whole_pixels(first: Picture, second: Picture) -> tuple[float, float]:
    """The shift with the highest correlation over the pixels that both show."""
    height, width = first.shape
    size = tuple(fft.next_fast_len(2 * side) for side in first.shape)
    one, other = (fft.rfft2(picture, size) for picture in (first, second))
    both = fft.irfft2(other * one.conj(), size)
    # The fewer pixels meet, the smaller the sum: divided out, within reason.
    rows, columns = (_distances(length) for length in size)
    met = (1 - np.abs(rows) / height)[:, None] * (1 - np.abs(columns) / width)[None, :]
    reach = (np.abs(rows) <= (1 - LEAST_OVERLAP) * height)[:, None] & (
        np.abs(columns) <= (1 - LEAST_OVERLAP) * width
    )[None, :]
    score = np.where(reach, both / np.maximum(met, LEAST_OVERLAP**2), -np.inf)
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    return float(rows[row]), float(columns[column])


def _distances(length: int) -> NDArray[np.int64]:
    """Signed distances of a cyclic correlation of that length."""
    places = np.arange(length)
    return np.where(places > length // 2, places - length, places)


def _common(first: Picture, second: Picture, down: float, right: float) -> tuple[Picture, Picture]:
    """`first` moved, and `second`, where the move brings nothing in from outside."""
    shifted = moved(first, down, right)
    window = tuple(
        slice(max(0, int(np.ceil(by))) + BORDER, side + min(0, int(np.floor(by))) - BORDER)
        for by, side in zip((down, right), first.shape, strict=True)
    )
    return shifted[window], second[window]


def _step(first: Picture, second: Picture, down: float, right: float) -> tuple[float, float]:
    """How much further `first` has to move."""
    return _further(*_common(first, second, down, right))


def _further(ours: Picture, theirs: Picture) -> tuple[float, float]:
    """How far `ours` has to move to be `theirs`, by its slopes, with gain and level free."""
    if min(ours.shape) < BORDER:
        return 0.0, 0.0
    rows, columns = np.gradient(ours)
    # Moved by d more, the picture changes by −d · slope; times the gain, which is fitted too.
    matrix = np.stack([ours, np.ones_like(ours), -rows, -columns], -1).reshape(-1, 4)
    gain, _, by_row, by_column = np.linalg.lstsq(matrix, theirs.ravel(), rcond=None)[0]
    if abs(gain) < 1e-6:
        return 0.0, 0.0
    # More than half a pixel at once is beyond what a slope knows.
    return tuple(float(np.clip(by / gain, -0.5, 0.5)) for by in (by_row, by_column))  # type: ignore[return-value]


def _likeness(ours: Picture, theirs: Picture) -> float:
    if min(ours.shape) < BORDER or not (ours.std() > 0 and theirs.std() > 0):
        return 0.0
    return float(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1])


def _unevenness(ours: Picture, theirs: Picture) -> float:
    """How far apart the quarters are in what they would still move."""
    middle, centre = ours.shape[0] // 2, ours.shape[1] // 2
    if min(middle, centre) < LEAST_QUARTER:
        return 0.0
    halves = (slice(None, middle), slice(middle, None)), (slice(None, centre), slice(centre, None))
    quarters = [(ours[part], theirs[part]) for part in itertools.product(*halves)]
    told = [q for q in quarters if _likeness(*q) > SURE and q[1].std() > 0.3 * theirs.std()]
    left = [_further(*quarter) for quarter in told]
    return float(np.ptp(left, axis=0).max()) if left else 0.0
