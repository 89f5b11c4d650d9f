"""Convolutions between features and the bands of any camera.

Weights belong to K cosines over the spectrum, not to bands. For a camera of C bands with centres at
s_c = (c + ½) / C of its spectrum the matrix

    E (C, K),    E[c, k] = √(2 / C) · cos(π k s_c)    (√(1 / C) for k = 0; 0 for k ≥ C)

has orthonormal columns for k < C: C ≤ K bands lose nothing, and the same weights serve every C. E
is multiplied into the weights, which are few, rather than into planes, which are many: what is
convolved has the camera's own bands. Both ways are scaled so that a flat spectrum has the same
coefficient whatever C is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prismask.models.layers.fused import ALIGNMENT
from prismask.models.layers.unfolding import in_dtype_of

OUT_START = 1e-3
"""Standard deviation of new weights that read bands: an untrained network adds next to nothing."""
OUT_SCALE = 0.2
"""Factor on what is read. Adam moves all weights alike, and hundreds of them add up in a band: this
keeps the first steps from throwing away a good first estimate."""


def cosine_basis(bands: int, cosines: int, like: Tensor) -> Tensor:
    """E `(C, K)`, made on the device of `like` in at least float32."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    order = torch.arange(cosines, device=like.device, dtype=dtype)
    place = (torch.arange(bands, device=like.device, dtype=dtype) + 0.5) / bands
    norm = torch.where(order == 0, 1 / bands, 2 / bands).sqrt() * (order < bands)
    return torch.cos(math.pi * place[:, None] * order) * norm


class BandsOut(nn.Module):
    """A 3×3 convolution from features to a camera's bands, and to `more` planes beside them."""

    def __init__(self, width: int, cosines: int, more: int = 0) -> None:
        super().__init__()
        self.cosines, self.more = cosines, more
        self.conv = nn.Conv2d(width, cosines + more, 3, padding=1)
        nn.init.normal_(self.conv.weight, std=OUT_START)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, features: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, F, H, W)` and E `(C, K)` → bands `(B, C, H, W)`, planes `(B, more, H, W)`."""
        bands = basis.shape[0]
        assert self.conv.bias is not None
        matrix = (basis * math.sqrt(bands / self.cosines)).to(self.conv.weight.dtype)
        weight, bias = self.conv.weight, self.conv.bias
        spread = (matrix @ weight[: self.cosines].flatten(1)).reshape(bands, *weight.shape[1:])
        levels = (matrix * bias[: self.cosines]).sum(1)
        spare = -(bands + self.more) % ALIGNMENT
        weight = F.pad(_joined([spread, weight[self.cosines :]], 0), (0,) * 7 + (spare,))
        bias = F.pad(_joined([levels, bias[self.cosines :]], 0), (0, spare))
        out = OUT_SCALE * F.conv2d(features, weight, bias, padding=1)
        return out[:, :bands], out[:, bands : bands + self.more]


class BandsIn(nn.Module):
    """A 3×3 convolution from `stacks` cubes of bands, and `more` planes, to features."""

    def __init__(self, width: int, cosines: int, stacks: int, more: int = 0) -> None:
        super().__init__()
        self.cosines, self.stacks, self.more = cosines, stacks, more
        self.conv = nn.Conv2d(stacks * cosines + more, width, 3, padding=1)

    def forward(self, cubes: Sequence[Tensor], planes: Sequence[Tensor], basis: Tensor) -> Tensor:
        """Cubes `(B, C, H, W)`, planes `(B, 1, H, W)` and E `(C, K)` → `(B, F, H, W)`."""
        bands = basis.shape[0]
        matrix = (basis * math.sqrt(self.cosines / bands)).to(self.conv.weight.dtype)
        weight = self.conv.weight
        shape = (len(weight), self.stacks, self.cosines, *weight.shape[2:])
        split = weight[:, : self.stacks * self.cosines].reshape(shape)
        spread = torch.einsum("oskyx,ck->oscyx", split, matrix).flatten(1, 2)
        weight = _joined([spread, weight[:, self.stacks * self.cosines :]], 1)
        spare = -weight.shape[1] % ALIGNMENT
        given = F.pad(torch.cat([*cubes, *planes], dim=1), (0,) * 5 + (spare,))
        given = in_dtype_of(self.conv, given).contiguous(memory_format=torch.channels_last)
        return F.conv2d(given, F.pad(weight, (0,) * 5 + (spare,)), self.conv.bias, padding=1)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Parts in one tensor; under autocast a product has another dtype than a stored weight."""
    dtype = parts[0].dtype
    return torch.cat([part.to(dtype) for part in parts], dim=dim)
