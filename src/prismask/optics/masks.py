"""Regions of a large calibrated mask and crops of them.

One calibrated aperture is larger than a scene, so it yields many masks. Rows and columns are
always counted in the **source** mask, half-open as Python slices are: a crop's position means
the same whichever region it was drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from prismask.checks import size_text
from prismask.errors import ShapeError
from prismask.scenes.records import Array, Mask, array_hash

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
    """A rectangle of a large mask; nothing is copied until pixels are asked for."""

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
        """Pixels as a float32 tensor `(1, 1|C, H, W)`; keep it for repeated `crop_batch` calls."""
        values = torch.tensor(self.values, device=device)
        return values[None, None] if values.ndim == 2 else values[None]

    def to_mask(self) -> Mask:
        """The region as a mask record of its own, with its origin in the attributes."""
        origin = {
            "source": self.name,
            "source_hash": self.source_hash,
            "source_row": self.rectangle.top,
            "source_column": self.rectangle.left,
        }
        box, std = self.rectangle, self.source.std
        if std is not None:
            std = std[..., box.top : box.bottom, box.left : box.right]
        attrs = {**self.source.attrs, **origin}
        return Mask(self.values, self.source.wavelengths, attrs, std)

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

    def random_crops(
        self, count: int, size: Size, generator: torch.Generator
    ) -> tuple[Tensor, list[tuple[int, int]]]:
        """Crops at random places, `(N, 1|C, h, w)` on the generator's device, with positions.

        Positions are (row, column) in the source. A training step keeps the region on its device
        and calls `draw_positions` and `crop_batch`, which never wait for the host.
        """
        rows, columns = self.draw_positions(count, size, generator)
        crops = crop_batch(self.to_tensor(generator.device), rows, columns, size)
        top, left = self.rectangle.top, self.rectangle.left
        places = zip(rows.tolist(), columns.tolist(), strict=True)
        return crops, [(top + row, left + column) for row, column in places]

    def draw_positions(
        self, count: int, size: Size, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Rows and columns `(N,)` of random crops, counted **in the region** for `crop_batch`."""
        height, width = as_size(size)
        self._check_fits((height, width))
        device = generator.device
        free_rows, free_columns = self.size[0] - height + 1, self.size[1] - width + 1
        rows = torch.randint(free_rows, (count,), generator=generator, device=device)
        columns = torch.randint(free_columns, (count,), generator=generator, device=device)
        return rows, columns

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


def crop_batch(region: Tensor, rows: Tensor, columns: Tensor, size: Size) -> Tensor:
    """Cut N windows out of one image in a single gather.

    `region` is `(H, W)`, `(C, H, W)` or `(1, C, H, W)`; `rows` and `columns` are `(N,)` whole
    numbers on its device, the upper left corners counted in `region`. Gives `(N, 1|C, h, w)`.
    """
    height, width = as_size(size)
    if region.ndim == 4 and region.shape[0] == 1:
        region = region[0]
    planes = region[None] if region.ndim == 2 else region
    if planes.ndim != 3:
        raise ShapeError(f"crops come from one image, not from {size_text(region.shape)}.")
    if height > planes.shape[1] or width > planes.shape[2]:
        raise ShapeError(
            f"a crop of {size_text((height, width))} does not fit an image of "
            f"{size_text(planes.shape[1:])}."
        )
    # Too large a number is refused by the indexing itself, but a negative one would count from
    # the end. On a GPU looking at the numbers would make it wait, so only the CPU looks.
    if rows.device.type == "cpu" and bool((torch.minimum(rows, columns) < 0).any()):
        raise ShapeError("crop positions start at 0; negative ones were given.")
    # A view of all windows at all places, (H', W', C, h, w), of which N are picked.
    windows = planes.unfold(1, height, 1).unfold(2, width, 1).permute(1, 2, 0, 3, 4)
    return windows[rows, columns]
