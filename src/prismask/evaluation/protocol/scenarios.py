"""The three scenarios: which masks a trial draws, and which groups are kept apart.

    one-to-one     trained and tested on the single mask: one trial
    one-to-many    trained on the single mask, tested on crops of other regions
    many-to-many   trained on crops of the training region, tested on crops of other regions

A trial draws one mask and photographs all scenes through it. The masks of a group are drawn
without replacement with a seed and listed in the result, so anybody can use the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.checks import choose, size_text
from prismask.errors import ConfigError, OverlapError, ShapeError
from prismask.evaluation.protocol.splits import PROTOCOLS, SINGLE, EvaluationSplit
from prismask.optics.fabricate import fabricate_mask, random_aperture
from prismask.optics.masks import MaskEntry, MaskRegion, MaskSet, check_disjoint
from prismask.optics.randomness import seed_of, seeded
from prismask.scenes.records import Mask

FABRICATED = "fabricated"
"""A group that every split has: masks of made-up instruments, of any size."""
GROUP_TEXTS = {
    SINGLE: "the single mask",
    "test_same_hardware": "same hardware, unseen region",
    "test_other_hardware": "other hardware",
    FABRICATED: "each of an instrument of its own",
}
"""What people call the groups of the built-in split."""


@dataclass(frozen=True, eq=False)
class Group:
    """Masks that belong together in every table."""

    name: str
    region: MaskRegion
    """Where the masks are cut from."""
    masks: MaskSet
    """One mask per trial."""
    other: MaskRegion | None = None
    """A second calibration of the one mask, where there is one."""

    def __len__(self) -> int:
        return len(self.masks)

    def mask(self, trial: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask of a trial, `(1, 1|C, H, W)`."""
        entry = self.masks.entries[trial]
        crop = self.region.crop(entry.row, entry.column, entry.height, entry.width)
        return crop.to_tensor(device)

    @property
    def text(self) -> str:
        """Name, meaning and origin in one line."""
        meaning = GROUP_TEXTS.get(self.name)
        named = f"{self.name} ({meaning})" if meaning else self.name
        return f"{named}: {self.region.name} {self.region.rectangle.text()}"


def group_names(
    protocol: str, split: EvaluationSplit, wanted: Sequence[str] | None, allow_overlap: bool
) -> tuple[list[str], list[str]]:
    """The groups that a protocol tests on, and remarks about groups that were left out."""
    choose(protocol, PROTOCOLS, "protocol")
    if wanted:
        return list(wanted), []
    if protocol in split.protocols:
        return list(split.protocols[protocol]), []
    if protocol == "one-to-one":
        return [SINGLE], []
    tests = [name for name in split.regions if name.startswith("test")]
    if not tests:
        raise ConfigError("the split has no masks to test on: name them test_… in [masks].")
    if protocol == "many-to-many" or allow_overlap or SINGLE not in split.regions:
        return tests, []
    return _without_the_single_mask(tests, split)


def _without_the_single_mask(
    tests: list[str], split: EvaluationSplit
) -> tuple[list[str], list[str]]:
    """In one-to-many the single mask was trained on: groups that share its pixels are left out."""
    single, kept, remarks = split.region(SINGLE), [], []
    for name in tests:
        try:
            check_disjoint(single, split.region(name))
            kept.append(name)
        except OverlapError as error:
            remarks.append(
                f"{name} was left out: every model of this scenario was trained on the single "
                f"mask, and {error}"
            )
    if not kept:
        raise OverlapError(
            "every group of test masks shares pixels with the single mask. Add masks of another "
            "instrument, or pass --allow-overlap to see the scores marked."
        )
    return kept, remarks


def draw_groups(
    regions: Mapping[str, MaskRegion | None],
    protocol: str,
    trials: int,
    size: tuple[int, int],
    seed: int,
) -> dict[str, Group]:
    """Draw the masks of every group: `trials` crops of `size`, or the single mask itself.

    A group without a region gets fabricated masks.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}; at least 1 is needed.")
    groups = {}
    for name, region in regions.items():
        count = 1 if protocol == "one-to-one" else trials
        if region is None:
            groups[name] = _fabricated(name, count, size, seed)
            continue
        if protocol == "one-to-one" and region.size != size:
            raise ShapeError(
                f"one-to-one tests on one mask, but {name} ({region.name}) is "
                f"{size_text(region.size)} where these scenes need {size_text(size)}. Give rows "
                "and columns that cut exactly one mask."
            )
        masks = MaskSet.draw(region, count, size, seed_of(seed, "masks", name), name)
        groups[name] = Group(name, region, masks)
    return groups


def _fabricated(name: str, count: int, size: tuple[int, int], seed: int) -> Group:
    """Masks below each other on one sheet; more trials leave the earlier masks as they are."""
    made = []
    for trial in range(count):
        generator = seeded(seed_of(seed, FABRICATED, trial))
        made.append(fabricate_mask(size, generator, random_aperture(generator)))
    sheet = MaskRegion.of(Mask(torch.cat(made).numpy()), name=name)
    crops = (sheet.crop(trial * size[0], 0, *size) for trial in range(count))
    return Group(name, sheet, MaskSet(name, tuple(MaskEntry.of(crop) for crop in crops), seed))
