"""Parts of the picture: rectangles and polygons of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        return f"x{self.left}-{self.right} y{self.top}-{self.bottom}"

    def check(self, size: tuple[int, int]) -> None:
        """Raise unless it lies on a cube of this `(height, width)` and is the right way round."""
        height, width = size
        inside = 0 <= self.left <= self.right < width and 0 <= self.top <= self.bottom < height
        if not inside:
            raise ConfigError(
                f"the region {self.left},{self.top},{self.right},{self.bottom} does not lie on "
                f"the cube: x runs from 0 to {width - 1}, y from 0 to {height - 1}."
            )

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
