"""A network over a frame of any size, tile by tile, in memory bounded by the tile.

What a tile sees. Bands are sheared, so the sensor columns behind a tile of the scene also hold
light from scene columns to its left and right: a tile cut out of the snapshot is not the snapshot
of a smaller scene, and dividing by the throughput of a tile's own mask would be wrong at its
edges. Rows, though, never mix in this camera. The input planes are therefore made from *strips*:
all the sensor along the dispersion, a few rows across it. They are equal, pixel for pixel, to
those of the whole frame, whatever the inputs are; only the backbone is tiled.

What a tile keeps. Each tile is computed with `halo` pixels of context on every side that is not
the frame's own border (there the backbone pads with zeros, as it does on a whole frame). Next to
a boundary between two tiles their results are crossfaded over `blend` pixels with weights that
sum to one. A backbone that looks r pixels far gives the same result tiled and whole where
`halo − blend / 2 ≥ r`. With a shorter halo, or a backbone that looks everywhere, what is left is
a smooth transition instead of a seam.

A backbone that contains the camera itself (an unfolded iteration) needs all pixels along the
dispersion in every step: it is given whole strips, blended across the dispersion only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI

LINES = 256
"""Rows (or columns, for a prism along the height) of a strip in which a camera is applied."""

Frame = tuple[int, int]
"""Height and width of the scene."""


@dataclass(frozen=True)
class Tiling:
    """How a frame is cut."""

    tile: int = 352
    """Largest height and width of a tile without its halo, in pixels."""
    halo: int = 24
    """Context computed around a tile and thrown away, in pixels."""
    blend: int = 16
    """Width of the crossfade between neighbours, in pixels; at most twice the halo."""
    align: int = 16
    """Tiles begin and end, halo included, at multiples of this, so that windows and halved
    resolutions inside a backbone fall on the same pixels as on a whole frame. Where the frame is
    also shown mirrored, that holds counted from either end of it."""

    def __post_init__(self) -> None:
        if self.tile < 8:
            raise ConfigError(f"a tile of {self.tile} px is too small; use 8 or more.")
        if self.align < 1:
            raise ConfigError(f"tiles aligned to {self.align} px: use 1 or more.")
        if self.halo < 0 or not 0 <= self.blend <= 2 * self.halo:
            raise ConfigError(
                f"halo {self.halo} px and blend {self.blend} px do not go together: the halo is "
                "0 or more and the blend at most twice the halo."
            )

    @property
    def exact_radius(self) -> int:
        """How far a backbone may look for tiled and whole results to be equal."""
        return self.halo - math.ceil(self.blend / 2)


@dataclass(frozen=True)
class Span:
    """One tile along one axis; all positions are pixels of the frame."""

    first: int
    """Where the computed part begins, halo included."""
    last: int
    """One past its end."""
    weights: Tensor
    """Weight of every computed pixel, `(last − first,)`; 0 in what is thrown away."""

    @property
    def kept(self) -> tuple[int, int]:
        """The part with weight: `frame[kept]` receives `tile[kept − first]`."""
        with_weight = torch.nonzero(self.weights)
        return self.first + int(with_weight[0]), self.first + int(with_weight[-1]) + 1


def spans(length: int, tiling: Tiling, mirrored: bool = False) -> list[Span]:
    """Tiles of about equal size that cover `length` pixels; their weights sum to 1 everywhere.

    mirrored: whether a backbone also sees them mirrored (`models.network`).
    """
    count = math.ceil(length / tiling.tile)
    edges = [round(k * length / count) for k in range(count + 1)]
    # A crossfade wider than half a tile would meet the next one.
    blend = min(tiling.blend, min(b - a for a, b in pairwise(edges)) // 2)
    # Mirrored, windows are counted from the frame's far end, so a tile has to end as far beyond a
    # multiple as the frame does. Its last window is then filled up, in either orientation:
    # that window lies outside the halo.
    rest = length % tiling.align if mirrored else 0
    made = []
    for start, stop in pairwise(edges):
        first = max(0, start - tiling.halo - rest) // tiling.align * tiling.align
        last = min(length, -(-(stop + tiling.halo) // tiling.align) * tiling.align + rest)
        centres = torch.arange(first, last, dtype=torch.float32) + 0.5
        weights = torch.ones(last - first)
        if start > 0:
            weights = weights * _rise(centres - start, blend)
        if stop < length:
            weights = weights * _rise(stop - centres, blend)
        made.append(Span(first, last, weights))
    return made


def _rise(distance: Tensor, blend: int) -> Tensor:
    """From 0 to 1 across a boundary; `_rise(d) + _rise(−d) = 1`."""
    if blend == 0:
        return (distance > 0).float()
    return (distance / blend + 0.5).clamp(0, 1)


@dataclass(frozen=True)
class Tile:
    """A tile's result and where it goes."""

    rows: Span
    columns: Span

    def add(self, result: Tensor, onto: Tensor) -> None:
        """Add the weighted result `(…, h, w)` to the frame `onto (…, H, W)`."""
        (top, bottom), (left, right) = self.rows.kept, self.columns.kept
        inner = result[
            ...,
            top - self.rows.first : bottom - self.rows.first,
            left - self.columns.first : right - self.columns.first,
        ]
        down = self.rows.weights[top - self.rows.first : bottom - self.rows.first]
        across = self.columns.weights[left - self.columns.first : right - self.columns.first]
        weights = (down[:, None] * across[None]).to(inner.device, torch.float32)
        onto[..., top:bottom, left:right] += (inner.float() * weights).to(onto.device)


