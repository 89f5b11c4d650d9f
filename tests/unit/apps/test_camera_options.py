"""Options to cameras: what is given wins, contradictions are told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prismask.apps.cli.camera_options import CameraOptions, parse_numbers
from prismask.errors import ConfigError
from prismask.optics.camera import CASSI, camera_attrs, resolve_camera
from prismask.scenes.defaults import BANDS, STEP, WAVELENGTHS_NM


def build_camera(options: CameraOptions, bands: int | None = None, attrs: Any = None) -> CASSI:
    return resolve_camera(options.description(), attrs, bands=bands).camera


@pytest.mark.parametrize("text", ["wavelength_nm\n450\n460.5\n", "# centres\n450, 460.5\n",
                                  "\ufeffλ [nm]\n450\n460.5 # last\n"])  # fmt: skip
def test_a_list_may_have_a_title_and_comments(tmp_path: Path, text: str) -> None:
    (tmp_path / "nm.txt").write_text(text, encoding="utf-8")
    assert parse_numbers(str(tmp_path / "nm.txt"), "--wavelengths") == (450.0, 460.5)


@pytest.mark.parametrize(("listed", "advice"), [
    ("0.45,0.5,0.65", "In µm? Then multiply them by 1000: 450 to 650 nm"),
    ("4.5e-7,6.5e-7", "In m? Then multiply them by 1e+09"),
    ("1,2,3", "no optical band lies below 100 nm"),
])  # fmt: skip
def test_wavelengths_in_other_units_are_refused(listed: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(advice)):
        CameraOptions(wavelengths=listed).description()


def test_three_wavelengths_for_28_bands_get_advice_that_works() -> None:
    said = CameraOptions(wavelengths="450,550,650").description()
    with pytest.raises(ConfigError, match="list the centre of each of the 28 bands"):
        resolve_camera(said, sizes=((660, 714), (660, 660)))
    three = CameraOptions(wavelengths="450,550,650", bands=3, step=27).description()
    assert resolve_camera(three, sizes=((660, 714), (660, 660))).camera.extent == 54


def test_nothing_given_is_the_default_camera() -> None:
    assert build_camera(CameraOptions()) == CASSI.from_step(BANDS, STEP)


def test_the_cube_knows_its_bands() -> None:
    assert build_camera(CameraOptions(), bands=5) == CASSI.from_step(5)


def test_step_bands_axis_and_design() -> None:
    options = CameraOptions(bands=4, step=-1.5, axis="height", design="dual")
    assert build_camera(options) == CASSI.from_step(4, -1.5, "height", "dual")


def test_offsets_set_the_bands() -> None:
    assert build_camera(CameraOptions(offsets="-1,0, 2.5")).offsets == (0.0, 1.0, 3.5)


def test_wavelengths_set_the_bands() -> None:
    assert build_camera(CameraOptions(wavelengths="450,500,550")).bands == 3


def test_polynomial_uses_the_wavelengths() -> None:
    options = CameraOptions(polynomial="-45,0.1", wavelengths="450,500,560")
    assert build_camera(options).offsets == (0.0, 5.0, 11.0)
    default = build_camera(CameraOptions(polynomial="0,0.25"))
    assert default.extent == pytest.approx(0.25 * (WAVELENGTHS_NM[-1] - WAVELENGTHS_NM[0]), abs=1)


def test_notes_in_the_snapshot_count_until_an_option_speaks() -> None:
    noted = CASSI((0.0, 1.5, 4.0), "height", "dual")
    attrs = camera_attrs(noted)
    assert build_camera(CameraOptions(), attrs=attrs) == noted
    # The number of bands that is noted anyhow does not make their places equal steps.
    assert build_camera(CameraOptions(bands=3), attrs=attrs) == noted
    with pytest.raises(ConfigError, match="lists 2 bands, but the camera has 3"):
        build_camera(CameraOptions(wavelengths="450,460"), attrs=attrs)
    assert build_camera(CameraOptions(axis="width"), attrs=attrs).axis == "width"
    assert build_camera(CameraOptions(bands=6), attrs=attrs) == CASSI.from_step(
        6, axis="height", design="dual"
    )


def test_notes_complete_what_an_option_leaves_open() -> None:
    at = [450.0 + 5 * k for k in range(31)]
    attrs = {**camera_attrs(CASSI.from_step(31, axis="height")), "wavelengths_nm": at}
    assert build_camera(CameraOptions(step=1.7), attrs=attrs) == CASSI.from_step(31, 1.7, "height")
    curved = CameraOptions(polynomial="-45,0.1", axis="width")
    assert build_camera(curved, attrs=attrs) == CASSI.from_polynomial(at, (-45, 0.1))
    # Wavelengths alone say how many bands there are; a foreign text under that name says nothing.
    assert build_camera(CameraOptions(step=1), attrs={"wavelengths_nm": at}) == CASSI.from_step(
        31, 1
    )
    assert build_camera(CameraOptions(step=1), attrs={"wavelengths_nm": 500.0}) == CASSI.from_step(
        1, 1
    )
    assert build_camera(CameraOptions(step=1), attrs={"wavelengths_nm": "?"}) == CASSI.from_step(
        BANDS, 1
    )
    assert build_camera(CameraOptions(wavelengths="450,460", step=1), attrs=attrs).bands == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CameraOptions(step=2, offsets="0,2"), "--step and --offsets both"),
        (CameraOptions(bands=3, offsets="0,2"), "--bands says 3, but --offsets describes 2"),
        (CameraOptions(bands=3, wavelengths="450,460"), "lists 2 bands, but the camera has 3"),
        (CameraOptions(polynomial="0,1", bands=5), "needs the wavelength of each band"),
        (CameraOptions(bands=0), "--bands is 0; a camera has one band or more"),
        (CameraOptions(bands=-3, offsets="0,2"), "--bands is -3"),
        (CameraOptions(offsets="1,two"), "give numbers separated by commas"),
    ],
)
def test_contradictions_are_told(options: CameraOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_camera(options)


def test_numbers_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wavelengths.txt"
    file.write_text("450\n460.5\n470,480\n")
    assert parse_numbers(str(file), "--wavelengths") == (450.0, 460.5, 470.0, 480.0)
    binary = tmp_path / "junk.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a readable text file"):
        parse_numbers(str(binary), "--wavelengths")


def test_a_long_list_is_no_file_name() -> None:
    listed = tuple(450.0 + k for k in range(300))
    assert parse_numbers(",".join(f"{w:.6e}" for w in listed), "--wavelengths") == listed
    with pytest.raises(ConfigError, match="give numbers separated by commas"):
        parse_numbers("x" * 5000, "--wavelengths")
