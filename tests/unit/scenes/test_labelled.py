"""Records as xarray datasets, ours and other people's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
from file_examples import RECORDS, a_cube, same, write

from prismask.errors import FormatError
from prismask.scenes.conversion import from_dataset, to_dataset
from prismask.scenes.formats.contents import from_json, plain, to_json
from prismask.scenes.formats.files import load, load_cube, load_mask, load_measurement
from prismask.scenes.records import Cube


@pytest.mark.parametrize("name", RECORDS)
def test_there_and_back(name: str) -> None:
    record = RECORDS[name]
    assert same(from_dataset(to_dataset(record)), record)
    labelled = record.to_xarray()
    assert labelled.drop_vars(["y", "x"]).identical(to_dataset(record))
    assert same(from_dataset(labelled), record)


def test_labels() -> None:
    dataset = to_dataset(a_cube())
    assert set(dataset.data_vars) == {"cube", "cube_std", "cube_lower", "cube_upper"}
    assert dataset["cube"].dims == ("wavelength", "y", "x")
    assert dataset["wavelength"].attrs["units"] == "nm"
    assert dataset["wavelength"].attrs["standard_name"] == "radiation_wavelength"
    ancillary = dataset["cube"].attrs["ancillary_variables"]
    assert ancillary.split() == ["cube_std", "cube_lower", "cube_upper"]
    for variable in dataset.variables.values():
        assert variable.attrs["long_name"]
        assert variable.attrs["units"]
    assert "wavelength" not in to_dataset(Cube(np.ones((2, 3, 4)))).coords


@pytest.mark.parametrize(
    "dims", [("band", "row", "col"), ("y", "x", "wavelength"), ("lon", "wl", "lat")]
)
def test_dimensions_are_ordered_by_name(tmp_path: Path, dims: tuple[str, str, str]) -> None:
    cube = a_cube(bare=True)
    ours = xarray.DataArray(cube.values, dims=("wavelength", "y", "x"))
    renamed = {
        "wavelength": next(d for d in dims if d in ("band", "wavelength", "wl")),
        "y": next(d for d in dims if d in ("row", "y", "lat")),
        "x": next(d for d in dims if d in ("col", "x", "lon")),
    }
    foreign = ours.rename({k: v for k, v in renamed.items() if k != v}).transpose(*dims)
    dataset = foreign.to_dataset(name="radiance")
    assert np.array_equal(from_dataset(dataset).values, cube.values)
    path = tmp_path / "foreign.nc"
    dataset.to_netcdf(path, engine="h5netcdf")
    assert np.array_equal(load_cube(path).values, cube.values)


@pytest.mark.parametrize(
    ("units", "factor"),
    [("nm", 1), ("um", 1e-3), ("m", 1e-9), ("mm", 1e-6), ("Å", 10), ("angstrom", 10), (None, 1)],
)
def test_units_of_wavelengths(units: str | None, factor: float) -> None:
    dataset = to_dataset(a_cube())
    dataset["wavelength"] = dataset["wavelength"] * factor
    dataset["wavelength"].attrs = {} if units is None else {"units": units}
    found = from_dataset(dataset)
    assert isinstance(found, Cube)
    np.testing.assert_allclose(found.wavelengths, a_cube().wavelengths)


def test_packed_numbers_and_foreign_attributes(tmp_path: Path) -> None:
    # Scale and offset are netCDF's own way to store fractions as integers; xarray undoes it.
    values = np.round(a_cube().values, 3)
    dataset = xarray.Dataset(
        {"reflectance": (("band", "y", "x"), values)}, attrs={"institution": "lab", "level": 2}
    )
    encoding = {"reflectance": {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -1}}
    dataset.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=encoding)
    cube = load_cube(tmp_path / "x.nc")
    np.testing.assert_allclose(cube.values, values, atol=1e-6)
    assert cube.attrs == {"institution": "lab", "level": 2}


def test_cube_and_mask_in_one_file(tmp_path: Path) -> None:
    both = xarray.Dataset(
        {"cube": (("wavelength", "y", "x"), np.ones((2, 3, 4))), "mask": (("y", "x"), np.eye(3, 4))}
    )
    both.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    assert isinstance(load(tmp_path / "x.nc"), Cube)
    assert np.array_equal(load_mask(tmp_path / "x.nc").values, np.eye(3, 4))


def test_dataset_without_anything_known() -> None:
    dataset = xarray.Dataset({"name": ("n", ["a", "b"]), "n_bands": 3})
    with pytest.raises(FormatError, match=r"name \(.*not real numbers"):
        from_dataset(dataset)


def test_provenance_of_any_kind_becomes_json() -> None:
    attrs = {
        "path": Path("a/b"),
        "when": datetime(2024, 5, 6, tzinfo=UTC),
        "array": np.arange(3),
        "scalar": np.float32(0.5),
        "flag": np.bool_(True),
        "tuple": (1, 2),
        "nan": float("nan"),
        "bytes": b"x",
        3: {"inner": {np.int64(4)}},
    }
    expected = {
        "path": "a/b",
        "when": "2024-05-06 00:00:00+00:00",
        "array": [0, 1, 2],
        "scalar": 0.5,
        "flag": True,
        "tuple": [1, 2],
        "nan": "nan",
        "bytes": "x",
        "3": {"inner": [4]},
    }
    assert plain(attrs) == expected
    assert from_json(to_json(attrs)) == expected
    for bad in ("[]", "{", "3"):
        with pytest.raises(FormatError, match="provenance"):
            from_json(bad)


def test_bands_that_are_counted_have_no_wavelengths() -> None:
    values = xarray.DataArray(np.ones((3, 4, 5)), dims=("bands", "y", "x"))
    counted = values.assign_coords(bands=[1, 2, 3]).to_dataset(name="cube")
    assert from_dataset(counted).wavelengths is None
    counted["bands"].attrs["units"] = "um"
    assert from_dataset(counted).wavelengths.tolist() == [1000, 2000, 3000]
    weighted = values.to_dataset(name="cube").assign({"lambda": ("k", [0.1, 0.2])})
    assert from_dataset(weighted).wavelengths is None


@pytest.mark.parametrize("name", ["band", "channel", "Spectral"])
def test_a_coordinate_of_the_bands_with_a_unit_of_length(tmp_path: Path, name: str) -> None:
    values = xarray.DataArray(np.ones((3, 4, 5)), dims=(name, "y", "x"))
    dataset = values.assign_coords({name: [0.45, 0.5, 0.6]}).to_dataset(name="cube")
    assert from_dataset(dataset).wavelengths is None
    dataset[name].attrs["units"] = "µm"
    dataset.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    assert load_cube(tmp_path / "x.nc").wavelengths.tolist() == [450, 500, 600]
    # A name that says wavelength comes first.
    both = dataset.assign_coords(wl=(name, [400.0, 500.0, 700.0]))
    assert from_dataset(both).wavelengths.tolist() == [400, 500, 700]


# --- groups --------------------------------------------------------------------------------------


def _grouped(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/")] = values
    return path


def test_arrays_in_groups_are_found_by_their_path(tmp_path: Path) -> None:
    img, mask = np.random.default_rng(0).random((3, 4, 5)), np.eye(4, 5)
    path = _grouped(
        tmp_path / "x.h5",
        entry__data__img=img, entry__data__wavelength=[400.0, 500.0, 600.0],
        measured__mask=mask, entry__title="a text",
    )  # fmt: skip
    cube = load_cube(path)
    np.testing.assert_array_equal(cube.values, img.astype(np.float32))
    assert cube.wavelengths.tolist() == [400, 500, 600]
    assert isinstance(load(path), Cube)
    assert np.array_equal(load_mask(path).values, mask)
    for name in ("entry/data/img", "/entry/data/img"):
        assert same(load_cube(path, name), cube)
    with pytest.raises(FormatError, match=r"Found: entry/data/img \(float64 3×4×5\)"):
        load_measurement(path)


def test_arrays_outside_of_groups_come_first(tmp_path: Path) -> None:
    path = _grouped(tmp_path / "x.h5", frame=np.eye(4, 5), flags__quality=np.ones((4, 5)))
    assert np.array_equal(load_measurement(path).values, np.eye(4, 5))
    assert load_measurement(path, "flags/quality").values.min() == 1
    two = _grouped(tmp_path / "y.h5", a__cube=np.ones((2, 3, 4)), b__cube=np.ones((2, 3, 4)))
    with pytest.raises(FormatError, match="several arrays could be the cube"):
        load_cube(two)


def test_wavelengths_of_the_same_group_come_first(tmp_path: Path) -> None:
    at = {name: [first, first + 10.0] for name, first in (("a", 400.0), ("b", 500.0))}
    path = _grouped(
        tmp_path / "x.h5",
        a__cube=np.ones((2, 3, 4)), a__wl=at["a"], b__cube=np.ones((2, 3, 4)), b__wl=at["b"],
    )  # fmt: skip
    for name, expected in at.items():
        assert load_cube(path, f"{name}/cube").wavelengths.tolist() == expected
    apart = _grouped(tmp_path / "y.h5", radiance=np.ones((2, 3, 4)), sensor__wavelengths=at["b"])
    assert load_cube(apart).wavelengths.tolist() == at["b"]


def test_packed_numbers_in_a_group(tmp_path: Path) -> None:
    values = np.round(a_cube().values, 3)
    dataset = xarray.Dataset({"reflectance": (("y", "x", "band"), values.transpose(1, 2, 0))})
    encoding = {"reflectance": {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -1}}
    path = tmp_path / "x.nc"
    dataset.to_netcdf(path, engine="h5netcdf", group="level/one", encoding=encoding)
    np.testing.assert_allclose(load_cube(path).values, values, atol=1e-6)


def _spoilt(path: Path, name: str) -> Path:
    with h5py.File(path) as file:
        address = file.userblock_size + h5py.h5o.get_info(file[name].id).addr
    content = bytearray(path.read_bytes())
    content[address] ^= 0xFF  # the first byte of its header
    path.write_bytes(bytes(content))
    return path


def test_an_array_in_a_group_that_cannot_be_read_leaves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _grouped(tmp_path / "x.h5", bad__list=[1.0, 2.0], fine__cube=np.ones((2, 3, 4)))
    assert load_cube(_spoilt(path, "bad/list")).bands == 2
    assert "/bad/list cannot be read and is left out" in caplog.text


@pytest.mark.parametrize("name", ["cube_std", "cube_lower", "wavelength"])
@pytest.mark.parametrize(("extension", "form"), [(".nc", None), (".mat", "matlab7.3")])
def test_a_file_whose_parts_cannot_be_read_is_no_file_without_them(
    tmp_path: Path, name: str, extension: str, form: str | None
) -> None:
    path = write(a_cube(), tmp_path, "x", extension, form)
    with h5py.File(path) as file:
        name = name if name in file else "wavelengths"
    with pytest.raises(FormatError, match=f"{name} cannot be read"):
        load_cube(_spoilt(path, name))
