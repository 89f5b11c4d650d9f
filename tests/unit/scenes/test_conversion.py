"""Records, files, arrays, tensors and xarray objects say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray

from prismask.errors import PrismaskError, ShapeError, ValuesError
from prismask.scenes.conversion import as_cube, as_mask, as_measurement
from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement

VALUES = np.random.default_rng(0).random((3, 5, 7), dtype=np.float32)
CUBE = Cube(VALUES, np.array([450.0, 550.0, 650.0]))


def test_a_cube_in_every_form(tmp_path: Path) -> None:
    save(CUBE, tmp_path / "cube.nc")
    labelled = CUBE.to_xarray()
    turned = labelled["cube"].transpose("y", "x", "wavelength")
    forms: tuple[Any, ...] = (
        CUBE, tmp_path / "cube.nc", str(tmp_path / "cube.nc"), VALUES, VALUES.tolist(),
        torch.tensor(VALUES), torch.tensor(VALUES)[None].requires_grad_(), labelled, turned,
    )  # fmt: skip
    for given in forms:
        cube = as_cube(given)
        assert isinstance(cube, Cube)
        np.testing.assert_array_equal(cube.values, VALUES)
    for given in (labelled, turned):
        np.testing.assert_array_equal(as_cube(given).wavelengths, CUBE.wavelengths)


def test_masks_and_measurements_of_a_batch_of_one() -> None:
    plane = torch.tensor(VALUES[0])
    assert as_measurement(plane[None]).size == (5, 7)
    assert as_mask(plane[None, None]).values.shape == (5, 7)
    assert as_mask(torch.tensor(VALUES)[None]).values.shape == (3, 5, 7)
    assert as_mask(xarray.DataArray(VALUES[0], dims=("row", "col"))).size == (5, 7)
    half = as_mask(plane.to(torch.bfloat16))
    np.testing.assert_allclose(half.values, VALUES[0], atol=0.01)


def test_integers_are_fractions_of_full_scale_as_in_files(tmp_path: Path) -> None:
    counts = (VALUES[0] * 65535).astype(np.uint16)
    np.save(tmp_path / "counts.npy", counts)
    from_file = as_measurement(tmp_path / "counts.npy")
    np.testing.assert_array_equal(as_measurement(counts).values, from_file.values)
    binary = (VALUES[0] > 0.5).astype(np.uint8)
    assert as_mask(binary).values.max() == 1


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        (Mask(VALUES[0]), ValuesError, "measurement is a Mask and must be a Measurement"),
        (VALUES, ShapeError, "measurement is 3×5×7; one measurement is H×W"),
        (np.float32(1), ShapeError, "measurement is a single number"),
        ({"y": 1}, ValuesError, "measurement is a dict; give a record, the path of a file"),
        ([[1, 2], [3]], ValuesError, "not an array of numbers"),
        (1j * VALUES[0], ValuesError, "real numbers are needed"),
    ],
)
def test_what_does_not_fit_is_told(given: Any, error: type[PrismaskError], told: str) -> None:
    with pytest.raises(error, match=told):
        as_measurement(given)


def test_records_pass_as_they_are() -> None:
    shot = Measurement(VALUES[0])
    assert as_measurement(shot) is shot


@pytest.mark.parametrize("record", [Cube(np.ones((2, 3, 4))), Mask(np.eye(3, 4))])
def test_a_record_is_an_array_where_one_is_wanted(record: Cube | Mask) -> None:
    assert np.asarray(record).dtype == np.float32
    assert np.asarray(record, dtype=np.float64).dtype == np.float64
    mine = np.array(record)
    mine[:] = 7  # and the record keeps its own
    assert record.values.max() == 1