def tiles_by_strip(
    frame: Frame, camera: CASSI, tiling: Tiling, whole: bool = False, mirrored: bool = False
) -> Iterator[list[Tile]]:
    """The tiles of a frame, those that share a strip together.

    A strip runs along the dispersion: tiles side by side for a prism that disperses along the
    width, tiles above each other for one along the height. `whole` strips are one tile each, for
    backbones that contain the camera. `mirrored`: whether tiles are also
    seen mirrored across the dispersion.
    """
    if camera.axis == "width":
        columns = [_all(frame[1])] if whole else spans(frame[1], tiling)
        for row in spans(frame[0], tiling, mirrored):
            yield [Tile(row, column) for column in columns]
    else:
        rows = [_all(frame[0])] if whole else spans(frame[0], tiling)
        for column in spans(frame[1], tiling, mirrored):
            yield [Tile(row, column) for row in rows]


def _all(length: int) -> Span:
    return Span(0, length, torch.ones(length))


def strip(values: Tensor, tile: Tile, camera: CASSI) -> Tensor:
    """The strip of a measurement or mask `(…, h, w)` that the tile's inputs are made from."""
    if camera.axis == "width":
        return values[..., tile.rows.first : tile.rows.last, :]
    return values[..., tile.columns.first : tile.columns.last]


def cut(planes: Tensor, tile: Tile, camera: CASSI) -> Tensor:
    """The tile out of the planes of its strip."""
    if camera.axis == "width":
        return planes[..., tile.columns.first : tile.columns.last]
    return planes[..., tile.rows.first : tile.rows.last, :]


# --- the camera itself on large frames ----------------------------------------------------------
#
# Rows across the dispersion never mix, so a camera applied to strips and joined again is the camera
# applied to the whole, without ever holding a sheared copy of a large cube.


def project(cube: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """A x of one `cube (C, H, W)` through `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda part, code: camera.forward(part, code)[0], camera, cube[None], mask)


def throughput(mask: Tensor, camera: CASSI) -> Tensor:
    """Σ_λ shear(m) of `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda code: camera.throughput(code)[0], camera, mask)


def _joined(function: Callable[..., Tensor], camera: CASSI, *images: Tensor) -> Tensor:
    axis = -2 if camera.axis == "width" else -1
    pieces = zip(*(torch.split(image, LINES, dim=axis) for image in images), strict=True)
    return torch.cat([function(*parts) for parts in pieces], dim=axis)
