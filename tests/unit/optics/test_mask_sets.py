"""Listed test masks, and the check that training never saw a pixel of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from prismask.errors import OverlapError, ShapeError
from prismask.optics.masks import (
    KNOWN_ALIASES,
    MaskAlias,
    MaskRegion,
    MaskSet,
    check_disjoint,
)
from prismask.scenes.records import Mask


def random_mask(height: int, width: int, seed: int) -> Mask:
    return Mask(np.random.default_rng(seed).random((height, width), dtype=np.float32))


@pytest.fixture(scope="module")
def source() -> Mask:
    return random_mask(60, 50, 0)


def test_one_seed_gives_one_set(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(30, 60), name="lab")
    drawn = MaskSet.draw(region, 20, 16, seed=5)
    assert drawn == MaskSet.draw(region, 20, 16, seed=5)
    assert drawn.id != MaskSet.draw(region, 20, 16, seed=6).id
    assert len({entry.rectangle for entry in drawn.entries}) == len(drawn) == 20
    assert all(region.rectangle.contains(entry.rectangle) for entry in drawn.entries)


def test_the_record_of_a_set_says_which_pixels(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(30, 60), name="lab")
    drawn = MaskSet.draw(region, 7, (16, 12), seed=5, name="unseen")
    record = json.loads(json.dumps(drawn.to_record()))
    assert (record["name"], record["seed"], record["id"]) == ("unseen", 5, drawn.id)
    for listed in record["masks"]:
        crop = region.crop(*(listed[key] for key in ("row", "column", "height", "width")))
        assert (crop.mask_id, crop.source_hash) == (listed["mask_id"], listed["source_hash"])


def test_every_crop_is_drawn_at_most_once(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(0, 16), columns=(0, 20), name="lab")
    assert len(MaskSet.draw(region, 5, 16, seed=0)) == 5
    with pytest.raises(ShapeError, match="only 5 different crops of 16×16, not 6"):
        MaskSet.draw(region, 6, 16, seed=0)
    with pytest.raises(ShapeError, match="17×17 does not fit"):
        MaskSet.draw(region, 1, 17, seed=0)


def test_neighbours_are_disjoint_and_one_shared_row_is_not(source: Mask) -> None:
    train = MaskRegion.of(source, rows=(0, 40), name="lab")
    check_disjoint(train, MaskRegion.of(source, rows=(40, 60), name="lab"))
    with pytest.raises(OverlapError, match="share rows 39–39, columns 0–49 of lab"):
        check_disjoint(train, MaskRegion.of(source, rows=(39, 60), name="lab"))


def test_sameness_is_in_the_pixels_not_in_the_name(source: Mask) -> None:
    copied = Mask(source.values.copy())
    with pytest.raises(OverlapError):
        check_disjoint(MaskRegion.of(source, name="one"), MaskRegion.of(copied, name="two"))
    other = random_mask(60, 50, 1)
    check_disjoint(MaskRegion.of(source, name="mask"), MaskRegion.of(other, name="mask"))


def test_sets_and_lists_are_checked_mask_by_mask(source: Mask) -> None:
    test = MaskSet.draw(MaskRegion.of(source, rows=(40, 60)), 5, 16, seed=0)
    train = [MaskRegion.of(source, rows=(0, 40)), MaskRegion.of(random_mask(20, 20, 2))]
    check_disjoint(train, test)
    with pytest.raises(OverlapError):
        check_disjoint([*train, test.entries[3]], [test])


def test_an_alias_joins_two_calibrations_of_one_aperture(source: Mask) -> None:
    second = MaskRegion.of(random_mask(20, 20, 3), name="second")
    aliases = [MaskAlias("second", "lab", row=30, column=10, margin=0)]
    above = MaskRegion.of(source, rows=(0, 30), name="lab")
    check_disjoint(above, second, aliases)
    with pytest.raises(OverlapError, match="share rows 30–30, columns 10–29 of lab"):
        check_disjoint(MaskRegion.of(source, rows=(0, 31), name="lab"), second, aliases)
    # Either way round, and by hash as well as by name.
    by_hash = [MaskAlias(second.source_hash, source.hash, row=30, column=10)]
    with pytest.raises(OverlapError):
        check_disjoint(second, MaskRegion.of(source, name="renamed"), by_hash)
    # The alignment is known to a pixel or so: the margin counts as shared.
    with pytest.raises(OverlapError):
        check_disjoint(above, second, [MaskAlias("second", "lab", row=30, column=10)])


@pytest.mark.data
def test_the_real_split_is_disjoint_and_the_single_mask_is_not(data_folder: Path) -> None:
    def read(name: str) -> Mask:
        return Mask(scipy.io.loadmat(data_folder / "masks" / f"{name}.mat")["mask"])

    split = json.loads((data_folder / "splits.json").read_text())["masks"]
    large, single = read("tsanet_real_660"), read("tsanet_sim_256")
    # Named as nobody would expect: the known alias must recognise the pixels.
    train = MaskRegion.of(large, *(tuple(split["train"][k]) for k in ("rows", "columns")), name="a")
    test = MaskRegion.of(large, tuple(split["test_same_hardware"]["rows"]), name="a")
    check_disjoint(train, test)
    check_disjoint(train, MaskSet.draw(test, 100, 256, seed=0))
    check_disjoint(MaskRegion.of(single, name="b"), MaskRegion.of(read("smem_real_660"), name="c"))
    for part in (train, test):
        with pytest.raises(OverlapError):
            check_disjoint(MaskRegion.of(single, name="b"), part)

    # The alias tells the truth: that place correlates best, far above its neighbours.
    alias = KNOWN_ALIASES[0]

    def likeness(row: int, column: int) -> float:
        window = large.values[row : row + 256, column : column + 256]
        return float(np.corrcoef(window.ravel(), single.values.ravel())[0, 1])

    assert likeness(alias.row, alias.column) > 0.85
    assert likeness(alias.row + 4, alias.column) < 0.1
