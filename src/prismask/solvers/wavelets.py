"""A basis in which scenes are sparse: 2-D orthogonal wavelets over the image, cosines over λ.

One level of the wavelet transform along one axis is an orthonormal matrix M (N, N), N even. Its
upper half averages, its lower half takes differences, both two samples further each row, around
the end (periodisation):

    M[k, (2 k + n) mod N] = h_n,          M[N/2 + k, (2 k + n) mod N] = (−1)ⁿ h_{F−1−n}.

An image becomes M x Mᵀ; the next level does the same to the averaged quarter. The spectrum is
transformed by the orthonormal cosine matrix. All together is orthonormal, so its transpose undoes
it. Sizes that levels do not divide are padded: the coefficients then describe a slightly larger
cube, `synthesis` cuts the margin off and `analysis` (its adjoint) adds one of zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape, choose

SCALING_FILTERS: dict[str, tuple[float, ...]] = {
    "haar": (math.sqrt(0.5), math.sqrt(0.5)),
    "db2": (*(0.4829629131445341, 0.8365163037378079, 0.2241438680420134, -0.1294095225512604),),
    "db4": (
        *(0.2303778133088965, 0.7148465705529157, 0.6308807679298589, -0.0279837694168599),
        *(-0.1870348117190931, 0.0308413818355608, 0.0328830116668852, -0.0105974017850690),
    ),
    "sym4": (
        *(0.0322231006040427, -0.0126039672620378, -0.0992195435768472, 0.2978577956052774),
        *(0.8037387518059161, 0.4976186676320155, -0.0296355276459985, -0.0757657147892733),
    ),
}
"""h: orthonormal scaling filters with compact support (Daubechies, 1988), sum √2, norm 1.

`db4` is the one of eight taps with four vanishing moments, `sym4` its most symmetric sibling.
"""


@dataclass(frozen=True)
class CubeBasis:
    """Wavelets × cosines for cubes of one size: `coefficients = basis.analysis(cube)`."""

    size: tuple[int, int]
    """Height and width of the scene."""
    wavelet: str = "sym4"
    """A name of `SCALING_FILTERS`."""
    levels: int = 4
    """How often the averaged quarter is transformed again; fewer where the scene is small."""

    def __post_init__(self) -> None:
        choose(self.wavelet, SCALING_FILTERS, "wavelet")
        # Averages of fewer than four pixels a side say nothing that the level before did not.
        possible = max(0, int(math.log2(max(min(self.size), 4))) - 2)
        object.__setattr__(self, "levels", min(self.levels, possible))

    @property
    def padded_size(self) -> tuple[int, int]:
        """The next size that all levels divide."""
        step = 2**self.levels
        height, width = (-(-size // step) * step for size in self.size)
        return height, width

    def analysis(self, cube: Tensor) -> Tensor:
        """`cube (B, C, H, W)` → coefficients `(B, C, padded H, padded W)`."""
        check_shape(cube, ("B", "C", *self.size), "cube")
        height, width = self.padded_size
        values = _mixed(cosine_matrix(cube.shape[1], like=cube), cube)
        values = F.pad(values, (0, width - self.size[1], 0, height - self.size[0])).contiguous()
        for level in range(self.levels):
            rows, columns = self._matrices(level, cube)
            part = values[..., : len(rows), : len(columns)]
            part.copy_(rows @ part @ columns.mT)
        return values

    def synthesis(self, coefficients: Tensor) -> Tensor:
        """Coefficients `(B, C, padded H, padded W)` → `cube (B, C, H, W)`."""
        check_shape(coefficients, ("B", "C", *self.padded_size), "coefficients")
        values = coefficients.clone()
        for level in reversed(range(self.levels)):
            rows, columns = self._matrices(level, values)
            part = values[..., : len(rows), : len(columns)]
            part.copy_(rows.mT @ part @ columns)
        values = values[..., : self.size[0], : self.size[1]]
        return _mixed(cosine_matrix(values.shape[1], like=values).mT, values)

    def is_average(self, like: Tensor) -> Tensor:
        """Which coefficients are averages, not differences: `(padded H, padded W)`, boolean."""
        mark = torch.zeros(self.padded_size, dtype=torch.bool, device=like.device)
        height, width = (size >> self.levels for size in self.padded_size)
        mark[:height, :width] = True
        return mark

    def _matrices(self, level: int, like: Tensor) -> tuple[Tensor, Tensor]:
        height, width = (size >> level for size in self.padded_size)
        rows = wavelet_matrix(height, self.wavelet, like=like)
        columns = rows if width == height else wavelet_matrix(width, self.wavelet, like=like)
        return rows, columns


def wavelet_matrix(size: int, wavelet: str, *, like: Tensor) -> Tensor:
    """The matrix M `(size, size)` of one level along one axis; `size` is even."""
    low = like.new_tensor(SCALING_FILTERS[choose(wavelet, SCALING_FILTERS, "wavelet")])
    taps = torch.arange(len(low), device=like.device)
    high = low.flip(0) * (1 - 2 * (taps % 2))
    row = torch.arange(size // 2, device=like.device)[:, None]
    column = (2 * row + taps) % size
    matrix = like.new_zeros(size, size)
    # Short axes wrap around more than once: entries that meet add up.
    for first, taken in ((0, low), (size // 2, high)):
        matrix.index_put_((first + row.expand_as(column), column), taken.expand(column.shape), True)
    return matrix


def cosine_matrix(size: int, *, like: Tensor) -> Tensor:
    """The orthonormal cosine transform `(size, size)`; row k is the cosine of k half waves."""
    k = torch.arange(size, dtype=like.dtype, device=like.device)[:, None]
    n = torch.arange(size, dtype=like.dtype, device=like.device)
    # √(2 / N) cos(π k (2 n + 1) / (2 N)), the first row divided by √2
    matrix = math.sqrt(2 / size) * torch.cos(math.pi * k * (2 * n + 1) / (2 * size))
    matrix[0] *= math.sqrt(0.5)
    return matrix


def _mixed(matrix: Tensor, cube: Tensor) -> Tensor:
    """The matrix applied over the bands of `cube (B, C, H, W)`."""
    batch, bands, height, width = cube.shape
    return (matrix @ cube.reshape(batch, bands, height * width)).reshape(cube.shape)
