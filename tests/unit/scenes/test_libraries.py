"""Spectral libraries: three kinds of files, angles against an independent formula, a map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from prismask.apps.cli.app import run
from prismask.errors import DataMissingError, FormatError, PrismaskWarning, ShapeError, ValuesError
from prismask.evaluation.metrics import sam
from prismask.scenes.formats.files import save
from prismask.scenes.libraries import SpectralLibrary, load_library
from prismask.scenes.records import Cube
from prismask.scenes.spectra import Spectrum

NM = np.array([450.0, 500.0, 550.0, 600.0, 650.0])
FINE = np.arange(400.0, 701.0, 10.0)
LEAF = 0.1 + 0.4 * np.exp(-(((FINE - 550) / 40) ** 2))
BRICK = 1 / (1 + np.exp(-(FINE - 580) / 20))


def write_sli(folder: Path, order: int = 0, kind: str = "f4", scale: float = 1.0) -> Path:
    data = np.stack([LEAF, BRICK]) * scale
    data.astype(("<", ">")[order] + kind).tofile(folder / "lib.sli")
    code = {"f4": 4, "i2": 2}[kind]
    extra = f"reflectance scale factor = {scale}\n" if scale != 1 else ""
    listed = ", ".join(f"{nm / 1000:.3f}" for nm in FINE)
    (folder / "lib.hdr").write_text(
        f"ENVI\nsamples = {len(FINE)}\nlines = 2\nbands = 1\nheader offset = 0\n"
        f"file type = ENVI Spectral Library\ndata type = {code}\ninterleave = bsq\n"
        f"wavelength units = Micrometers\n{extra}spectra names = {{Leaf, Brick, }}\n"
        f"wavelength = {{{listed}}}\nbyte order = {order}\n"
    )
    return folder / "lib.sli"


def write_csv(folder: Path) -> Path:
    rows = [f"{nm / 1000:g};{a:.9g};{b:.9g}" for nm, a, b in zip(FINE, LEAF, BRICK, strict=True)]
    path = folder / "lib.csv"
    path.write_text("\n".join(["# two materials", "wavelength (um);Leaf;Brick", *rows, ""]))
    return path


def write_ecostress(folder: Path) -> list[Path]:
    paths = []
    for name, values in (("Leaf", LEAF), ("Brick", BRICK)):
        rows = [f"{nm / 1000:.4f}\t{100 * v:.7f}" for nm, v in zip(FINE, values, strict=True)]
        path = folder / f"{name.lower()}.spectrum.txt"
        head = (
            f"Name: {name}\nType: made up\nX Units: Wavelength (micrometers)\n"
            "Y Units: Reflectance (percentage)\nDescription: 2 3\n"
        )
        # Theirs run from long to short wavelengths.
        path.write_text(head + "\n" + "\n".join(reversed(rows)) + "\n")
        paths.append(path)
    return paths


@pytest.fixture(params=["sli", "big-endian sli", "counts", "csv", "ecostress", "folder"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> SpectralLibrary:
    if request.param == "csv":
        return load_library(write_csv(tmp_path))
    if request.param == "ecostress":
        return load_library(write_ecostress(tmp_path))
    if request.param == "folder":
        write_ecostress(tmp_path)
        return SpectralLibrary(tuple(sorted(load_library(tmp_path), key=lambda s: -ord(s.name[0]))))
    if request.param == "counts":
        return load_library(write_sli(tmp_path, 0, "i2", 10000.0))
    return load_library(write_sli(tmp_path, int(request.param != "sli")))


def test_every_format_gives_the_same(library: SpectralLibrary) -> None:
    assert library.names == ["Leaf", "Brick"]
    for one, values in zip(library, (LEAF, BRICK), strict=True):
        np.testing.assert_allclose(one.values, values, atol=1e-4)
        assert one.wavelengths is not None
        np.testing.assert_allclose(one.wavelengths, FINE)


def _cube() -> Cube:
    """Leaf on the left, brick on the right, at many brightnesses."""
    light = np.random.default_rng(0).uniform(0.2, 1, (1, 4, 6))
    leaf, brick = (np.interp(NM, FINE, values)[:, None, None] for values in (LEAF, BRICK))
    return Cube(light * np.where(np.arange(6) < 3, leaf, brick), NM)


def test_the_map_finds_the_materials(library: SpectralLibrary) -> None:
    found = _cube().nearest_material(library)
    np.testing.assert_array_equal(found.index, np.broadcast_to([0, 0, 0, 1, 1, 1], (4, 6)))
    assert found.angle.max() < 0.05
    assert found.shares() == {"Leaf": 0.5, "Brick": 0.5}
    other = Cube(np.ones((5, 2, 2)), NM).nearest_material(library, limit=1.0)
    assert (other.index == -1).all()
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    found.plot(Figure().subplots())


def test_angles_agree_with_the_metric() -> None:
    rng = np.random.default_rng(1)
    cube, one = Cube(rng.random((5, 3, 4)), NM), rng.random(5)
    spread = np.broadcast_to(one[:, None, None], (5, 3, 4))
    wanted = sam(torch.tensor(cube.values)[None].double(), torch.tensor(spread.copy())[None])
    assert cube.angle_to(one).shape == (3, 4)
    assert cube.angle_to(one).mean() == pytest.approx(float(wanted), rel=1e-6)
    assert cube.angle_to(np.stack([one, 2 * one])).shape == (2, 3, 4)
    np.testing.assert_allclose(*cube.angle_to(np.stack([one, 2 * one])), rtol=1e-9)
    assert cube.angle_to(cube.spectrum(2, 1))[1, 2] == pytest.approx(0, abs=1e-4)
    black = Cube(np.zeros((5, 1, 1)), NM)
    assert black.angle_to(one) == 90
    assert black.angle_to(np.zeros(5)) == 0
    with pytest.raises(ShapeError, match="this cube has 5 bands"):
        cube.angle_to(one[:4])


def test_spectra_that_do_not_reach_the_bands_are_told() -> None:
    far = Spectrum(BRICK, FINE + 8000, name="thermal")
    both = SpectralLibrary((Spectrum(LEAF, FINE, name="Leaf"), far))
    with pytest.warns(PrismaskWarning, match="thermal do not cover 450 to 650 nm"):
        assert _cube().nearest_material(both).names == ["Leaf"]
    with pytest.raises(ValuesError, match="no spectrum of the library covers"):
        _cube().nearest_material(SpectralLibrary((far,)))
    with pytest.raises(ValuesError, match="are unknown"):
        Cube(np.ones((5, 2, 2))).nearest_material(both)


def test_damaged_files_are_told(tmp_path: Path) -> None:
    path = write_sli(tmp_path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FormatError, match="lib"):
        load_library(path)
    header = tmp_path / "lib.hdr"
    header.write_text(header.read_text().replace("Spectral Library", "Standard"))
    with pytest.raises(FormatError, match="an ENVI image, not a spectral library"):
        load_library(path)
    for text, told in (
        ("", "is empty"),
        ("450\n500\n", "a wavelength and a value"),
        ("nm,a\n450,x\n", "could not convert"),
        ("nm,a\n450,1\n500\n", "a wavelength and a value"),
        ("nm,a\n450,1\n", "fewer than two values"),
        ("Name: a\nX Units: Wavelength (micrometers)\n", "no numbers below it"),
    ):
        (tmp_path / "wrong.txt").write_text(text)
        with pytest.raises(FormatError, match=told):
            load_library(tmp_path / "wrong.txt")
    with pytest.raises(DataMissingError):
        load_library(tmp_path / "not-there.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataMissingError, match="holds no spectral library"):
        load_library(tmp_path / "empty")


# --- the command ---------------------------------------------------------------------------------


def test_the_command_writes_a_table_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    save(_cube(), tmp_path / "cube.nc")
    write_csv(tmp_path)
    words = [
        "spectra",
        "cube.nc",
        "--points",
        "0,1",
        "--points",
        "5,3",
        "--regions",
        "0,0,2,3",
        "-o",
        "out.csv",
    ]
    assert run([*words, "--library", "lib.csv", "--material-map", "map.png"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["out.csv", "out.png", "map.png"]
    assert "x0 y1: Leaf (0.0°), Brick" in err
    assert "x5 y3: Brick (0.0°), Leaf" in err
    assert "50.0 % Leaf" in err
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0].startswith("wavelength_nm,x0 y1,x5 y3,x0-2 y0-3,Leaf × ")
    values = np.array([[float(cell) for cell in row.split(",")] for row in rows[1:]])
    np.testing.assert_allclose(values[:, 1], _cube().values[:, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(values[:, 4], values[:, 1], rtol=1e-4)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    # Its own tables are libraries too.
    assert load_library(tmp_path / "out.csv").names[:2] == ["x0 y1", "x5 y3"]
    assert run(words) == 2
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-o out.csv", "there is nothing to do"),
        ("--points 0,0 -o out.txt", "tables are written as CSV"),
        ("--points 0.5,1 -o out.csv", "a pixel is x,y in whole numbers"),
        ("--points 9,1 -o out.csv", "does not lie on the cube"),
        ("--points 0,0 --material-map m.png -o out.csv", "give --library"),
        ("--points 0,0 --library none.csv -o out.csv", "none.csv does not exist"),
    ],
)
def test_wrong_words_leave_nothing_behind(
    words: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save(_cube(), tmp_path / "cube.nc")
    assert run(["spectra", "cube.nc", *words.split()]) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cube.nc"]
