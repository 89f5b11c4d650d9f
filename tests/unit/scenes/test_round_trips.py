"""What is written comes back: every format, every kind, and through other people's readers."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import spectral
import tifffile
import xarray
from file_examples import (
    ATTRS,
    IDS,
    RECORDS,
    WRITTEN,
    a_cube,
    a_measurement,
    an_uncertain_mask,
    same,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from prismask.errors import FormatError
from prismask.scenes.formats.contents import kind_of
from prismask.scenes.formats.files import describe, load, load_cube, save
from prismask.scenes.records import Cube

KEEPS_ALL = [(e, n) for e, n in WRITTEN if e in (".nc", ".mat", ".npz")]
SIZES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("extension", "form"), WRITTEN, ids=IDS)
def test_values_come_back_exactly(
    tmp_path: Path, name: str, extension: str, form: str | None
) -> None:
    record = RECORDS[name]
    path = write(record, tmp_path, "file", extension, form)
    back = load(path, kind_of(record) if extension == ".npy" else None)
    assert type(back) is type(record)
    assert back.values.dtype == np.float32
    assert np.array_equal(back.values, record.values)
    if extension != ".npy":
        assert dict(back.attrs) == ATTRS
        wavelengths = getattr(record, "wavelengths", None)
        assert np.array_equal(getattr(back, "wavelengths", None), wavelengths)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("extension", "form"), KEEPS_ALL)
def test_these_formats_keep_everything(
    tmp_path: Path, name: str, extension: str, form: str | None
) -> None:
    record = RECORDS[name]
    assert same(load(write(record, tmp_path, "file", extension, form)), record)


@pytest.mark.parametrize("at", [[13.5, 50, 90], [20, 30, 40], [99, 100, 2000]])
@pytest.mark.parametrize(("extension", "form"), KEEPS_ALL)
def test_nanometres_stay_nanometres(
    tmp_path: Path, extension: str, form: str | None, at: list[float]
) -> None:
    cube = Cube(a_cube().values, at)
    path = write(cube, tmp_path, "file", extension, form)
    assert load_cube(path).wavelengths.tolist() == at
    assert describe(path)["wavelengths"] == at


@pytest.mark.parametrize(
    ("extension", "lost"),
    [
        (".npy", "the interval, the spread, the wavelengths, the history."),
        (".tif", "the interval, the spread."),
        (".hdr", "the interval, the spread."),
    ],
)
def test_what_a_format_cannot_keep_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, extension: str, lost: str
) -> None:
    with caplog.at_level(logging.WARNING):
        path = write(a_cube(), tmp_path, "file", extension, None)
    assert f"does not keep {lost}" in caplog.text
    assert load_cube(path).std is None
    caplog.clear()
    write(an_uncertain_mask(), tmp_path, "file", extension, None)
    assert "does not keep the spread" in caplog.text
    caplog.clear()
    write(replace(a_cube(), std=None), tmp_path, "file", ".tif", None)
    assert "does not keep the interval." in caplog.text


@settings(max_examples=12, deadline=None)
@given(size=SIZES)
@pytest.mark.parametrize(("extension", "form"), WRITTEN, ids=IDS)
def test_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    extension: str,
    form: str | None,
    size: tuple[int, int, int],
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    cube = a_cube(*size, bare=True)
    path = write(cube, folder, "cube", extension, form)
    back = load(path)
    assert isinstance(back, Cube)
    assert np.array_equal(back.values, cube.values)
    measurement = a_measurement(size[1], size[2])
    path = write(measurement, folder, "measurement", extension, form)
    assert np.array_equal(load(path).values, measurement.values)


def test_long_provenance_fits_every_format(tmp_path: Path) -> None:
    # HDF5 keeps attributes over 64 KiB elsewhere than small ones.
    cube = Cube(np.zeros((2, 3, 4)), attrs={"log": "x" * 100_000})
    for extension, form in WRITTEN:
        if extension != ".npy":
            assert load(write(cube, tmp_path, "file", extension, form)).attrs == cube.attrs


# --- other people's readers --------------------------------------------------------------------


def test_netcdf_opens_in_plain_xarray(tmp_path: Path) -> None:
    cube = a_cube()
    path = write(cube, tmp_path, "file", ".nc", None)
    with xarray.open_dataset(path) as dataset:
        assert dataset["cube"].dims == ("wavelength", "y", "x")
        assert np.array_equal(dataset["cube"].values, cube.values)
        assert np.array_equal(dataset["cube_std"].values, cube.std)
        assert dataset["wavelength"].attrs["units"] == "nm"
        assert dataset.attrs["Conventions"].startswith("CF-")
        assert json.loads(dataset.attrs["provenance"]) == ATTRS


def test_v5_opens_in_plain_scipy(tmp_path: Path) -> None:
    cube = a_cube()
    found = scipy.io.loadmat(write(cube, tmp_path, "file", ".mat", "matlab"))
    assert found["__version__"] == "1.0"
    assert found["cube"].shape == (5, 4, 3)
    assert np.array_equal(found["cube"][:, :, 1], cube.values[1])
    assert found["wavelengths"].shape == (1, 3)
    assert found["kind"][0] == "cube"


def test_v73_is_what_matlab_writes(tmp_path: Path) -> None:
    cube = a_cube()
    path = write(cube, tmp_path, "file", ".mat", "matlab7.3")
    head = path.read_bytes()[:520]
    assert head.startswith(b"MATLAB 7.3 MAT-file")
    assert head[116:124] == bytes(8)
    assert head[124:128] == b"\x00\x02IM"
    assert head[512:] == b"\x89HDF\r\n\x1a\n"
    with h5py.File(path) as file:
        assert file.userblock_size == 512
        stored = file["cube"]
        assert stored.attrs["MATLAB_class"] == b"single"
        assert stored.shape == (3, 4, 5)  # C×W×H: MATLAB sees H×W×C
        assert np.array_equal(stored[1].T, cube.values[1])
        assert "".join(map(chr, file["kind"][:, 0])) == "cube"
        assert file["kind"].attrs["MATLAB_int_decode"] == 2


def test_envi_opens_in_spectral(tmp_path: Path) -> None:
    cube = a_cube(bare=True)
    path = write(cube, tmp_path, "file", ".hdr", None)
    image = spectral.open_image(str(path))
    assert np.array_equal(np.moveaxis(np.asarray(image.load()), -1, 0), cube.values)
    assert image.bands.centers == cube.wavelengths.tolist()
    assert image.bands.band_unit == "Nanometers"


def test_tiff_opens_in_tifffile(tmp_path: Path) -> None:
    cube = a_cube(bare=True)
    path = write(cube, tmp_path, "file", ".tif", None)
    assert np.array_equal(tifffile.imread(path), cube.values)
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 3
        about = json.loads(file.pages[0].description)
    assert about["wavelengths_nm"] == cube.wavelengths.tolist()


def test_npz_and_npy_open_in_numpy(tmp_path: Path) -> None:
    cube = a_cube()
    with np.load(write(cube, tmp_path, "file", ".npz", None), allow_pickle=False) as found:
        assert np.array_equal(found["cube"], cube.values)
        assert np.array_equal(found["cube_upper"], cube.upper)
    assert np.array_equal(np.load(write(cube, tmp_path, "file", ".npy", None)), cube.values)


# --- the ways in and out -----------------------------------------------------------------------


def test_content_counts_not_the_extension(tmp_path: Path) -> None:
    path = write(a_cube(), tmp_path, "file", ".nc", None)
    disguised = tmp_path / "file.npy"
    path.rename(disguised)
    assert same(load(disguised), a_cube())


def test_unknown_extension_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"extension '\.jpg'.*\.nc.*\.tif"):
        save(a_cube(), tmp_path / "file.jpg")
    with pytest.raises(FormatError, match="no extension"):
        save(a_cube(), tmp_path / "file")
    with pytest.raises(FormatError, match="Did you mean 'netcdf'"):
        save(a_cube(), tmp_path / "file.nc", format="netcfd")


def test_the_public_names_are_these() -> None:
    import prismask
    from prismask.scenes.formats import files

    for name in ("load", "load_cube", "load_mask", "load_measurement", "save"):
        assert getattr(prismask, name) is getattr(files, name)


def test_large_cubes_are_compressed_and_open_in_parts(tmp_path: Path) -> None:
    """Chunks that do not divide the sides, written by us and read by HDF5's own filters."""
    values = np.random.default_rng(0).random((9, 200, 170), dtype=np.float32).round(2)
    save(Cube(values, lower=values, upper=values + 1), tmp_path / "cube.nc")
    with h5py.File(tmp_path / "cube.nc") as file:
        stored = file["cube"]
        assert (stored.compression, stored.shuffle, stored.dtype) == ("gzip", True, np.float32)
        assert stored.chunks == (8, 128, 128)
        np.testing.assert_array_equal(stored[:, 150, 160], values[:, 150, 160])
    assert (tmp_path / "cube.nc").stat().st_size < 0.7 * 3 * values.nbytes
    found = load_cube(tmp_path / "cube.nc")
    np.testing.assert_array_equal(found.values, values)
    assert found.upper is not None
    np.testing.assert_array_equal(found.upper, values + 1)
