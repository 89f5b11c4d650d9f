"""Calibrated masks: regions and crops of them, listed sets to test on, repeated calibrations.

One calibrated aperture is larger than a scene, so it yields many masks. Rows and columns are
always counted in the **source** mask, half-open as Python slices are: a crop's position means
the same whichever region it was drawn from. A listed set of test masks carries the proof that
training never saw them.

Two calibrations of one aperture differ: it was touched, the light was another, the sensor is noisy.
How far they differ says how far the mask may be wrong in a snapshot taken between or after them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prismask.checks import size_text
from prismask.errors import OverlapError, ShapeError
from prismask.optics.randomness import seeded
from prismask.scenes.conversion import as_mask
from prismask.scenes.records import Array, Mask, array_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prismask.scenes.conversion import MaskLike

Size = int | tuple[int, int]
"""Height and width, or one number for both."""


@dataclass(frozen=True)
class Rectangle:
    """Rows and columns of a source mask, half-open."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    def text(self) -> str:
        """`rows 0–403, columns 0–659`: first and last, as people say it."""
        return f"rows {self.top}–{self.bottom - 1}, columns {self.left}–{self.right - 1}"

    def contains(self, other: Rectangle) -> bool:
        """Whether `other` lies inside."""
        return (
            self.top <= other.top
            and self.left <= other.left
            and other.bottom <= self.bottom
            and other.right <= self.right
        )

    def shared(self, other: Rectangle) -> Rectangle | None:
        """The rectangle that both cover, or None."""
        both = Rectangle(
            max(self.top, other.top),
            max(self.left, other.left),
            min(self.bottom, other.bottom),
            min(self.right, other.right),
        )
        return both if min(both.size) > 0 else None

    def moved(self, rows: int, columns: int, margin: int = 0) -> Rectangle:
        """Moved by `rows` and `columns`, then grown by `margin` on every side."""
        return Rectangle(
            self.top + rows - margin,
            self.left + columns - margin,
            self.bottom + rows + margin,
            self.right + columns + margin,
        )


@dataclass(frozen=True, eq=False)
class MaskRegion:
    """A rectangle of a large mask; nothing is copied until pixels are read."""

    source: Mask
    """The large mask."""
    rectangle: Rectangle
    """Which part of it."""
    name: str = "mask"
    """What people call the source, for messages and lists."""

    def __post_init__(self) -> None:
        height, width = self.source.size
        whole = Rectangle(0, 0, height, width)
        if min(self.rectangle.size) < 1 or not whole.contains(self.rectangle):
            raise ShapeError(
                f"{self.name} has {whole.text()}; {self.rectangle.text()} is not a part of it."
            )

    @classmethod
    def of(
        cls,
        source: Mask,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
        name: str = "mask",
    ) -> MaskRegion:
        """The part of `source` with these half-open rows and columns; all of it by default."""
        top, bottom = rows if rows is not None else (0, source.size[0])
        left, right = columns if columns is not None else (0, source.size[1])
        return cls(source, Rectangle(top, left, bottom, right), name)

    @cached_property
    def source_hash(self) -> str:
        """Stable id of the source mask."""
        return self.source.hash

    @cached_property
    def mask_id(self) -> str:
        """Stable id of the pixels of this region."""
        return array_hash(self.values)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.rectangle.size

    @property
    def rows(self) -> tuple[int, int]:
        """First row and the row after the last, in the source."""
        return self.rectangle.top, self.rectangle.bottom

    @property
    def columns(self) -> tuple[int, int]:
        """First column and the column after the last, in the source."""
        return self.rectangle.left, self.rectangle.right

    @property
    def values(self) -> Array:
        """Pixels `(H, W)` or `(C, H, W)`: a read-only view of the source."""
        box = self.rectangle
        return self.source.values[..., box.top : box.bottom, box.left : box.right]

    def to_tensor(self, device: torch.device | str = "cpu") -> Tensor:
        """Pixels as a float32 tensor `(1, 1|C, H, W)`."""
        values = torch.tensor(self.values, device=device)
        return values[None, None] if values.ndim == 2 else values[None]

    def crop(self, row: int, column: int, height: int, width: int) -> MaskRegion:
        """The crop whose upper left pixel is (`row`, `column`) of the source."""
        wanted = Rectangle(row, column, row + height, column + width)
        if not self.rectangle.contains(wanted):
            self._check_fits((height, width))
            raise ShapeError(
                f"crop {wanted.text()} leaves this region of {self.name}, which is "
                f"{self.rectangle.text()}."
            )
        return MaskRegion(self.source, wanted, self.name)

    def _check_fits(self, size: tuple[int, int]) -> None:
        if size[0] > self.size[0] or size[1] > self.size[1] or min(size) < 1:
            raise ShapeError(
                f"a crop of {size_text(size)} does not fit this region of {self.name}, which is "
                f"{size_text(self.size)} ({self.rectangle.text()}). Use smaller crops or a larger "
                "region."
            )


