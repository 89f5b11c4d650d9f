"""`convert` and `render`: what they read is never what they write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prismask.apps.cli.app import run
from prismask.apps.cli.camera_options import LONGEST_LIST, parse_numbers
from prismask.apps.cli.simulate import SensorOptions, build_sensor
from prismask.errors import ConfigError
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load, save
from prismask.scenes.records import Cube

CUBE = Cube(np.random.default_rng(0).random((3, 4, 5), dtype=np.float32), [450.0, 550.0, 650.0])


@pytest.mark.parametrize(
    ("stored", "source", "target"),
    [
        ("x.nc", "x.nc", "x.nc"),
        ("x.nc", "x.nc", "sub/../x.nc"),
        ("x.nc", "link.nc", "x.nc"),
        ("x.nc", "x.nc", "link.nc"),
        ("x.hdr", "x.hdr", "x.img"),
        ("x.hdr", "x.img", "x.hdr"),
    ],
)
def test_an_input_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: str, source: str, target: str
) -> None:
    (tmp_path / "sub").mkdir()
    save(CUBE, tmp_path / stored)
    (tmp_path / "link.nc").symlink_to(tmp_path / "x.nc")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    paths = [str(tmp_path / source), str(tmp_path / target)]
    assert run(["convert", *paths, "--overwrite"]) == 2
    assert "would be lost" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


@pytest.mark.parametrize("out", [".", "/", ".."])
def test_a_folder_is_no_name_for_a_result(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        "spectra cube.nc --points 3,3",
        "report .",
        "render cube.nc",
        "convert cube.nc",
        "camera 450=a.npy",
    ):
        words = [*line.split(), *([] if "convert" in line else ["-o"]), out, "--overwrite"]
        assert run(words) == 2, line
        assert capsys.readouterr().err.count("\n") == 1


def test_a_pair_beside_another_file_is_converted(tmp_path: Path) -> None:
    save(CUBE, tmp_path / "x.nc")
    assert run(["convert", str(tmp_path / "x.nc"), str(tmp_path / "x.hdr")]) == 0
    assert np.array_equal(load(tmp_path / "x.img").values, CUBE.values)


def test_a_picture_is_not_rendered_onto_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(np.eye(4, dtype=np.uint8)).save(path)
    assert run(["render", str(path), "-o", str(path), "--overwrite"]) == 2
    assert "would be lost" in capsys.readouterr().err


def test_a_list_of_numbers_is_no_large_file(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("450\n" * LONGEST_LIST)
    with pytest.raises(ConfigError, match="too long for a list of numbers"):
        parse_numbers(str(path), "--wavelengths")


class Ascii:
    """A stream of a terminal that knows no other letters."""

    encoding = "ascii"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text.encode("ascii").decode()

    def flush(self) -> None:
        pass


def test_streams_that_know_only_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grün.nc"
    save(CUBE, path)
    stream = Ascii()
    monkeypatch.setattr("sys.stdout", stream)
    assert run(["info", str(path)]) == 0
    assert "gr\\xfcn.nc" in stream.text


# --- pictures of bands, and sentences that stay whole --------------------------------------------


@pytest.fixture
def cubes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    values = np.linspace(0, 1, 4 * 8 * 8, dtype=np.float32).reshape(4, 8, 8)
    warning = "warning: " + "the snapshot contradicts its mask; " * 8 + "the end."
    attrs = {"findings": [warning, "note: short"], "offsets": [float(k) for k in range(60)]}
    save(Cube(values, np.array([450.0, 500, 550, 600]), attrs=attrs), "known.nc")
    save(Cube(values), "unknown.nc")
    return tmp_path


@pytest.mark.parametrize(("band", "found"), [("2", "band 2 at 550"), ("548", "band 2 at 550"),
                                             ("548.5nm", "band 2 at 550")])  # fmt: skip
def test_a_band_is_meant_by_number_or_wavelength(
    cubes: Path, band: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", "known.nc", "--band", band, "-o", "band.png"]) == 0
    assert found in capsys.readouterr().err


def test_a_larger_exposure_shows_a_band_brighter(cubes: Path) -> None:
    light = []
    for exposure in ("0.2", "0.5", "2"):
        line = ["render", "known.nc", "--band", "2", "--exposure", exposure, "--overwrite"]
        assert run([*line, "-o", "band.png"]) == 0
        light.append(float(np.asarray(Image.open("band.png").convert("RGB"), float).mean()))
    assert light[0] < light[1] < light[2]


def test_a_library_is_not_written_over(cubes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "wavelength_nm,oak\n440,0.2\n620,0.4\n"
    Path("oak.csv").write_text(table)
    line = "spectra known.nc --points 1,1 --library oak.csv --no-picture --overwrite -o oak.csv"
    assert run(line.split()) == 2
    assert "would be lost" in capsys.readouterr().err
    assert Path("oak.csv").read_text() == table


@pytest.mark.parametrize(("name", "band", "sentence"), [
    ("known.nc", "4", "this cube has bands 0 to 3"),
    ("known.nc", "700", "this cube runs from 450 to 600 nm"),
    ("known.nc", "0.55", "give a wavelength in nm, such as 550"),
    ("known.nc", "green", "give a wavelength in nm, such as 550"),
    ("unknown.nc", "550", "or --band the number of a band, 0 to 3"),
])  # fmt: skip
def test_bands_that_are_not_there(
    cubes: Path, name: str, band: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", name, "--band", band, "-o", "band.png"]) == 2
    assert sentence in capsys.readouterr().err
    assert not (cubes / "band.png").exists()


def test_a_cube_of_unknown_wavelengths_is_grey_as_in_its_quick_look(
    cubes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", "unknown.nc", "-o", "all.png"]) == 0
    assert "note: shown in grey" in capsys.readouterr().err
    assert run(["render", "unknown.nc", "--band", "1", "-o", "one.png"]) == 0
    assert run(["render", "unknown.nc", "--illuminant", "D65", "-o", "lit.png"]) == 2


def test_info_shows_whole_sentences(cubes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "known.nc"]) == 0
    told = capsys.readouterr().out
    assert "the end." in told
    assert "note: short" in told
    assert "58.0" not in told  # numbers may be cut


def test_a_models_sentences_stay_whole() -> None:
    from prismask.apps.cli.models import _record_rows

    sentence = "Do not use it behind " + "two dispersers or " * 12 + "a grating."
    rows = dict(_record_rows({"caution": sentence, "scores": list(range(200))}))
    assert rows["caution"] == sentence
    assert rows["scores"].endswith("… (--json shows all)")


def test_info_fails_where_nothing_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "mask.npy", np.ones((4, 4), np.complex64))
    assert run(["info", str(tmp_path / "mask.npy")]) == 2
    said = capsys.readouterr().out
    assert "holds nothing that can be used" in said
    assert "--variable" not in said
    np.savez(tmp_path / "two.npz", a=np.ones((4, 4)), b=np.ones((4, 4)))
    assert run(["info", str(tmp_path / "two.npz")]) == 0


def test_the_sensor_that_is_asked_for_is_the_one_that_measures() -> None:
    """In the dark there is no shot noise: what is left is that of reading, in electrons."""
    sensor = build_sensor(SensorOptions(full_well=1000.0, read_noise=20.0))
    assert sensor is not None
    dark = sensor.apply(torch.zeros(1, 200, 200), seeded(0))
    assert float(dark.std()) == pytest.approx(0.02, rel=0.05)
    assert build_sensor(SensorOptions()) is None
