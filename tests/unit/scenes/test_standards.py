"""Tables that lie beside the code are those of the library they can be checked against."""

from __future__ import annotations

import warnings

import numpy as np

from prismask.scenes.colour import observer, observer_at


def test_the_observer_is_that_of_colour_science() -> None:
    with warnings.catch_warnings(), np.printoptions():
        warnings.simplefilter("ignore")
        import colour
    reference = colour.MSDS_CMFS["CIE 1931 2 Degree Standard Observer"]
    wavelengths, functions = observer()
    np.testing.assert_array_equal(wavelengths, reference.wavelengths)
    np.testing.assert_array_equal(functions, np.asarray(reference.values).T)
    assert observer_at([555.0])[1, 0] > 0.99
    assert not observer_at([200.0, 900.0]).any()
