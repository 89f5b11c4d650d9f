"""Parts of the picture: rectangles, polygons and marked pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import ConfigError

MOST_CORNERS = 256


@dataclass(frozen=True)
class Region:
    """Pixels `left … right`, `top … bottom`, both ends included."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def name(self) -> str:
        """As a column of a table is called."""
        if self.pixels == 1:
            return f"x{self.left} y{self.top}"
        return f"x{self.left}-{self.right} y{self.top}-{self.bottom}"

    def check(self, size: tuple[int, int]) -> None:
        """Raise unless it lies on a cube of this `(height, width)` and is the right way round."""
        height, width = size
        if self.right < self.left or self.bottom < self.top:
            turned = sorted((self.left, self.right)), sorted((self.top, self.bottom))
            (left, right), (top, bottom) = turned
            raise ConfigError(
                f"the region {self._numbers} is the wrong way round; give left,top,right,bottom. "
                f"Did you mean {left},{top},{right},{bottom}?"
            )
        if not (self.left >= 0 and self.right < width and self.top >= 0 and self.bottom < height):
            is_one = self.pixels == 1
            what = f"pixel {self.left},{self.top}" if is_one else f"region {self._numbers}"
            raise ConfigError(
                f"the {what} does not lie on the cube: x runs from 0 to {width - 1}, y from 0 to "
                f"{height - 1}."
            )

    @property
    def _numbers(self) -> str:
        return f"{self.left},{self.top},{self.right},{self.bottom}"

    @property
    def pixels(self) -> int:
        """How many there are."""
        return (self.right - self.left + 1) * (self.bottom - self.top + 1)

    def mean(self, values: NDArray[Any]) -> list[float]:
        """The mean over the region of each band of `(C, H, W)`."""
        part = values[:, self.top : self.bottom + 1, self.left : self.right + 1]
        return [float(value) for value in part.mean(axis=(1, 2), dtype=np.float64)]


@dataclass(frozen=True)
class Polygon:
    """Pixels whose middle lies within a polygon; pixel x covers x to x + 1."""

    corners: tuple[tuple[float, float], ...]

    @cached_property
    def box(self) -> Region:
        """The smallest rectangle of pixels around it."""
        low, high = np.min(self.corners, axis=0), np.max(self.corners, axis=0)
        left, top = (int(value) for value in np.floor(low))
        right, bottom = (int(value) for value in np.ceil(high) - 1)
        return Region(left, top, max(left, right), max(top, bottom))

    @property
    def name(self) -> str:
        """As a column of a table is called."""
        return f"polygon {self.box.name}"

    def check(self, size: tuple[int, int]) -> None:
        """Raise unless it lies on a cube of this `(height, width)` and holds a pixel."""
        height, width = size
        corners = np.asarray(self.corners)
        if corners.min() < 0 or (corners > (width, height)).any():
            raise ConfigError(
                f"the polygon does not lie on the cube: x runs from 0 to {width}, y from 0 to "
                f"{height}."
            )
        if self.pixels == 0:
            raise ConfigError("the polygon holds the middle of no pixel: draw it larger.")

    @property
    def pixels(self) -> int:
        """How many there are."""
        return int(self._inside.sum())

    def mean(self, values: NDArray[Any]) -> list[float]:
        """The mean over the polygon of each band of `(C, H, W)`."""
        box = self.box
        part = values[:, box.top : box.bottom + 1, box.left : box.right + 1][:, self._inside]
        return [float(value) for value in part.mean(axis=1, dtype=np.float64)]

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Which pixels of the box are inside, by counting the edges to their right."""
        box = self.box
        x = np.arange(box.left, box.right + 1) + 0.5
        y = (np.arange(box.top, box.bottom + 1) + 0.5)[:, None]
        inside = np.zeros((y.size, x.size), dtype=np.bool_)
        for (x0, y0), (x1, y1) in zip(
            self.corners, self.corners[1:] + self.corners[:1], strict=True
        ):
            if y0 == y1:
                continue
            crosses = (y0 > y) != (y1 > y)
            inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
        return inside


def parse_region(text: str) -> Region | Polygon:
    """`"left,top,right,bottom"` in whole pixels, or the corners `"x,y,x,y,x,y…"` of a polygon."""
    parts = text.split(",")
    try:
        if len(parts) == 4:
            return Region(*(int(part) for part in parts))
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    is_polygon = 6 <= len(numbers) <= 2 * MOST_CORNERS and len(numbers) % 2 == 0
    if not is_polygon or not np.isfinite(numbers).all():
        raise ConfigError(
            f"a region is {text[:60]!r}; it is left,top,right,bottom in whole pixels, or "
            f"x,y,x,y,x,y… for the 3 to {MOST_CORNERS} corners of a polygon."
        )
    return Polygon(tuple(zip(numbers[::2], numbers[1::2], strict=True)))


@dataclass(frozen=True, eq=False)
class Pixels:
    """Pixels that a picture `(H, W)` of True and False marks."""

    marked: NDArray[np.bool_]

    @property
    def name(self) -> str:
        """As a column of a table is called."""
        return f"{self.pixels} pixels"

    def check(self, size: tuple[int, int]) -> None:
        """Raise unless it is as large as a cube of this `(height, width)` and marks a pixel."""
        if self.marked.shape != size:
            raise ConfigError(
                f"the region is {size_text(self.marked.shape)}; the cube is {size_text(size)}."
            )
        if self.pixels == 0:
            raise ConfigError("the region selects no pixel.")

    @property
    def pixels(self) -> int:
        """How many there are."""
        return int(self.marked.sum())

    def mean(self, values: NDArray[Any]) -> list[float]:
        """The mean over the marked pixels of each band of `(C, H, W)`."""
        return [float(value) for value in values[:, self.marked].mean(axis=1, dtype=np.float64)]


Part = Region | Polygon | Pixels
"""Anything that spectra can be averaged over."""
Where = float | Part | Sequence[Any] | NDArray[Any]
"""How people say it, see `as_part`."""


def _whole(number: Any, name: str) -> int:
    """One coordinate of a pixel."""
    try:
        if number == int(number):
            return int(number)
    except (TypeError, ValueError, OverflowError):  # a word, or no finite number
        pass
    raise ConfigError(
        f"{name} is {number!r:.40}; the position of a pixel is given in whole numbers, from 0 at "
        "the top left. For a mean over several pixels, give a region."
    )


def as_part(where: Where, y: float | None = None) -> Part:
    """A pixel `(where, y)`, a box of four numbers, corners `[(x, y), …]`, or a marked picture."""
    if isinstance(where, Region | Polygon | Pixels):
        return where
    given = np.asarray(where)
    if given.ndim == 0 and y is not None:
        across, down = _whole(where, "x"), _whole(y, "y")
        return Region(across, down, across, down)
    if given.ndim == 2 and given.dtype == np.bool_:
        return Pixels(given)
    if given.shape == (4,) and given.dtype.kind in "iu":
        return Region(*(int(number) for number in given))
    if given.ndim == 2 and given.shape[1] == 2 and 3 <= len(given) <= MOST_CORNERS:
        return Polygon(tuple((float(x), float(down)) for x, down in given))
    raise ConfigError(
        f"a region is {where!r:.60}; give x and y of a pixel, (left, top, right, bottom) in whole "
        f"pixels, 3 to {MOST_CORNERS} corners [(x, y), …], or a picture of True and False."
    )
