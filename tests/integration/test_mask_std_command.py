"""`prismask reconstruct --mask-std`, repeated `--mask`, and a mask file that says it itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from prismask.apps.cli import app as cli
from prismask.models.registry import create_model
from prismask.models.weights import save_weights, trained_with
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

CAMERA, SIZE = CASSI.from_step(12), (24, 32)
GRID = tuple(450.0 + 18 * k for k in range(12))
FAST = "--model small.safetensors --bands 12 --no-quick-look --no-check-mask --dark 0"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two snapshots, their mask, how far it may be wrong, and a small untrained network."""
    monkeypatch.chdir(tmp_path)
    mask = Mask(fabricate_mask(SIZE, seeded(0)).numpy())
    std = (0.2 * torch.rand(SIZE, generator=seeded(1))).numpy()
    save(mask, tmp_path / "mask.nc")
    np.save("std.npy", std)
    save(Mask(mask.values, std=std), tmp_path / "both.nc")
    (tmp_path / "shots").mkdir()
    for seed in range(2):
        shot = simulate(random_scene(seed, SIZE, GRID), mask, CAMERA)
        save(Measurement(shot.values), tmp_path / "shots" / f"shot{seed}.nc")
    model = create_model("lumen", bands=12, seed=0, width=8, stages=1, cosines=8)
    save_weights(model, tmp_path / "small.safetensors", {"name": "small", **trained_with(CAMERA)})
    return tmp_path


def made(line: str, mask: str = "--mask mask.nc") -> Cube:
    command = f"reconstruct shots/shot0.nc {mask} -o cube.nc --overwrite {FAST} {line}"
    assert cli.run(command.split()) == 0
    return load_cube("cube.nc")


def test_a_number_a_file_and_the_masks_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing, number, file, own = (
        made(""), made("--mask-std 0.1"), made("--mask-std std.npy"), made("", "--mask both.nc"),
    )  # fmt: skip
    assert nothing.attrs["mask_std_from"] == "estimated by the network"
    assert number.attrs["mask_std"] == 0.1
    assert file.attrs["mask_std_from"] == "std.npy"
    assert own.attrs["mask_std_from"] == "the mask"
    np.testing.assert_array_equal(file.values, own.values)
    assert len({cube.values.tobytes() for cube in (nothing, number, file)}) == 3
    capsys.readouterr()
    both = made("--mask-std 0.1", "--mask both.nc")
    np.testing.assert_array_equal(both.values, number.values)
    assert "Leave --mask-std out to use the mask's." in capsys.readouterr().err


def test_several_calibrations_are_one_mask_and_its_spread(folder: Path) -> None:
    mask, std = np.asarray(fabricate_mask(SIZE, seeded(0))), np.load("std.npy") / 2
    for name, off in (("a", std), ("b", -std)):
        np.save(f"{name}.npy", np.clip(mask + off, 0, 1))
    found = made("", "--mask a.npy --mask b.npy")
    assert found.attrs["mask_std_from"] == "2 calibrations of the mask"
    pair = np.stack([np.load("a.npy"), np.load("b.npy")])
    save(Mask(pair.mean(0), std=pair.std(0, ddof=1)), folder / "pair.nc")
    np.testing.assert_allclose(made("", "--mask pair.nc").values, found.values, atol=1e-6)


def test_it_is_turned_and_cropped_like_the_mask(folder: Path) -> None:
    mask, std = np.asarray(fabricate_mask(SIZE, seeded(0))), np.load("std.npy")
    larger = [np.pad(part, ((2, 3), (4, 1)))[::-1] for part in (mask, std)]
    np.save("large.npy", larger[0])
    np.save("large_std.npy", larger[1])
    how = "--turn-mask flipped-top-bottom --crop-mask 2,4,24,32"
    expected = made("--mask-std std.npy").values
    found = made(f"--mask-std large_std.npy {how}", "--mask large.npy")
    np.testing.assert_array_equal(found.values, expected)
    save(Mask(larger[0], std=larger[1]), folder / "large.nc")
    np.testing.assert_array_equal(made(how, "--mask large.nc").values, expected)


def test_a_folder_leaves_the_file_out_and_works_again_where_it_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "std.npy").rename(folder / "shots" / "std.npy")
    line = f"reconstruct shots --mask mask.nc -o cubes {FAST} --mask-std"
    assert cli.run(f"{line} shots/std.npy".split()) == 0
    assert sorted(path.name for path in (folder / "cubes").glob("*.nc")) == ["shot0.nc", "shot1.nc"]
    assert cli.run(f"{line} shots/std.npy".split()) == 0
    assert "2 finished before" in capsys.readouterr().out
    (folder / "shots" / "std.npy").unlink()  # or it would be a snapshot now
    assert cli.run(f"{line} 0.1".split()) == 1  # cubes that were made in another way are kept
    assert cli.run(f"{line} 0.1 --overwrite".split()) == 0
    assert load_cube(folder / "cubes" / "shot1.nc").attrs["mask_std"] == 0.1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("--mask-std -0.1", "mask_std is -0.1; it says how far the mask may be wrong"),
        ("--mask-std 2", "mask_std is 2; it says how far the mask may be wrong"),
        ("--mask-std nan", "mask_std is nan"),
        (
            "--mask-std nothere.npy",
            "--mask-std is 'nothere.npy', which is neither a number nor an existing file",
        ),
        ("--mask-std small.npy", "mask_std is 20×32 and its mask 24×32: 24×32 is needed."),
        ("--mask-std below.npy", "below.npy: mask_std goes down to -1; a standard deviation is 0"),
        ("--mask-std holes.npy", "holes.npy: mask_std is NaN at 1 of 768 pixels."),
        ("--mask-std counts.npy", "counts.npy: mask_std goes up to 20; a mask's values lie"),
        ("--mask-std mask.nc", "mask_std is the mask itself."),
        ("--mask small.npy", "all of one size; they are 24×32, 20×32."),
        ("--mask-std std.npy -o std.npy --overwrite", "std.npy"),
    ],
)
def test_wrong_input_is_one_sentence(
    folder: Path, change: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    std = np.load("std.npy")
    np.save("small.npy", std[:20])
    np.save("below.npy", std - std - 1)
    np.save("counts.npy", 0 * std + 20)
    std[3, 4] = np.nan
    np.save("holes.npy", std)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    out = "" if " -o " in change else "-o cube.nc"
    line = f"reconstruct shots/shot0.nc --mask mask.nc {out} {FAST} {change}"
    assert cli.run(line.split()) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_processes_of_their_own_know_it(folder: Path) -> None:
    line = f"reconstruct shots --mask mask.nc -o cubes {FAST} --mask-std std.npy --workers 2"
    subprocess.run([sys.executable, "-m", "prismask", *line.split()], check=True, timeout=120)
    expected = made("--mask-std std.npy").values
    np.testing.assert_array_equal(load_cube("cubes/shot0.nc").values, expected)
