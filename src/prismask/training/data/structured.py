"""Spectra with structure: lamps with lines, narrow bands of materials, single lines.

Scenes of a data set are lit by smooth lamps, and their materials change slowly with the wavelength.
A network that sees nothing else smooths a fluorescent lamp's lines away. So a share of the crops is

- lit by a lamp of `scenes.colour`,
- made of materials that absorb, or reflect, in one or two narrow bands, over parts of the crop,
- lit by a single line over parts of it.

Parts have the shape of the crop's own brightness, mirrored, as in `collage`. A crop is exposed so
that it is as bright as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from prismask.scenes.colour import band_edges, lamp_in_bands, lamp_names
from prismask.training.config import DataConfig
from prismask.training.data.crops import to_device

NUMBERS = (16,)
"""Uniform numbers a crop needs."""
HELD_OUT = ("FL2", "FL11")
"""Lamps that no training sees, so that scores behind them say something about others."""
CONTINUUM = 0.5
"""Most of a smooth light that is mixed into a lamp's."""
WIDTHS = (5.0, 40.0)
"""Smallest and largest full width of a narrow band at half its height, in nm."""
PAIR = (10.0, 60.0)
"""Smallest and largest distance of two of them, in nm."""
DEPTHS = (0.3, 1.0)
"""How deep a narrow band is."""
LINE = 1.0
"""Full width of a single line in nm."""
LEVELS = (0.1, 1.0)
"""Its height in a band, beside the crop's brightest value."""
SHARPNESS = (1.0, 20.0)
"""How sharp the edges of parts are, as in `collage`."""
DEVIATION = 2 * math.sqrt(2 * math.log(2))
"""Full width at half height of a Gaussian, in standard deviations."""


class StructuredLight:
    """Draws structured spectra for cameras with these band centres."""

    def __init__(self, wavelengths: Sequence[float], config: DataConfig) -> None:
        self.config = config
        self.names = tuple(name for name in lamp_names() if name not in HELD_OUT)
        lamps = [lamp_in_bands(name, wavelengths) for name in self.names]
        self.lamps = torch.stack([torch.from_numpy(lamp) for lamp in lamps])  # (N, C)
        self.low, self.high = (torch.from_numpy(edge) for edge in band_edges(wavelengths))

    def light(self, cube: Tensor, numbers: Tensor) -> Tensor:
        """Crops `(B, C, H, W)` with structure in a share of them, by `numbers (B, 16)` (CPU)."""
        n = numbers.double()
        before = cube.amax((1, 2, 3), keepdim=True)
        gain, absorbed, added = (
            to_device(values.float(), cube.device)[:, :, None, None]
            for values in (self._lamp(n), self._bands(n), self._line(n))
        )
        parts = to_device(_between(n[:, [11, 15]], SHARPNESS).float(), cube.device)
        mirrored = cube.mean(1, keepdim=True).flip(-1)
        lit = cube * gain * (1 - _part(mirrored, parts[:, 0]) * absorbed)
        lit = lit + before * _part(mirrored.flip(-2, -1), parts[:, 1]) * added
        after = lit.amax((1, 2, 3), keepdim=True)
        return lit * (before / after.clamp_min(torch.finfo(lit.dtype).tiny))

    def _lamp(self, n: Tensor) -> Tensor:
        """Gain of every band `(B, C)`; 1 where there is no lamp."""
        lamp = self.lamps[(n[:, 1] * len(self.lamps)).long()]
        smooth = CONTINUUM * n[:, 2:3].square()
        return torch.where(n[:, :1] < self.config.lamps, lamp + (1 - lamp) * smooth, 1.0)

    def _bands(self, n: Tensor) -> Tensor:
        """Share of the light that a material keeps to itself, `(B, C)`."""
        width = _between(n[:, 6], WIDTHS) / DEVIATION
        centre = self._somewhere(n[:, 5])
        second = centre + _between(n[:, 9], PAIR)
        shape = self._mean_of_gaussian(centre, width)
        pair = torch.maximum(shape, self._mean_of_gaussian(second, width))
        shape = torch.where(n[:, 8:9] < 0.4, pair, shape)
        shape = torch.where(n[:, 10:11] < 0.5, shape, 1 - shape)  # absorbs, or reflects, there
        low, high = DEPTHS
        depth = low + (high - low) * n[:, 7:8]
        return torch.where(n[:, 4:5] < self.config.narrow_bands, depth * shape, 0.0)

    def _line(self, n: Tensor) -> Tensor:
        """Height of a single line in every band, `(B, C)`; it falls into one or two of them."""
        centre, std = self._somewhere(n[:, 13])[:, None], LINE / DEVIATION
        share = torch.special.ndtr((self.high - centre) / std) - torch.special.ndtr(
            (self.low - centre) / std
        )
        level = _between(n[:, 14:15], LEVELS)
        return torch.where(n[:, 12:13] < self.config.laser_lines, level * share, 0.0)

    def _somewhere(self, number: Tensor) -> Tensor:
        first, last = float(self.low.min()), float(self.high.max())
        return first + (last - first) * number

    def _mean_of_gaussian(self, centre: Tensor, std: Tensor) -> Tensor:
        """Mean over each band of a Gaussian of height 1, `(B, C)`."""
        centre, std = centre[:, None], std[:, None]
        area = torch.special.ndtr((self.high - centre) / std) - torch.special.ndtr(
            (self.low - centre) / std
        )
        mean: Tensor = area * std * math.sqrt(2 * math.pi) / (self.high - self.low)
        return mean


def _between(number: Tensor, ends: tuple[float, float]) -> Tensor:
    """Between two numbers, evenly in the logarithm."""
    low, high = (math.log(end) for end in ends)
    return torch.exp(low + (high - low) * number)


def _part(level: Tensor, sharpness: Tensor) -> Tensor:
    """Which part of a crop, `(B, 1, H, W)` between 0 and 1, from a brightness."""
    deviation, mean = torch.std_mean(level, (-2, -1), keepdim=True, correction=0)
    z = (level - mean) / deviation.clamp_min(1e-6)
    return torch.sigmoid(sharpness[:, None, None, None] * z)
