"""Shifts of pictures, against pictures that were made by counting."""

from __future__ import annotations

import numpy as np
import pytest
from fine_mask import FineMask
from scipy import ndimage

from prismask.errors import ShapeError, ValuesError
from prismask.optics.measured import find_shift, moved

SENSOR = (72, 120)
MASK = FineMask((64, 80))
START = MASK.picture(SENSOR, 2.0, 2.0)


@pytest.mark.parametrize(
    ("down", "right"), [(0, 0), (0, 0.5), (0.35, 0), (-1.2, 3.45), (3.7, 17.25), (1.05, 34.6)]
)
def test_planted_shifts_come_back(down: float, right: float) -> None:
    found = find_shift(START, MASK.picture(SENSOR, 2.0 + right, 2.0 + down))
    assert found.down == pytest.approx(down, abs=0.03)
    assert found.right == pytest.approx(right, abs=0.03)
    assert found.likeness > 0.95


def test_gain_level_uneven_light_and_noise_do_not_move_it() -> None:
    light = 0.3 + 0.5 * np.linspace(0, 1, SENSOR[1]) + 0.1 * np.sin(np.arange(72) / 20)[:, None]
    noise = 0.02 * np.random.default_rng(1).standard_normal(SENSOR)
    found = find_shift(START, 0.07 + light * MASK.picture(SENSOR, 14.3, 2.6) + noise)
    assert (found.right, found.down) == (
        pytest.approx(12.3, abs=0.05),
        pytest.approx(0.6, abs=0.05),
    )
    assert found.likeness > 0.9


def test_the_way_back_is_the_same_way() -> None:
    other = MASK.picture(SENSOR, 9.65, 2.25)
    there, back = find_shift(START, other), find_shift(other, START)
    assert there.right == pytest.approx(-back.right, abs=0.01)
    assert there.down == pytest.approx(-back.down, abs=0.01)


def test_a_pattern_that_is_magnified_moves_unevenly() -> None:
    start = FineMask((160, 160)).picture((160, 200), 4.0)
    for larger, least, most in ((0.0, 0.0, 0.05), (0.005, 0.25, 0.6)):
        # About the middle: corners 80 px away move by 0.4 px, the middles of quarters by half.
        rows, columns = np.mgrid[:160, :200].astype(float)
        at = ((rows - 80) / (1 + larger) + 80, (columns - 12.3 - 80) / (1 + larger) + 80)
        found = find_shift(start, ndimage.map_coordinates(start, at, order=3))
        assert found.right == pytest.approx(12.3, abs=0.2)
        assert least <= found.uneven <= most


def test_a_quarter_without_a_pattern_says_nothing() -> None:
    """A narrow scene on a wide sensor: half of what both show is noise."""
    random, narrow = np.random.default_rng(3), FineMask((64, 48))
    first, second = (
        narrow.picture((64, 200), right) + 0.02 * random.standard_normal((64, 200))
        for right in (60.0, 20.0)
    )
    assert find_shift(first, second).uneven < 0.1


def test_another_mask_is_not_like_it() -> None:
    other = FineMask((64, 80), seed=5).picture(SENSOR, 2.0, 2.0)
    assert abs(find_shift(START, other).likeness) < 0.3


def test_moving_by_whole_pixels_moves_by_whole_pixels() -> None:
    np.testing.assert_allclose(moved(START, 2, 3)[2:, 3:], START[:-2, :-3], atol=1e-9)


def test_what_has_no_shift() -> None:
    with pytest.raises(ShapeError, match="same size"):
        find_shift(START, START[:-1])
    with pytest.raises(ValuesError, match="no pattern"):
        find_shift(START, np.ones(SENSOR))
