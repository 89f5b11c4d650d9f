"""`prismask camera`: files in, a mask that says all about its camera out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prismask import CASSI, Cube, Mask, load_cube, load_mask, save
from prismask.apps.cli import app as cli
from prismask.optics.camera import camera_from_attrs
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.simulate import simulate

SIZE = (64, 80)
NM = (450, 500, 550, 600, 650)
PRISM = CASSI((0.0, 6.4, 11.9, 16.5, 20.0))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pictures at five wavelengths under uneven light, flat and dark."""
    monkeypatch.chdir(tmp_path)
    mask = Mask(fabricate_mask(SIZE, torch.Generator().manual_seed(1)).numpy())
    light = np.linspace(0.4, 0.8, 100, dtype=np.float32)[None].repeat(64, 0)
    for number, nm in enumerate(NM):
        lit = np.zeros((5, *SIZE), np.float32)
        lit[number] = 1
        shot = simulate(Cube(lit, np.array(NM, float)), mask, PRISM, scale=1.0).values
        np.save(f"lit{nm}.npy", 0.05 + light * shot)
        np.save(f"flat{nm}.npy", 0.05 + light)
    np.save("dark.npy", np.full((64, 100), 0.05, np.float32))
    np.save("mask.npy", mask.values)
    return tmp_path


def pictures() -> list[str]:
    return [f"{nm}=lit{nm}.npy" for nm in NM]


