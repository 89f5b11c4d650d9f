"""Lamps in the bands of a camera."""

from __future__ import annotations

import numpy as np
import pytest

from prismask.errors import ConfigError
from prismask.scenes.colour import band_edges, illuminant_at, lamp_in_bands, lamp_names
from prismask.scenes.defaults import WAVELENGTHS_NM


@pytest.mark.parametrize("name", lamp_names())
def test_the_table_holds_the_published_figures(name: str) -> None:
    # Bands of a hundredth of a nanometre: the mean over one is its centre's value.
    fine = np.arange(434.0, 437.0, 0.01)
    np.testing.assert_allclose(lamp_in_bands(name, fine), illuminant_at(name, fine), atol=2e-3)


def test_a_line_is_shared_by_the_bands_that_see_it() -> None:
    """FL11 has its strongest line at 545 nm, the table's other points there are far lower."""
    bands = lamp_in_bands("FL11", WAVELENGTHS_NM)
    assert bands.max() == 1
    assert WAVELENGTHS_NM[int(bands.argmax())] == 543.8
    assert np.sort(bands)[-3] < 0.5
    coarse = lamp_in_bands("FL11", [500.0, 540.0, 580.0])
    sampled = illuminant_at("FL11", [500.0, 540.0, 580.0])
    assert coarse[0] < 0.5 * coarse[1]
    assert not np.allclose(coarse, sampled, atol=0.05), "bands of 40 nm collect what lies between"


def test_edges_lie_halfway() -> None:
    low, high = band_edges([500.0, 510.0, 530.0])
    assert low.tolist() == [495, 505, 520]
    assert high.tolist() == [505, 520, 540]
    low, high = band_edges([530.0])
    assert (low.tolist(), high.tolist()) == ([525], [535])
    assert lamp_in_bands("HP1", [550.0]).tolist() == [1.0]


def test_an_unknown_lamp_is_named() -> None:
    with pytest.raises(ConfigError, match="FL11"):
        lamp_in_bands("FL111", WAVELENGTHS_NM)
