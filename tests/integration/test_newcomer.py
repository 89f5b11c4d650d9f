"""What a newcomer typed at the first try, and what is said to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismask import (
    CASSI,
    Cube,
    PrismaskWarning,
    demo_scene,
    load,
    reconstruct,
    save,
    score,
    simulate,
)
from prismask.apps.cli import app as cli
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.conversion import as_cube
from prismask.scenes.formats.files import load_cube
from prismask.scenes.records import Mask, Measurement

SIZE = (128, 128)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene, its mask and its snapshot, as a newcomer has them."""
    here = tmp_path_factory.mktemp("newcomer")
    scene = demo_scene(SIZE)
    mask = Mask(fabricate_mask(SIZE, seeded(0)).numpy())
    save(scene, here / "scene.nc")
    save(mask, here / "mask.nc")
    save(simulate(scene, mask, CASSI.from_step(28)), here / "shot.nc")
    np.save(here / "bands_last.npy", np.ones((64, 96, 28), np.float32))
    np.savez(here / "several.npz", first=np.ones((4, 5, 6)), second=np.ones((3, 5, 6)))
    return here


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with links to the files."""
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


RECONSTRUCT = "reconstruct shot.nc --mask mask.nc -o cube.nc --no-quick-look"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{RECONSTRUCT} --dark 5000", "the dark level leaves nothing of the snapshot: it is 5000"),
        (f"{RECONSTRUCT} --turn-mask transposed", "turned by --turn-mask transposed"),
        (f"{RECONSTRUCT} --average", "--average takes several exposures, and shot.nc holds one"),
        (f"{RECONSTRUCT} --offsets offs.txt", "--offsets names offs.txt, and there is no such"),
        ("reconstruct mask.nc --mask shot.nc -o cube.nc", "Are snapshot and mask swapped?"),
        ("reconstruct mask.nc shot.nc --mask mask.nc -o cubes2.nc", "need a folder: -o cubes2."),
        ("reconstruct scena.nc --mask mask.nc -o scene.nc",
         "scena.nc does not exist. Did you mean 'scene.nc'"),
        ("reconstruct zzz.nc --mask mask.nc -o scene.nc", "zzz.nc does not exist.\n"),
        ("render hence.nc -o picture.png", "hence.nc does not exist.\n"),  # no slip of scene.nc
        ("reconstruct --helpp", "Unknown option: --helpp. Did you mean --help? Try"),
        ("reconstruct shot.nc --zebra 3", "Unknown option: --zebra. Try"),
        ("reconstruct shot.nc --maks 3", "Unknown option: --maks. Did you mean --mask?"),
        ("render zzz.nc -o scene.nc.png", "zzz.nc does not exist.\n"),
        ("convert zzz.nc scene.nc", "zzz.nc does not exist.\n"),
        ("simulate zzz.nc --mask mask.nc -o scene.nc", "zzz.nc does not exist.\n"),
        ("spectra zzz.nc --points 1,1 -o s.csv", "zzz.nc does not exist.\n"),
        ("spectra scene.nc -o s.csv --points -1,7", "the pixel -1,7 does not lie on the cube"),
        ("spectra scene.nc -o s.csv --points 3,3 -1,7", "the pixel -1,7 does not lie on the cube"),
        ("spectra scene.nc --points 3,3 --out=s.csv -1,7", "Unknown option: -1,7."),
        ("spectra scene.nc -o s.csv --regions 9,9,5,5", "9,9,5,5 is the wrong way round"),
        ("demo --method gaptv -o demo", "Did you mean 'gap-tv'?"),
        ("info several.npz --variable third", "has no variable 'third'"),
        ("render bands_last.npy -o picture.png",
         "64 bands of 96×28 pixels, because bands come first. If they are the 28 along axis 2"),
        ("info bands_last.npy", "If they are the 28 along axis 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(
    here: Path,
    line: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = cli.run(line.split())
    told = capsys.readouterr()
    assert said in f"{told.out}{told.err}{caplog.text}"
    assert "exists already" not in told.err
    assert "drawing the scene" not in told.err
    assert code == (0 if "bands_last" in line or line.startswith("info") else 2)
    assert not (here / "cube.nc").exists()


def test_points_are_listed_after_one_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.run(["spectra", "scene.nc", "--points", "5,7", "9,9", "-o", "s.csv", "--no-picture"])
        == 0
    )
    assert (here / "s.csv").read_text().startswith("wavelength_nm,x5 y7,x9 y9")
    capsys.readouterr()
    cli.run(["spectra", "--help"])
    assert "--empty" not in capsys.readouterr().out


def test_info_takes_the_variable_that_it_asks_for(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["info", "several.npz"]) == 0
    assert "Name one with --variable NAME." in capsys.readouterr().out
    assert cli.run(["info", "several.npz", "--variable", "second"]) == 0
    assert "3×5×6 (variable second)" in capsys.readouterr().out


def test_leaving_the_network_for_a_solver_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*RECONSTRUCT.split(), "--iterations", "2"]) == 0
    assert "note: gap-tv is used, not a network: iterations is for sol" in capsys.readouterr().err
    line = [*RECONSTRUCT.split(), "--overwrite", "--method", "gap-tv", "--iterations", "2"]
    assert cli.run(line) == 0
    assert "not a network" not in capsys.readouterr().err


def test_sizes_that_differ_are_those_of_the_files(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Cube(load_cube("scene.nc").values[:, :64]), "half.nc")
    assert cli.run(["evaluate-pair", "scene.nc", "half.nc"]) == 2
    assert "the estimate is 28×64×128 and the truth 28×128×128" in capsys.readouterr().err
    with pytest.raises(ShapeError, match="the estimate is 28×64×128 and the truth 28×128×128"):
        score("half.nc", "scene.nc")


# --- in Python ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_a_snapshot_without_light_is_refused(files: Path, factor: float) -> None:
    shot, mask = load(files / "shot.nc"), load(files / "mask.nc")
    with pytest.raises(ValuesError, match="no light in the snapshot: its values run from"):
        reconstruct(Measurement(factor * shot.values), mask, method="gap-tv")
    with pytest.raises(ValuesError, match=r"it is 5, and the values run from .*; without dark it"):
        reconstruct(np.asarray(shot), mask, method="gap-tv", dark=5)


def test_micrometres_are_no_nanometres() -> None:
    with pytest.raises(ValuesError, match="multiply them by 1000: 450 to 650 nm"):
        Cube(np.ones((3, 4, 5)), wavelengths=[0.45, 0.55, 0.65])
    with pytest.raises(ValuesError, match="multiply them by 1000: 8000 to 14000 nm"):
        Mask(np.ones((2, 4, 5)), wavelengths=[8.0, 14.0])
    with pytest.raises(ShapeError, match="3 wavelengths came for 28 bands"):
        Cube(np.ones((28, 4, 5)), wavelengths=[450, 550, 650])


def test_an_array_is_not_saved_without_saying_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match=r"ndarray is none of them.*save\(Cube\("):
        save(np.ones((3, 4, 5)), tmp_path / "cube.nc")  # type: ignore[arg-type]  # wrong on purpose
    assert not list(tmp_path.iterdir())


def test_what_people_try_on_a_cube() -> None:
    cube = demo_scene(64)
    assert cube.shape == (28, 64, 64)
    for call in (cube.plot, cube.band, lambda word: cube.sel(wavelength=word)):
        with pytest.raises(ConfigError, match="a wavelength is 'green'; give a number in nm"):
            call("green")  # type: ignore[arg-type]  # wrong on purpose
    for x in (float("nan"), 10.5, "a", np.inf):
        with pytest.raises(ConfigError, match=r"x is .* whole numbers"):
            cube.spectrum(x, 3)  # type: ignore[arg-type]  # wrong on purpose
    assert cube.spectrum(np.int64(10), 3.0).name == "x10 y3"
    with pytest.raises(ConfigError, match=r"the wrong way round.* 5,5,9,9"):
        cube.spectrum((9, 9, 5, 5))


def test_bands_that_come_last_are_told() -> None:
    with pytest.warns(PrismaskWarning, match=r"64 bands of 96×28 pixels.*moveaxis\(values, 2, 0\)"):
        as_cube(np.ones((64, 96, 28)))
