"""What a file is taken for when nobody says: names, then dimensions; and `describe`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spectral
import tifffile
from file_examples import IDS, RECORDS, WRITTEN, a_cube, write
from PIL import Image

from prismask.errors import ConfigError, FormatError, ValuesError
from prismask.scenes.formats.contents import kind_of
from prismask.scenes.formats.files import describe, load, load_cube, load_mask, load_measurement
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.wording import speaking_flags

FLAT, DEEP = np.full((4, 5), 0.25), np.full((3, 4, 5), 0.25)


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "file.npz", **arrays)
    return folder / "file.npz"


@pytest.mark.parametrize(
    ("arrays", "kind"),
    [
        ({"cube": DEEP, "mask": FLAT, "meas": FLAT}, Cube),
        ({"mask": FLAT, "meas": FLAT}, Measurement),
        ({"mask": FLAT, "other": FLAT}, Mask),
        ({"other": DEEP, "flat": FLAT}, Cube),
        ({"other": FLAT}, Measurement),
        ({"my_mask": FLAT}, Mask),
        ({"my_mask": DEEP}, Mask),
        ({"my_snapshot": FLAT, "b": FLAT}, Measurement),
        ({"Truth": DEEP, "other": DEEP}, Cube),
    ],
)
def test_names_then_dimensions(tmp_path: Path, arrays: dict[str, Any], kind: type) -> None:
    assert isinstance(load(npz(tmp_path, **arrays)), kind)


def test_a_name_that_contradicts_the_dimensions(tmp_path: Path) -> None:
    path = npz(tmp_path, cube=FLAT)
    with pytest.raises(FormatError, match="no variable is known"):
        load(path)
    assert isinstance(load(path, "measurement", "cube"), Measurement)


@pytest.mark.parametrize("arrays", [{"a": DEEP, "b": DEEP}, {"a": FLAT, "b": FLAT}])
def test_two_that_could_be_meant(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = npz(tmp_path, **arrays)
    with pytest.raises(FormatError, match=r"a \(float64.*b \(float64.*with variable=NAME"):
        load(path)
    assert isinstance(load(path, variable="b"), Cube if arrays["b"] is DEEP else Measurement)
    assert isinstance(load(path, "mask", "a"), Mask)


def test_a_file_that_says_what_it_is(tmp_path: Path) -> None:
    path = write(RECORDS["measurement"], tmp_path, "mask", ".tif", None)
    assert isinstance(load(path), Measurement)  # although it is called mask
    with pytest.raises(FormatError, match="holds a measurement, not a mask"):
        load_mask(path)
    with pytest.raises(FormatError, match="holds a measurement, not a cube"):
        load_cube(path)


@pytest.mark.parametrize("extension", [".npy", ".tif", ".png", ".hdr"])
def test_a_file_s_name_does_not_count_where_the_kind_is_said(
    tmp_path: Path, extension: str
) -> None:
    def file(stem: str) -> Path:
        path = tmp_path / f"{stem}{extension}"
        pixels = np.arange(2, 22, dtype=np.uint8).reshape(4, 5)
        if extension == ".hdr":
            spectral.envi.save_image(str(path), pixels[..., None], ext="img", force=True)
        elif extension == ".npy":
            np.save(path, pixels)
        elif extension == ".tif":
            tifffile.imwrite(path, pixels)
        else:
            Image.fromarray(pixels).save(path)
        return path

    for stem in ("scene01_maskA", "img", "shifted", "snapshot", "x_std"):
        assert load_measurement(file(stem)).size == (4, 5)
        assert load_mask(file(stem)).size == (4, 5)
    assert isinstance(load(file("scene01_maskA")), Mask)  # nobody says otherwise
    with pytest.raises(FormatError, match="a cube has 3 dimensions"):
        load_cube(file("img"))


def test_a_file_that_says_what_it_is_may_have_any_name(tmp_path: Path) -> None:
    for stem in ("cube_std", "shifted"):
        assert isinstance(load(write(a_cube(), tmp_path, stem, ".tif", None)), Cube)


def test_names_in_a_file_count_although_the_kind_is_said(tmp_path: Path) -> None:
    path = npz(tmp_path, snapshot=FLAT)
    with pytest.raises(FormatError, match=r"Name one with variable=NAME\.$"):
        load_mask(path)
    with (
        speaking_flags(),
        pytest.raises(FormatError, match=r"--variable NAME \(for --mask: --mask-variable NAME\)"),
    ):
        load_mask(path)
    with pytest.raises(FormatError, match=r"Name one with variable=NAME\.$"):
        load_measurement(npz(tmp_path, my_mask=FLAT))


def test_error_bars_are_not_cubes(tmp_path: Path) -> None:
    path = npz(tmp_path, cube_std=DEEP, wavelengths=np.arange(3.0))
    with pytest.raises(FormatError):
        load_cube(path)


def test_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'mask'"):
        load(npz(tmp_path, a=FLAT), "maks")


# --- which numbers are the wavelengths ---------------------------------------------------------


@pytest.mark.parametrize(
    "others",
    [
        {"lambda": 0.05},
        {"lambda": np.array([[0.05]])},
        {"lambda": np.array([0.1, 0.2])},
        {"bands": np.array([1, 2, 3])},
        {"bands": np.arange(3)},
        {"wavelengths": np.arange(1.0, 4.0)},
        {"bands": np.ones((3, 4, 5))},
    ],
)
def test_names_that_say_no_wavelengths(tmp_path: Path, others: dict[str, Any]) -> None:
    path = npz(tmp_path, cube=DEEP, **others)
    assert load_cube(path).wavelengths is None
    facts = describe(path)
    assert (facts["wavelengths"], facts["problem"], facts["shape"]) == (None, None, (3, 4, 5))
    # … nor do they hide those that do.
    both = npz(tmp_path, cube=DEEP, wl=[0.4, 0.5, 0.6], **others)
    assert load_cube(both).wavelengths.tolist() == [400, 500, 600]
    assert describe(both)["wavelengths"] == [400, 500, 600]


@pytest.mark.parametrize(
    ("shape", "number", "expected"),
    [
        ((1, 4, 5), 550.0, [550.0]),
        ((1, 4, 5), 0.55, [550.0]),
        ((1, 4, 5), 0.05, None),
        ((1, 4, 5), 1, None),
        ((4, 5, 1), 550.0, [550.0]),
        ((4, 1, 5), 0.5, None),
    ],
)
def test_a_single_number(
    tmp_path: Path, shape: tuple[int, ...], number: float, expected: list[float] | None
) -> None:
    path = npz(tmp_path, cube=np.full(shape, 0.5), **{"lambda": number})
    cube = load_cube(path)
    assert (None if cube.wavelengths is None else cube.wavelengths.tolist()) == expected
    assert cube.values.shape == ((1, 4, 5) if expected else shape)
    assert describe(path)["wavelengths"] == expected
    assert describe(path)["shape"] == cube.values.shape


def test_a_list_along_the_bands_comes_before_one_along_a_side(tmp_path: Path) -> None:
    path = npz(tmp_path, cube=DEEP, wl=[400.0, 500.0, 600.0], **{"lambda": [1.0, 3.0, 9.0, 27.0]})
    assert load_cube(path).wavelengths.tolist() == [400, 500, 600]


def test_a_list_of_another_length_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_cube(npz(tmp_path, cube=DEEP, wl=np.arange(400.0, 470, 10))).wavelengths is None
    assert "wl lists 7 numbers, none of the sides of 3×4×5" in caplog.text


def test_a_name_that_says_the_unit(tmp_path: Path) -> None:
    path = npz(tmp_path, cube=DEEP, wavelengths_nm=[13.5, 50.0, 90.0])
    assert load_cube(path).wavelengths.tolist() == [13.5, 50, 90]


@pytest.mark.parametrize("listed", [[500.0, 400.0, 600.0], [-2.0, 0.5, 0.6], [400, np.nan, 600]])
def test_an_error_about_wavelengths_names_the_variable(tmp_path: Path, listed: list[float]) -> None:
    path = npz(tmp_path, cube=DEEP, bands=listed)
    with pytest.raises(ValuesError, match=r"file\.npz: .*variable 'bands'; wavelengths replaces"):
        load_cube(path)
    facts = describe(path)
    assert "variable 'bands'" in facts["problem"]
    assert (facts["wavelengths"], facts["shape"]) == (None, (3, 4, 5))
    assert load_cube(path, wavelengths=[400, 500, 600]).wavelengths is not None


# --- describe ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("extension", "form"), WRITTEN, ids=IDS)
def test_description(tmp_path: Path, name: str, extension: str, form: str | None) -> None:
    record = RECORDS[name]
    path = write(record, tmp_path, "file", extension, form)
    facts = describe(path)
    assert facts["problem"] is None
    assert facts["shape"] == record.values.shape
    assert facts["minimum"] == pytest.approx(float(record.values.min()))
    assert facts["maximum"] == pytest.approx(float(record.values.max()))
    assert facts["bytes"] == path.stat().st_size
    if extension != ".npy":
        assert facts["kind"] == kind_of(record)
        assert facts["attrs"]["seed"] == 7
        if name == "cube":
            assert facts["wavelengths"] == a_cube().wavelengths.tolist()


def test_description_of_something_unclear_or_wrong(tmp_path: Path) -> None:
    unclear = describe(npz(tmp_path, a=DEEP, b=DEEP))
    assert unclear["kind"] is None
    assert "Name one" in unclear["problem"]
    assert [v["shape"] for v in unclear["variables"]] == [(3, 4, 5), (3, 4, 5)]
    holes = DEEP.copy()
    holes[0, 0, :2] = np.nan, np.inf
    facts = describe(npz(tmp_path, cube=holes))
    assert facts["not_finite"] == 2
    assert facts["maximum"] == 0.25
    nothing = describe(npz(tmp_path, cube=np.full((2, 3, 4), np.nan)))
    assert nothing["minimum"] is None