def test_from_pictures_to_a_cube(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["camera", *pictures(), "--flat", "flat450.npy", "--dark", "dark.npy", "-o", "lab.nc"]
    assert cli.run(asked) == 0
    told = capsys.readouterr()
    assert "11 bands from 450.0 to 650.0 nm over 20 px along the width" in told.out
    assert "prismask reconstruct SNAPSHOT --mask lab.nc" in told.out
    assert told.err == ""
    mask = load_mask("lab.nc")
    np.testing.assert_allclose(mask.values, np.load("mask.npy"), atol=0.06)
    with Image.open(bench / "lab.png") as picture:
        assert picture.width > 1000
    noted = camera_from_attrs(mask.attrs)
    assert noted is not None
    scene = np.ones((11, *SIZE), np.float32)
    np.save("shot.npy", simulate(Cube(scene), Mask(mask.values), noted).values)
    made = ["--method", "gap-tv", "--iterations", "2", "-o", "cube.nc"]
    assert cli.run(["reconstruct", "shot.npy", "--mask", "lab.nc", *made]) == 0
    assert load_cube("cube.nc").wavelengths == pytest.approx(mask.attrs["wavelengths_nm"])
    assert cli.run(asked) == 2
    assert "lab.nc exists already" in capsys.readouterr().err


def test_a_scene_of_its_bands_is_photographed_with_the_noted_camera(bench: Path) -> None:
    assert cli.run(["camera", *pictures(), "--bands", "4", "--no-figure", "-o", "lab.mat"]) == 0
    assert not (bench / "lab.png").exists()
    np.save("scene.npy", np.ones((4, *SIZE), np.float32))
    assert cli.run(["simulate", "scene.npy", "--mask", "lab.mat", "-o", "shot.nc"]) == 0
    cube = ["reconstruct", "shot.nc", "--mask", "lab.mat", "--method", "gap-tv", "-o", "cube.nc"]
    assert cli.run(cube) == 0
    assert load_cube("cube.nc").bands == 4


def test_a_scene_of_other_bands_is_not_photographed_with_it_in_silence(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Light of 400 nm does not land where 450 nm was measured."""
    assert cli.run(["camera", *pictures(), "--bands", "4", "--no-figure", "-o", "lab.nc"]) == 0
    at = load_mask("lab.nc").attrs["wavelengths_nm"]
    scenes = {
        "same.nc": Cube(np.ones((4, *SIZE), np.float32), np.array(at) + 0.01),
        "wider.nc": Cube(np.ones((4, *SIZE), np.float32), np.linspace(400, 700, 4)),
        "more.nc": Cube(np.ones((6, *SIZE), np.float32)),
    }
    for name, extent in (("same.nc", 20), ("wider.nc", 6), ("more.nc", 10)):
        save(scenes[name], name)
        capsys.readouterr()
        assert cli.run(["simulate", name, "--mask", "lab.nc", "-o", f"shot-{name}"]) == 0
        told = capsys.readouterr()
        assert f"over {extent} px" in told.out
        assert ("notes a camera of 4 bands" in told.err) == (name != "same.nc")
    assert cli.run(["simulate", "more.nc", "--mask", "lab.nc", "--step", "2", "-o", "x.nc"]) == 0
    assert capsys.readouterr().err == ""
    # Wavelengths of another number than its bands are no word about them.
    mask = load_mask("lab.nc")
    save(Mask(mask.values, attrs={**mask.attrs, "wavelengths_nm": at[:2]}), "few.nc")
    assert cli.run(["simulate", "wider.nc", "--mask", "few.nc", "-o", "y.nc"]) == 0
    assert "over 20 px" in capsys.readouterr().out


def test_wavelengths_for_other_bands_than_the_mask_notes(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["camera", *pictures(), "--bands", "4", "--no-figure", "-o", "lab.nc"]) == 0
    given = ["reconstruct", "lit450.npy", "--mask", "lab.nc", "--wavelengths", "450,500,650"]
    assert cli.run([*given, "-o", "cube.nc"]) == 2
    assert "--wavelengths lists 3 bands, but the camera has 4" in capsys.readouterr().err


def test_a_name_with_an_equals_sign_is_a_name(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench / "a=b.npy").write_bytes((bench / "lit450.npy").read_bytes())
    for name, said in (
        ("a=b.npy", "name each picture with its wavelength"),
        ("0=lit450.npy", "0 nm is no wavelength"),
        ("450nm=c.npy", "there is no file c.npy"),
    ):
        assert cli.run(["camera", name, "-o", "lab.nc"]) == 2
        assert said in capsys.readouterr().err


def test_overexposed_pictures_are_named(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clipped edges lie elsewhere; nothing else would tell."""
    np.save("lit500.npy", np.minimum(np.load("lit500.npy"), 0.3))
    assert cli.run(["camera", *pictures(), "--no-figure", "-o", "lab.nc"]) == 0
    told = capsys.readouterr().err
    assert "% of the pixels of lit500.npy are at its largest value" in told
    assert "lit450.npy" not in told


def test_a_flat_for_each_wavelength(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flats = [word for nm in NM for word in ("--flat", f"{nm}=flat{nm}.npy")]
    given = ["camera", *pictures(), *flats, "--dark", "dark.npy", "--no-figure"]
    assert cli.run([*given, "-o", "lab.nc"]) == 0
    np.testing.assert_allclose(load_mask("lab.nc").values, np.load("mask.npy"), atol=0.06)
    capsys.readouterr()
    assert cli.run(["camera", *pictures(), "--no-figure", "-o", "bare.nc"]) == 0
    assert "without --flat" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--no-figure"]])
def test_no_picture_is_written_over(
    bench: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The figure is called like the mask; a picture may be, too."""
    for nm in (450, 650):
        shot = np.clip(np.load(f"lit{nm}.npy") * 65535, 0, 65535).astype(np.uint16)
        Image.fromarray(shot).save(f"lab{nm}.png")
    before = Path("lab450.png").read_bytes()
    out = "lab450.nc" if not options else "lab450.npz"
    asked = ["camera", "450=lab450.png", "650=lab650.png", "-o", out, "--overwrite", *options]
    assert cli.run(asked) == (0 if options else 2)
    assert ("lab450.png is what is read" in capsys.readouterr().err) == (not options)
    assert Path("lab450.png").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lit450.npy", "650=lit650.npy"], "name each picture with its wavelength"),
        (["450=lit450.npy", "450=lit650.npy"], "the same wavelength"),
        (["450=lit450.npy", "650=nothing.npy"], "there is no file nothing.npy"),
        (["-450=lit450.npy", "650=lit650.npy"], "450"),
        ([*pictures(), "--flat", "450=flat450.npy"], "--flat names no picture for 500 nm"),
        ([*pictures(), "--flat", "flat450.npy", "--flat", "flat500.npy"], "give --flat once"),
        ([*pictures(), "--dark", "mask.npy"], "have its size"),
        ([*pictures(), "--bands", "4", "--step", "2"], "--step and --bands both say"),
        ([*pictures(), "--wavelengths", "x"], "--wavelengths is 'x'"),
        ([*pictures(), "-o", "lab.npy"], "cannot store the camera"),
        ([*pictures(), "-o", "lab.xyz"], "lab.xyz"),
    ],
)
def test_wrong_input_is_told_and_writes_nothing(
    bench: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(bench.iterdir())
    out = [] if "-o" in arguments else ["-o", "lab.nc"]
    assert cli.run(["camera", *arguments, *out]) == 2
    assert words in capsys.readouterr().err
    assert set(bench.iterdir()) == before
