"""Curves of dispersions, against glass and gratings from the books."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prismask.errors import ConfigError, ValuesError
from prismask.optics.measured import Curve, fit_curve

SPREAD = 54.0


def places(index: NDArray[np.float64]) -> NDArray[np.float64]:
    return SPREAD * (index - index[0]) / (index[-1] - index[0])


def bk7(nm: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sellmeier's formula with the maker's numbers: nothing of a power series is in it."""
    square = (nm / 1000) ** 2
    terms = ((1.03961212, 0.00600069867), (0.231792344, 0.0200179144), (1.01046945, 103.560653))
    return np.sqrt(1 + sum(b * square / (square - c) for b, c in terms))


@pytest.mark.parametrize(("count", "miss"), [(3, 0.3), (4, 0.1), (5, 0.03), (8, 0.01)])
def test_a_prism_is_told_from_few_places(count: int, miss: float) -> None:
    nm = np.linspace(450, 650, 401)
    px = places(bk7(nm))
    some = np.linspace(0, 400, count).astype(int)
    curve, left_out = fit_curve(nm[some], px[some])
    assert curve.power == -2
    assert np.abs(curve(nm) - px).max() < miss
    assert left_out < 4 * miss


def test_a_grating_keeps_its_straight_line() -> None:
    nm = np.array([450.0, 500.0, 590.0, 650.0])
    noise = np.array([0.01, -0.01, 0.01, -0.01])
    curve, left_out = fit_curve(nm, (nm - 450) / 4 + noise)
    assert (curve.power, len(curve.coefficients)) == (1, 2)
    assert left_out < 0.05
    assert str(Curve((-60, 0.2, -1e-4))) == "-60 +0.2·nm^1 -0.0001·nm^2"


def test_two_places_are_a_line_and_nobody_can_tell_how_good() -> None:
    curve, left_out = fit_curve(np.array([450.0, 650.0]), np.array([0.0, 20.0]))
    assert curve(550) == pytest.approx(10)
    assert np.isnan(left_out)


def test_what_is_no_curve() -> None:
    nm = np.array([450.0, 500.0, 550.0, 650.0])
    with pytest.raises(ValuesError, match="swapped"):
        fit_curve(nm, np.array([0.0, 20.0, 5.0, 30.0]))
    with pytest.raises(ValuesError, match=r"hardly move against each other \(0\.02 px"):
        fit_curve(nm, np.array([0.0, 0.01, 0.02, 0.0]))
    with pytest.raises(ConfigError, match="degree 4 needs 5 wavelengths"):
        fit_curve(nm, np.array([0.0, 6.0, 12.0, 20.0]), 4)
