"""Listed sets of test masks, and the proof that training never saw them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.errors import FormatError, OverlapError, ShapeError
from prismask.optics.masks import MaskRegion, Rectangle, Size, as_size
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask


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

    def regions(self, sources: Mask | Iterable[Mask]) -> list[MaskRegion]:
        """The listed masks, cut from their sources and checked against the list."""
        known = {mask.hash: mask for mask in ([sources] if isinstance(sources, Mask) else sources)}
        return [_cut(entry, known) for entry in self.entries]

    def to_tensor(self, sources: Mask | Iterable[Mask], device: str = "cpu") -> Tensor:
        """All masks of the set, `(N, 1|C, h, w)` float32."""
        regions = self.regions(sources)
        if len({entry.rectangle.size for entry in self.entries}) > 1:
            raise ShapeError(f"mask set {self.name} holds several sizes; take its regions singly.")
        batch = torch.from_numpy(np.stack([region.values for region in regions])).to(device)
        return batch.unsqueeze(1) if batch.ndim == 3 else batch

    def to_record(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON or TOML."""
        entries = [dataclasses.asdict(entry) for entry in self.entries]
        return {"name": self.name, "seed": self.seed, "id": self.id, "masks": entries}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MaskSet:
        """Read what `to_record` gave; a list that was edited is refused."""
        try:
            entries = tuple(MaskEntry(**entry) for entry in record["masks"])
            found = cls(str(record["name"]), entries, record.get("seed"))
        except (KeyError, TypeError) as error:
            text = json.dumps(list(record))
            raise FormatError(f"this is not a mask set (its keys: {text}): {error}.") from error
        if record.get("id", found.id) != found.id:
            raise FormatError(
                f"mask set {found.name} says it is {record['id']}, but its list is {found.id}: "
                "the list was changed. Draw it again."
            )
        return found


def _cut(entry: MaskEntry, sources: Mapping[str, Mask]) -> MaskRegion:
    if entry.source_hash not in sources:
        have = ", ".join(sources) or "none"
        raise FormatError(
            f"mask {entry.mask_id} comes from {entry.name} with hash {entry.source_hash}; the "
            f"sources given have {have}. Give the mask file that the list was made from."
        )
    region = MaskRegion(sources[entry.source_hash], entry.rectangle, entry.name)
    if region.mask_id != entry.mask_id:
        raise FormatError(
            f"{entry.rectangle.text()} of {entry.name} has the id {region.mask_id}; the list says "
            f"{entry.mask_id}. The list was changed."
        )
    return region


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
