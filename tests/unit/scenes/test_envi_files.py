"""ENVI pairs as others write them, and the faults their headers have."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spectral
from file_examples import a_cube, a_mask, write

from prismask.errors import DataMissingError, FormatError, ValuesError
from prismask.scenes.formats.files import describe, load, load_cube, load_mask, save

CUBE = np.random.default_rng(0).random((3, 5, 4)).astype(np.float32)

FIELDS: dict[str, Any] = {
    "samples": 4,
    "lines": 5,
    "bands": 3,
    "header offset": 0,
    "data type": 4,
    "interleave": "bsq",
    "byte order": 0,
}


def envi(folder: Path, data: bytes = CUBE.tobytes(), **changes: Any) -> Path:
    """A pair with `FIELDS`, changed; None leaves a field out, `_` stands for a space."""
    fields = FIELDS | {key.replace("_", " "): value for key, value in changes.items()}
    lines = [f"{key} = {value}" for key, value in fields.items() if value is not None]
    (folder / "x.hdr").write_text("\n".join(["ENVI", "; a comment = 3", *lines]), encoding="utf-8")
    (folder / "x.img").write_bytes(data)
    return folder / "x.hdr"


def test_a_plain_header(tmp_path: Path) -> None:
    cube = load_cube(envi(tmp_path))
    assert np.array_equal(cube.values, CUBE)
    assert cube.wavelengths is None


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip", "BIL"])
@pytest.mark.parametrize("dtype", ["float32", "float64", ">f4", "uint16"])
def test_pairs_by_spectral(tmp_path: Path, interleave: str, dtype: str) -> None:
    path = tmp_path / "x.hdr"
    values = (CUBE * 60000).astype(dtype) if dtype == "uint16" else CUBE.astype(dtype)
    spectral.envi.save_image(
        str(path),
        np.moveaxis(values, 0, -1),
        interleave=interleave,
        dtype=values.dtype.newbyteorder("="),
        byteorder=1 if dtype.startswith(">") else 0,
        metadata={"wavelength": [0.4, 0.5, 0.6], "wavelength units": "Micrometers"},
    )
    cube = load_cube(path)
    expected = values / 65535 if dtype == "uint16" else CUBE
    np.testing.assert_allclose(cube.values, expected, rtol=1e-6)
    assert cube.wavelengths.tolist() == [400, 500, 600]


@pytest.mark.parametrize("extension", ["img", "dat", "bsq", "raw", "IMG", ""])
def test_names_of_data_files(tmp_path: Path, extension: str) -> None:
    path = envi(tmp_path)
    data = tmp_path / ("x." + extension if extension else "x")
    (tmp_path / "x.img").rename(data)
    assert np.array_equal(load_cube(path).values, CUBE)
    assert np.array_equal(load_cube(data).values, CUBE)


def test_header_called_after_the_whole_name(tmp_path: Path) -> None:
    envi(tmp_path).rename(tmp_path / "x.img.hdr")
    assert load_cube(tmp_path / "x.img").bands == 3
    assert load_cube(tmp_path / "x.img.hdr").bands == 3


def test_offset_and_scale_factor(tmp_path: Path) -> None:
    values = (CUBE * 10000).astype("<i2")
    path = envi(
        tmp_path,
        b"header!" + values.tobytes(),
        header_offset=7,
        data_type=2,
        reflectance_scale_factor=10000,
    )
    np.testing.assert_allclose(load_cube(path).values, values / 10000, rtol=1e-6)


def test_lists_over_several_lines_and_other_encodings(tmp_path: Path) -> None:
    path = envi(tmp_path, wavelength="{\n 400.5,\n 500,\n 600 }", wavelength_units="Nanometers")
    path.write_bytes(path.read_bytes() + "\ndescription = { 5 µm }".encode("latin-1"))
    cube = load_cube(path)
    assert cube.wavelengths.tolist() == [400.5, 500, 600]
    assert cube.attrs["description"] == "5 µm"


def test_longer_data_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = envi(tmp_path, CUBE.tobytes() + bytes(8))
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(load_cube(path).values, CUBE)
    assert "more than its header describes" in caplog.text


def test_one_band_is_flat_unless_we_wrote_a_cube(tmp_path: Path) -> None:
    path = envi(tmp_path, CUBE[0].tobytes(), bands=1, interleave=None)
    assert load_mask(path).values.shape == (5, 4)
    cube = a_cube(bands=1, bare=True)
    assert load_cube(write(cube, tmp_path, "one", ".hdr", None)).values.shape == (1, 5, 4)


def test_header_finds_its_own_data_among_others(tmp_path: Path) -> None:
    write(a_cube(), tmp_path, "x", ".img", None)
    newer = a_cube(height=9, bare=True)
    save(newer, tmp_path / "x.dat", overwrite=True)
    assert np.array_equal(load(tmp_path / "x.hdr").values, newer.values)


@pytest.mark.parametrize("units", [None, "Unknown"])
def test_numbers_of_bands_are_no_wavelengths(tmp_path: Path, units: str | None) -> None:
    path = envi(tmp_path, wavelength="{1, 2, 3}", wavelength_units=units)
    assert load_cube(path).wavelengths is None
    assert describe(path)["wavelengths"] is None
    in_units = envi(tmp_path, wavelength="{1, 2, 3}", wavelength_units="um")
    assert load_cube(in_units).wavelengths.tolist() == [1000, 2000, 3000]


@pytest.mark.parametrize(
    ("dtype", "code", "ignored", "stored"),
    [
        ("<f4", 4, "-9999", -9999),
        ("<f4", 4, "-3.40282347e+38", np.finfo(np.float32).min),
        ("<f8", 5, "-1e40", -1e40),
        ("<f4", 4, "nan", np.nan),
        ("<i2", 2, "-9999.0", -9999),
        ("<u2", 12, "{65535}", 65535),
    ],
)
def test_values_that_are_marked_as_missing(
    tmp_path: Path, dtype: str, code: int, ignored: str, stored: float
) -> None:
    values = (CUBE * 1000).astype(dtype)
    path = envi(tmp_path, values.tobytes(), data_type=code, data_ignore_value=ignored)
    assert load_cube(path).values.shape == CUBE.shape  # where nothing is missing
    values[:, 1, 2] = stored
    values[2, 4, 0] = stored
    path = envi(tmp_path, values.tobytes(), data_type=code, data_ignore_value=ignored)
    with pytest.raises(ValuesError, match=r"x\.hdr: 2 of 20 pixels are marked as missing"):
        load_cube(path)
    assert "2 of 20 pixels" in describe(path)["problem"]


@pytest.mark.parametrize(("code", "ignored"), [(12, "-9999"), (12, "none"), (4, "1e300")])
def test_values_that_cannot_occur_mark_nothing(tmp_path: Path, code: int, ignored: str) -> None:
    values = (CUBE * 1000).astype("<u2" if code == 12 else "<f4")
    path = envi(tmp_path, values.tobytes(), data_type=code, data_ignore_value=ignored)
    assert load_cube(path).values.shape == CUBE.shape


def test_missing_pixels_that_are_dark_are_dark(tmp_path: Path) -> None:
    values = (CUBE * 1000).astype("<u2")
    values[:, 1, 2] = 0
    path = envi(tmp_path, values.tobytes(), data_type=12, data_ignore_value="0")
    assert load_cube(path).values[:, 1, 2].max() == 0


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"byte_order": None}, "no 'byte order'.*Add a line 'byte order = 0'"),
        ({"byte_order": 7}, "byte order is 7"),
        ({"wavelength": "{}"}, r"wavelength is empty \({}\), but there are 3 bands"),
        ({"wavelength": "{ }"}, "wavelength is empty"),
        ({"wavelength": "{400, 500}"}, "wavelength lists 2, but there are 3"),
        ({"wavelength": "{400, green, 600}"}, "no number"),
        ({"wavelength": "{400, nan, 600}"}, "not finite"),
        ({"wavelength": "{400, 500"}, "no closing brace"),
        ({"lines": None}, "no 'lines'"),
        ({"lines": "five"}, "'five', not a whole number"),
        ({"lines": 0}, "nothing to read"),
        ({"lines": 10**9}, "claims 48 GB, but the file holds only 240 bytes"),
        ({"lines": 10**18}, "TB"),
        ({"header_offset": 8}, "claims 248 bytes"),
        ({"header_offset": -8}, "header offset is -8"),
        ({"data_type": 6}, "complex numbers"),
        ({"data_type": 99}, "no type ENVI defines"),
        ({"interleave": None}, "interleave is ''"),
        ({"interleave": "bxq"}, "interleave is 'bxq'"),
        (
            {"wavelength": "{1, 2, 3}", "wavelength_units": "GHz"},
            "wavelengths are in 'GHz'.*wavelengths=…",
        ),
    ],
)
def test_faults_of_headers(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_cube(envi(tmp_path, **changes))


def test_own_wavelengths_replace_odd_ones(tmp_path: Path) -> None:
    path = envi(tmp_path, wavelength="{1, 2, 3}", wavelength_units="GHz")
    assert load_cube(path, wavelengths=[400, 500, 600]).wavelengths is not None


def test_bytes_need_no_byte_order(tmp_path: Path) -> None:
    path = envi(tmp_path, bytes(range(60)), data_type=1, byte_order=None)
    np.testing.assert_allclose(load_cube(path).values.ravel(), np.arange(60) / 255, rtol=1e-6)


def test_unsorted_wavelengths(tmp_path: Path) -> None:
    path = envi(tmp_path, wavelength="{600, 500, 400}", wavelength_units="nm")
    with pytest.raises(ValuesError, match="not ascending"):
        load_cube(path)


def test_header_without_data_and_data_without_header(tmp_path: Path) -> None:
    header = envi(tmp_path)
    (tmp_path / "x.img").rename(tmp_path / "elsewhere.img")
    with pytest.raises(DataMissingError, match=r"Looked for x\.img"):
        load_cube(header)
    with pytest.raises(FormatError, match="write an ENVI header"):
        load_cube(tmp_path / "elsewhere.img")


def test_not_a_header(tmp_path: Path) -> None:
    path = tmp_path / "x.hdr"
    path.write_text("samples = 3")
    with pytest.raises(FormatError, match="first line is not 'ENVI'"):
        load_cube(path)


def test_existing_half_of_a_pair_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "x.img"
    data.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        save(a_mask(), tmp_path / "x.hdr")
    assert data.read_bytes() == b"precious"
    assert not (tmp_path / "x.hdr").exists()
