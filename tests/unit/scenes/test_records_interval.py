"""The ends of an interval lie on either side of the value, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from prismask.apps.cli.evaluate_pair import scaled
from prismask.errors import ValuesError
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Cube
from prismask.scenes.resample import resample

VALUES = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)
AT = [450.0, 550.0, 650.0]


def moved(by: float) -> np.ndarray:
    """The values, with one of them elsewhere."""
    ends = VALUES.copy()
    ends[1, 2, 3] += by
    return ends


@pytest.mark.parametrize(("lower", "upper"), [(0.1, None), (None, -0.1), (0.1, 0.2), (-0.2, -0.1)])
def test_ends_on_the_wrong_side(lower: float | None, upper: float | None) -> None:
    ends = {"lower": lower, "upper": upper}
    given = {name: moved(by) for name, by in ends.items() if by is not None}
    with pytest.raises(ValuesError, match="1 of 60 places, first in band 1 at row 2, column 3"):
        Cube(VALUES, AT, **given)
    assert Cube(VALUES, AT, lower=VALUES, upper=VALUES).bands == 3


def test_a_file_with_ends_on_the_wrong_side_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cube.nc"
    save(Cube(VALUES, AT, lower=VALUES - 0.1, upper=VALUES + 0.1), path)
    with h5py.File(path, "r+") as file:
        file["cube_upper"][1, 2, 3] = -1
    with pytest.raises(ValuesError, match=r"cube\.nc: the interval of the cube has its upper end"):
        load_cube(path)


@pytest.mark.parametrize("method", ["linear", "nearest", "gaussian"])
def test_resampled_and_scaled_ends_stay_on_their_sides(method: str) -> None:
    lower = np.where(VALUES > 0.5, VALUES, VALUES - 0.2)
    cube = Cube(VALUES, AT, VALUES, lower=lower, upper=VALUES + 0.3)
    resample(cube, np.linspace(460.0, 640.0, 17), method)  # type: ignore[arg-type]
    negative = scaled(cube, -2.0)
    assert negative.lower is not None
    assert negative.std is not None
    assert np.allclose(negative.lower, -2 * (VALUES + 0.3))
    assert np.allclose(negative.std, 2 * VALUES)
