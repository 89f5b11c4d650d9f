"""Figures: right numbers in the map, readable PNGs out, the same twice."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from prismask.errors import MissingPartError, ShapeError, ValuesError
from prismask.evaluation.figures import style as figures
from prismask.evaluation.figures.demo import (
    bands_figure,
    error_figure,
    error_map,
    overview_figure,
    spectra_figure,
)
from prismask.scenes.records import Cube

AT = np.linspace(450, 650, 6)


def _pair() -> tuple[Cube, Cube]:
    truth = Cube(np.random.default_rng(0).random((6, 20, 24)) * 0.5, AT)
    return Cube(truth.values + 0.03, AT), truth


def _size(png: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(png)) as picture:
        picture.load()
        return picture.size


def test_error_map_is_the_rms_over_bands_in_percent() -> None:
    estimate, truth = _pair()
    np.testing.assert_allclose(error_map(estimate, truth), 3.0, rtol=1e-4)
    values = truth.values.copy()
    values[2, 5, 7] += 0.6
    spot = error_map(Cube(values, AT), truth)
    assert spot[5, 7] == pytest.approx(100 * 0.6 / np.sqrt(6), rel=1e-4)
    assert np.count_nonzero(spot) == 1


def test_error_map_refuses_other_sizes() -> None:
    estimate, truth = _pair()
    with pytest.raises(ShapeError, match="differ in size"):
        error_map(estimate, Cube(truth.values[:, 1:], AT))


def test_every_figure_is_a_png_and_reproducible() -> None:
    estimate, truth = _pair()
    patches = {"a": (slice(0, 4), slice(0, 4)), "b": (slice(8, 12), slice(8, 12))}
    swatches = {"a": (0.2, 0.4, 0.6), "b": (0.9, 0.1, 0.1)}
    grey = np.zeros((20, 29), np.uint8)
    colour = np.zeros((20, 24, 3), np.uint8)
    low, high = estimate.values - 0.1, estimate.values + 0.1
    bounded = Cube(estimate.values, AT, lower=low, upper=high)
    drawings = {
        "error": lambda: error_figure(estimate, truth),
        "spectra": lambda: spectra_figure(estimate, truth, patches, swatches),
        "spectra with interval": lambda: spectra_figure(bounded, truth, patches),
        "plain spectra": lambda: spectra_figure(estimate, truth, patches, columns=1),
        "bands": lambda: bands_figure(estimate, truth, 3),
        "overview": lambda: overview_figure(grey, colour, estimate, truth, patches, swatches),
    }
    for name, make in drawings.items():
        png = make()
        assert min(_size(png)) > 200, name
        if name == "error":
            assert png == make()


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"prismask\[report\]"):
        error_figure(*_pair())


def test_spectra_need_wavelengths() -> None:
    estimate, truth = _pair()
    with pytest.raises(ValuesError, match="wavelengths"):
        spectra_figure(estimate, Cube(truth.values), {"a": (slice(0, 2), slice(0, 2))})
