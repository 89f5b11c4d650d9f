"""A mask moved by fractions of a pixel: shift, turn, stretch and skew in six numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import map_coordinates
from torch import Tensor

from prismask.optics.resample import pixel_grid

NUMBERS = 6


@dataclass(frozen=True)
class Place:
    """Where each pixel q of a mask is read: q + shift + M (q − centre).

    M is told by what it does at the frame's edges: the last four numbers are pixels there.
    """

    numbers: tuple[float, ...] = (0.0,) * NUMBERS
    """Down, right; down by column, down by row; right by column, right by row."""

    def moved(self, mask: Tensor) -> Tensor:
        """`mask (1, 1|C, H, W)` read there; its edge continues outside."""
        if not any(self.numbers):
            return mask
        rows, columns, u, v = _coordinates(mask)
        down, right, down_u, down_v, right_u, right_v = self.numbers
        at_rows = rows + down + down_u * u + down_v * v
        at_columns = columns + right + right_u * u + right_v * v
        # Splines: a linear mixture of neighbours would be a blurred mask between pixels.
        places = torch.stack([at_rows, at_columns]).numpy()
        planes = mask.double().cpu().numpy()[0]
        read = np.stack([map_coordinates(plane, places, mode="nearest") for plane in planes])
        return torch.from_numpy(read)[None].clamp(0, 1).to(mask)

    def stepped(self, step: Tensor) -> Place:
        """This place and a step `(6,)` further."""
        return Place(tuple(a + b for a, b in zip(self.numbers, step.tolist(), strict=True)))

    def text(self, size: tuple[int, int]) -> str:
        """In the words of optics, for a mask of `(H, W)`."""
        down, right, down_u, down_v, right_u, right_v = self.numbers
        height, width = size[0] / 2, size[1] / 2
        turn = math.degrees((down_u / width - right_v / height) / 2)
        skew = math.degrees((down_u / width + right_v / height) / 2)
        return (
            f"{right:+.2f} px to the right and {down:+.2f} px down, turned by {turn:+.3f}°, "
            f"stretched by {100 * right_u / width:+.2f} % across its columns and "
            f"{100 * down_v / height:+.2f} % across its rows, skewed by {skew:+.3f}°"
        )


def derivatives(mask: Tensor) -> list[Tensor]:
    """∂ mask / ∂ each of the six numbers."""
    _, _, u, v = (each.to(mask) for each in _coordinates(mask))
    down, right = torch.zeros_like(mask), torch.zeros_like(mask)
    down[..., 1:-1, :] = (mask[..., 2:, :] - mask[..., :-2, :]) / 2
    right[..., 1:-1] = (mask[..., 2:] - mask[..., :-2]) / 2
    return [down, right, down * u, down * v, right * u, right * v]


def _coordinates(mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, columns, and both from −1 to 1 (column first), all `(H, W)` float64 on the CPU."""
    rows, columns = (each.expand(mask.shape[-2:]) for each in pixel_grid(mask.double().cpu()))
    height, width = mask.shape[-2:]
    v = (rows - (height - 1) / 2) / (height / 2)
    u = (columns - (width - 1) / 2) / (width / 2)
    return rows, columns, u, v
