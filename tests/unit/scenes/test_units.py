"""Numbers of files in the units of the library: counts, scales, wavelengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prismask.errors import FormatError, ValuesError
from prismask.scenes.records import Measurement
from prismask.scenes.units import (
    check_nanometres,
    full_count,
    is_count,
    is_length,
    kaist_to_fraction,
    noted_counts,
    noted_scale,
    to_fraction,
    to_nanometres,
    unscaled,
    without_units,
)


@pytest.mark.parametrize(
    ("kind", "values", "fractions", "full"),
    [
        ("u1", [0, 51, 255], [0, 0.2, 1], 255),
        ("u2", [0, 13107, 65535], [0, 0.2, 1], 65535),
        (">u2", [0, 13107, 65535], [0, 0.2, 1], 65535),
        ("i1", [-127, 0, 127], [-1, 0, 1], 127),
        ("i1", [-1, 0, 1], [-1 / 127, 0, 1 / 127], 127),  # noise around 0, and no binary mask
        ("i2", [0, 32767], [0, 1], 32767),
        ("u1", [0, 2], [0, 2 / 255], 255),
        ("u1", [0, 1], [0, 1], 1),
        ("i8", [0, 1], [0, 1], 1),
        ("f4", [-3.0, 300.0], [-3, 300], None),
        ("u1", [], [], None),
    ],
)
def test_full_scale_is_that_of_the_type(
    kind: str, values: list[float], fractions: list[float], full: int | None
) -> None:
    given = np.array(values, dtype=kind)
    np.testing.assert_allclose(to_fraction(given), fractions, rtol=1e-6)
    assert full_count(given) == full
    assert noted_counts({"full_scale_counts": full}) == full


def test_wide_integers_have_no_full_scale() -> None:
    for kind in ("i4", "u8"):
        with pytest.raises(ValuesError, match="from 0 to 2, and such integers have no known"):
            to_fraction(np.array([0, 2], dtype=kind))
    assert noted_counts({"full_scale_counts": 4095}) is None
    assert noted_counts({}) is None


@pytest.mark.parametrize(
    ("kind", "shape", "value", "fraction"),
    [
        ("u2", (1, 2, 2), 32768, 0.5), ("f4", (1, 2, 2), 32768, 0.5), ("f4", (1, 2, 2), 256, 256),
        ("f8", (2, 2), 32768, 32768), ("u2", (2, 2), 13107, 0.2), ("u1", (1, 2, 2), 51, 0.2),
    ],
)  # fmt: skip
def test_counts_of_kaist(kind: str, shape: tuple[int, ...], value: float, fraction: float) -> None:
    np.testing.assert_allclose(kaist_to_fraction(np.full(shape, value, kind)), fraction, rtol=1e-6)


def test_a_scale_counts_with_its_rule_only() -> None:
    values = np.full((2, 3), 0.5, np.float32)
    ours = Measurement(values, attrs={"scale": 0.25, "scale_rule": "fit"})
    np.testing.assert_array_equal(unscaled(ours), 2.0)
    assert noted_scale(Measurement(values, attrs={"scale": 0.25})) == 1.0
    np.testing.assert_array_equal(unscaled(Measurement(values)), 0.5)
    bad: list[Any] = [0, -1.0, "1", float("nan"), float("inf")]
    for scale in bad:
        with pytest.raises(FormatError, match="a number above 0"):
            noted_scale(Measurement(values, attrs={"scale": scale, "scale_rule": "fit"}))


@pytest.mark.parametrize(
    ("units", "value", "nm"),
    [
        ("nm", 450, 450), ("Nanometers", 450, 450), ("µm", 0.4533, 453.3), ("micron", 0.45, 450),
        ("mm", 4.5e-4, 450), ("m", 4.5e-7, 450), ("Angstrom", 4500, 450), ("Å", 4500, 450),
        (None, 450, 450), (None, 0.45, 450), ("unknown", 0.45, 450), ("", 99.9, 99900),
        ("1", 100, 100), ("nm", 0.45, 0.45),
    ],
)  # fmt: skip
def test_wavelengths_in_nanometres(units: str | None, value: float, nm: float) -> None:
    assert to_nanometres([value, value], units).tolist() == [nm, nm]


SPELLINGS = {
    1.0: "nm NM nanometer nanometers nanometre nanometres",
    1e3: "um µm μm micron Microns micrometer micrometers micrometre micrometres",
    0.1: "å Å angstrom angstroms",
}
"""Nanometres in a unit, and the words that files have for it."""


@pytest.mark.parametrize(
    ("word", "factor"), [(w, factor) for factor, words in SPELLINGS.items() for w in words.split()]
)
def test_every_spelling_of_a_unit(word: str, factor: float) -> None:
    assert to_nanometres([450 / factor, 700 / factor], f" {word} ").tolist() == [450, 700]
    assert is_length(word)


def test_units_that_are_none() -> None:
    with pytest.raises(FormatError, match="'furlongs'; known are"):
        to_nanometres([450], "furlongs")
    assert [is_length(word) for word in ("nm", "Å", "", "1", "K", None)] == [True] * 2 + [False] * 4
    assert [without_units(word) for word in ("", "1", None, "nm")] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([0.4, 0.7], "µm.*multiply them by 1000: 400 to 700"), ([4e-4, 7e-4], "In mm"),
        ([4e-7, 7e-7], r"In m\?.*1e\+09"), ([1.0, 500.0], "they are in nm, and no optical"),
        ([99.0, 700.0], "they are in nm, and no optical"), ([0.0, 1.0], "no optical"),
    ],
)  # fmt: skip
def test_other_units_are_told(listed: list[float], said: str) -> None:
    with pytest.raises(ValuesError, match=said):
        check_nanometres(listed)
    check_nanometres([100.0, 2500.0])


def test_a_count_is_no_list_of_wavelengths() -> None:
    found = [is_count(one) for one in ([0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 2], [1], [], [0.5])]
    assert found == [True, True, False, False, True, False, False]