def as_size(size: Size) -> tuple[int, int]:
    """`256` → `(256, 256)`."""
    return (size, size) if isinstance(size, int) else size


@dataclass(frozen=True)
class MaskEntry:
    """One mask of a set: which pixels of which source."""

    mask_id: str
    """Hash of the mask's own pixels."""
    source_hash: str
    """Hash of the source mask."""
    name: str
    """What people call the source."""
    row: int
    """First row in the source."""
    column: int
    """First column in the source."""
    height: int
    """Rows."""
    width: int
    """Columns."""

    @classmethod
    def of(cls, region: MaskRegion) -> MaskEntry:
        """The entry that lists `region`."""
        box = region.rectangle
        return cls(region.mask_id, region.source_hash, region.name, box.top, box.left, *region.size)

    @property
    def rectangle(self) -> Rectangle:
        """Where it lies in the source."""
        return Rectangle(self.row, self.column, self.row + self.height, self.column + self.width)


@dataclass(frozen=True)
class MaskSet:
    """Masks by list: the same list always gives the same masks."""

    name: str
    """What the set is called."""
    entries: tuple[MaskEntry, ...]
    """The masks, in order."""
    seed: int | None = None
    """The seed they were drawn with, if they were drawn."""

    @classmethod
    def draw(
        cls, region: MaskRegion, count: int, size: Size, seed: int, name: str = "masks"
    ) -> MaskSet:
        """`count` different random crops of a region; one seed gives one set."""
        height, width = as_size(size)
        box = region.rectangle
        region.crop(box.top, box.left, height, width)  # refuses what does not fit, with a reason
        free_rows, free_columns = region.size[0] - height + 1, region.size[1] - width + 1
        if count > free_rows * free_columns:
            raise ShapeError(
                f"this region of {region.name} ({box.text()}) has only {free_rows * free_columns} "
                f"different crops of {height}×{width}, not {count}."
            )
        places = torch.randperm(free_rows * free_columns, generator=seeded(seed))[:count].tolist()
        crops = (
            region.crop(box.top + p // free_columns, box.left + p % free_columns, height, width)
            for p in places
        )
        return cls(name, tuple(MaskEntry.of(crop) for crop in crops), seed)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def id(self) -> str:
        """Stable id of the list of masks, whatever the set is called."""
        ids = ",".join(entry.mask_id for entry in self.entries)
        return hashlib.sha256(ids.encode()).hexdigest()[:12]

    def to_record(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON or TOML."""
        entries = [dataclasses.asdict(entry) for entry in self.entries]
        return {"name": self.name, "seed": self.seed, "id": self.id, "masks": entries}


# --- training and test masks share no pixel ------------------------------------------------------


@dataclass(frozen=True)
class MaskAlias:
    """Two calibrations of one physical aperture: `source` shows a part of `of`."""

    source: str
    """Hash or name of the smaller one."""
    of: str
    """Hash or name of the larger one."""
    row: int
    """Row of the larger one at which the smaller one begins."""
    column: int
    """Column at which it begins."""
    margin: int = 1
    """Pixels by which the alignment may be off; they count as shared too."""


KNOWN_ALIASES: tuple[MaskAlias, ...] = (
    MaskAlias("tsanet_sim_256", "tsanet_real_660", 202, 201),
    MaskAlias("e3a0e04e4f98", "0fb1bf8b4a84", 202, 201),  # the same two, whatever the files' names
)
"""The calibrations of one aperture that are in common use."""

MaskSource = MaskRegion | MaskEntry | MaskSet


def check_disjoint(
    train: MaskSource | Iterable[MaskSource],
    test: MaskSource | Iterable[MaskSource],
    aliases: Sequence[MaskAlias] = KNOWN_ALIASES,
) -> None:
    """Raise `OverlapError` if a training and a test mask share a pixel of one aperture.

    Two masks come from one aperture when their sources have the same hash, or when an alias says
    so.
    """
    test_parts = _parts(test)
    for seen in _parts(train):
        for unseen in test_parts:
            shared = _shared(seen, unseen, aliases)
            if shared is not None:
                name, box = shared
                raise OverlapError(
                    f"training mask {seen.name} ({seen.rectangle.text()}) and test mask "
                    f"{unseen.name} ({unseen.rectangle.text()}) share {box.text()} of {name}. "
                    "Take the test masks from another region."
                )


def _parts(sources: MaskSource | Iterable[MaskSource]) -> list[MaskRegion | MaskEntry]:
    if isinstance(sources, MaskRegion | MaskEntry):
        return [sources]
    if isinstance(sources, MaskSet):
        return list(sources.entries)
    return [part for source in sources for part in _parts(source)]


def _shared(
    one: MaskRegion | MaskEntry, other: MaskRegion | MaskEntry, aliases: Sequence[MaskAlias]
) -> tuple[str, Rectangle] | None:
    for key, box in _frames(one, aliases).items():
        other_box = _frames(other, aliases).get(key)
        both = box.shared(other_box) if other_box is not None else None
        if both is not None:
            names = {one.source_hash: one.name, other.source_hash: other.name}
            return names.get(key, key), both
    return None


def _frames(part: MaskRegion | MaskEntry, aliases: Sequence[MaskAlias]) -> dict[str, Rectangle]:
    """The part's rectangle in every frame that it is known to lie in."""
    called = (part.source_hash, part.name)
    frames = {part.source_hash: part.rectangle}
    for alias in aliases:
        if alias.of in called:
            frames.setdefault(alias.of, part.rectangle)
        if alias.source in called:
            frames[alias.of] = part.rectangle.moved(alias.row, alias.column, alias.margin)
    return frames


def combine_calibrations(calibrations: Sequence[MaskLike] | NDArray[Any]) -> Mask:
    """One mask of two or more calibrations: their mean, and as `std` their standard deviation.

    calibrations: a list of masks, files or arrays `(H, W)` or `(C, H, W)`; or an array `(N, H, W)`.

    The standard deviation is that of one calibration, not of the mean: light, focus and position
    change from one to the next, and the snapshot is one more of them.

    >>> mask = combine_calibrations(np.array([[[0.1, 0.9]], [[0.3, 0.9]]]))
    >>> mask.values.round(3), mask.std.round(3)
    (array([[0.2, 0.9]], dtype=float32), array([[0.141, 0.   ]], dtype=float32))
    """
    masks = [as_mask(one, f"calibration {number}") for number, one in enumerate(calibrations, 1)]
    sizes = dict.fromkeys(size_text(mask.values.shape) for mask in masks)
    if len(masks) < 2 or len(sizes) > 1:
        came = f"{len(masks)} came" if len(masks) < 2 else f"they are {', '.join(sizes)}"
        raise ShapeError(
            f"a spread needs two or more calibrations of one mask, all of one size; {came}."
        )
    stack = np.stack([mask.values for mask in masks]).astype(np.float64)
    attrs = {**masks[0].attrs, "calibrations": len(masks)}
    # Masks lie in [0, 1], so that no deviation exceeds 1 either.
    return Mask(stack.mean(0), masks[0].wavelengths, attrs, stack.std(0, ddof=1))
