"""Regions and crops of a large mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prismask.errors import ShapeError
from prismask.optics.masks import MaskRegion, Rectangle, crop_batch
from prismask.optics.randomness import seeded
from prismask.scenes.records import Mask


@pytest.fixture
def source() -> Mask:
    # Every pixel has its own value, so a crop tells where it came from.
    return Mask(np.arange(30 * 40, dtype=np.float32).reshape(30, 40) / 1200)


def test_a_crop_is_that_part_of_the_source(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(5, 25), columns=(10, 40), name="lab")
    crop = region.crop(7, 12, 3, 4)
    np.testing.assert_array_equal(crop.values, source.values[7:10, 12:16])
    assert (crop.rows, crop.columns, crop.size) == ((7, 10), (12, 16), (3, 4))
    assert crop.source_hash == source.hash == region.source_hash
    assert crop.to_mask().attrs["source_row"] == 7
    assert not crop.values.flags.writeable


def test_ids_follow_the_pixels(source: Mask) -> None:
    region = MaskRegion.of(source)
    same = MaskRegion.of(Mask(source.values.copy()), name="another name")
    assert region.crop(1, 2, 5, 5).mask_id == same.crop(1, 2, 5, 5).mask_id
    assert region.crop(1, 2, 5, 5).mask_id != region.crop(1, 3, 5, 5).mask_id


@pytest.mark.parametrize("shape", [(30, 40), (3, 30, 40), (1, 3, 30, 40)])
def test_crop_batch_equals_slicing(shape: tuple[int, ...]) -> None:
    image = torch.rand(shape, generator=seeded(0))
    rows, columns = torch.tensor([0, 25, 3, 3]), torch.tensor([0, 34, 3, 7])
    crops = crop_batch(image, rows, columns, (5, 6))
    planes = image.reshape(-1, 30, 40)
    assert crops.shape == (4, planes.shape[0], 5, 6)
    for n, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        assert torch.equal(crops[n], planes[:, row : row + 5, column : column + 6])


@pytest.mark.parametrize("row", [-1, 26])
def test_crop_batch_refuses_positions_outside(row: int) -> None:
    with pytest.raises((ShapeError, IndexError)):
        crop_batch(torch.rand(30, 40), torch.tensor([row]), torch.tensor([0]), 5)


def test_random_crops_list_their_positions(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(5, 25), columns=(10, 40))
    crops, places = region.random_crops(50, (6, 7), seeded(3))
    assert crops.shape == (50, 1, 6, 7)
    for crop, (row, column) in zip(crops, places, strict=True):
        np.testing.assert_array_equal(crop[0], source.values[row : row + 6, column : column + 7])
    again, same_places = region.random_crops(50, (6, 7), seeded(3))
    assert torch.equal(crops, again)
    assert places == same_places
    assert region.random_crops(50, (6, 7), seeded(4))[1] != places


def test_random_crops_reach_every_place_and_no_other(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(5, 10), columns=(10, 14))
    _, places = region.random_crops(500, 3, seeded(0))
    assert set(places) == {(row, column) for row in (5, 6, 7) for column in (10, 11)}


def test_a_mask_with_planes_is_cropped_in_all(source: Mask) -> None:
    layered = Mask(np.stack([source.values, source.values / 2]))
    crops, places = MaskRegion.of(layered).random_crops(3, 8, seeded(1))
    assert crops.shape == (3, 2, 8, 8)
    row, column = places[0]
    np.testing.assert_array_equal(crops[0], layered.values[:, row : row + 8, column : column + 8])


def test_messages_say_what_fits(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(5, 25), name="lab")
    with pytest.raises(ShapeError, match=r"26×26 does not fit .* lab, which is 20×40"):
        region.random_crops(1, 26, seeded(0))
    with pytest.raises(ShapeError, match=r"rows 4–9, columns 0–5 leaves .* rows 5–24"):
        region.crop(4, 0, 6, 6)
    with pytest.raises(ShapeError, match="does not fit"):
        region.crop(5, 0, 21, 6)
    with pytest.raises(ShapeError, match="rows 0–29, columns 0–39; rows 0–30"):
        MaskRegion.of(source, rows=(0, 31), name="lab")
    with pytest.raises(ShapeError, match="not a part"):
        MaskRegion.of(source, rows=(9, 9))
    with pytest.raises(ShapeError, match="does not fit an image of 4×4"):
        crop_batch(torch.rand(4, 4), torch.tensor([0]), torch.tensor([0]), 5)
    with pytest.raises(ShapeError, match="one image"):
        crop_batch(torch.rand(2, 1, 9, 9), torch.tensor([0]), torch.tensor([0]), 5)


def test_rectangles_share_what_both_cover() -> None:
    one = Rectangle(0, 0, 10, 10)
    assert one.shared(Rectangle(9, 9, 20, 20)) == Rectangle(9, 9, 10, 10)
    assert one.shared(Rectangle(10, 0, 20, 10)) is None
    assert one.moved(3, 4, margin=1) == Rectangle(2, 3, 14, 15)
