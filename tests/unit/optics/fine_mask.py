"""Pictures of a mask that lands anywhere, by counting: cells much finer than pixels, then binned.

Nothing of Prismask is used, so that what it finds is compared with something else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FINE = 20
"""Fine columns and rows a pixel: places are whole multiples of 0.05 px."""


class FineMask:
    """A random mask, 1.5 px a cell, on a grid twenty times as fine as the sensor's."""

    def __init__(self, size: tuple[int, int], seed: int = 0) -> None:
        self.size = size
        cell = 3 * FINE // 2
        random = np.random.default_rng(seed)
        rows, columns = ((side * FINE) // cell + 1 for side in size)
        coarse = (random.random((rows, columns)) < 0.5).astype(np.float32)
        grown = coarse.repeat(cell, 0).repeat(cell, 1)
        self.values = grown[: size[0] * FINE, : size[1] * FINE]

    def picture(
        self, sensor: tuple[int, int], right: float = 0.0, down: float = 0.0
    ) -> NDArray[np.float64]:
        """What a sensor of that many pixels sees of it, `right` and `down` of its corner."""
        top, left = round(down * FINE), round(right * FINE)
        canvas = np.zeros((sensor[0] * FINE, sensor[1] * FINE), np.float32)
        rows = min(self.values.shape[0], canvas.shape[0] - top)
        columns = min(self.values.shape[1], canvas.shape[1] - left)
        canvas[top : top + rows, left : left + columns] = self.values[:rows, :columns]
        binned = canvas.reshape(sensor[0], FINE, sensor[1], FINE).mean((1, 3))
        return binned.astype(np.float64)
