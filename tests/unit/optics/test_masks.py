"""Regions and crops of a large mask."""

from __future__ import annotations

import numpy as np
import pytest

from prismask.errors import ShapeError
from prismask.optics.masks import MaskRegion, Rectangle
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
    assert not crop.values.flags.writeable


def test_ids_follow_the_pixels(source: Mask) -> None:
    region = MaskRegion.of(source)
    same = MaskRegion.of(Mask(source.values.copy()), name="another name")
    assert region.crop(1, 2, 5, 5).mask_id == same.crop(1, 2, 5, 5).mask_id
    assert region.crop(1, 2, 5, 5).mask_id != region.crop(1, 3, 5, 5).mask_id


def test_messages_say_what_fits(source: Mask) -> None:
    region = MaskRegion.of(source, rows=(5, 25), name="lab")
    with pytest.raises(ShapeError, match=r"26×26 does not fit .* lab, which is 20×40"):
        region.crop(5, 0, 26, 26)
    with pytest.raises(ShapeError, match=r"rows 4–9, columns 0–5 leaves .* rows 5–24"):
        region.crop(4, 0, 6, 6)
    with pytest.raises(ShapeError, match="does not fit"):
        region.crop(5, 0, 21, 6)
    with pytest.raises(ShapeError, match="rows 0–29, columns 0–39; rows 0–30"):
        MaskRegion.of(source, rows=(0, 31), name="lab")
    with pytest.raises(ShapeError, match="not a part"):
        MaskRegion.of(source, rows=(9, 9))


def test_rectangles_share_what_both_cover() -> None:
    one = Rectangle(0, 0, 10, 10)
    assert one.shared(Rectangle(9, 9, 20, 20)) == Rectangle(9, 9, 10, 10)
    assert one.shared(Rectangle(10, 0, 20, 10)) is None
    assert one.moved(3, 4, margin=1) == Rectangle(2, 3, 14, 15)
