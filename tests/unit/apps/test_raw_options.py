"""Raw frames on the command line: frames, exposures, files the wrong way round, masks too large."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from prismask.apps.cli import app
from prismask.apps.cli.camera_options import ORIENTATIONS, Orientation, RawFrameOptions
from prismask.errors import ConfigError
from prismask.inference.inspection import ORIENTATION_OPTIONS
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.scenes.formats.files import load_cube
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

CAMERA, SIZE = CASSI.from_step(12), (100, 100)
GRID = tuple(450.0 + 18 * k for k in range(12))
FAST = "--method gap-tv --iterations 2 --no-quick-look --bands 12"


def run(line: str) -> int:
    return app.run(line.split())


@pytest.fixture(scope="module")
def frames() -> tuple[np.ndarray, np.ndarray]:
    mask = fabricate_mask(SIZE, seeded(1))
    cube = torch.tensor(random_scene(3, SIZE, GRID).values)
    shot = CAMERA.forward(cube[None], as_mask_batch(mask))[0].numpy()
    return 0.8 * shot / shot.max(), mask.numpy()


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: tuple[np.ndarray, np.ndarray]
) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("shot.npy", frames[0])
    np.save("mask.npy", frames[1])
    return tmp_path


def test_the_names_are_those_of_the_check() -> None:
    assert {"as-given", *ORIENTATIONS} == set(ORIENTATION_OPTIONS.values())


def test_what_the_library_takes_it_is_given(tmp_path: Path) -> None:
    given = RawFrameOptions("7", tmp_path / "f.nc", "none", 12, mask_std="0.1").options()
    assert given == {
        "dark": 7.0, "flat": tmp_path / "f.nc", "bad_pixels": "none", "bits": 12, "mask_std": 0.1,
    }  # fmt: skip
    assert RawFrameOptions().options() == {
        "dark": None, "flat": None, "bad_pixels": "auto", "bits": None, "mask_std": None,
    }  # fmt: skip
    for name in ("dark", "map"):
        (tmp_path / f"{name}.nc").touch()
    files = RawFrameOptions(str(tmp_path / "dark.nc"), bad_pixels=str(tmp_path / "map.nc"))
    assert files.options()["dark"] == tmp_path / "dark.nc"
    assert files.options()["bad_pixels"] == tmp_path / "map.nc"
    assert files.files() == [tmp_path / "dark.nc", tmp_path / "map.nc"]


@pytest.mark.parametrize("name", [None, *ORIENTATIONS])
@pytest.mark.parametrize("crop", [None, "1,2,5,4"])
def test_what_is_known_of_a_mask_turns_with_it(name: Orientation | None, crop: str | None) -> None:
    values = np.arange(63, dtype=np.float32).reshape(7, 9) / 63
    given = Mask(values, attrs={"camera": "lab"}, std=values)
    found = RawFrameOptions(turn_mask=name, crop_mask=crop).mask(given)
    assert found.std is not None
    np.testing.assert_array_equal(found.std, found.values)
    assert found.attrs == {"camera": "lab"} | ({} if name is None else {"turned": name})
    plain = RawFrameOptions(turn_mask=name).mask(given).values
    expected = plain if crop is None else plain[1:6, 2:6]
    np.testing.assert_array_equal(found.values, expected)


def test_calibrations_are_cropped_as_one_mask_is(
    folder: Path, frames: tuple[np.ndarray, np.ndarray]
) -> None:
    for number in range(2):
        np.save(f"large{number}.npy", np.pad(frames[1], ((2, 3), (4, 1)), mode="edge"))
    line = f"--crop-mask 2,4,100,100 --dark 0 {FAST}"
    assert run(f"reconstruct shot.npy --mask large0.npy -o one.nc {line}") == 0
    two = "--mask large0.npy --mask large1.npy"
    assert run(f"reconstruct shot.npy {two} -o two.nc {line}") == 0
    np.testing.assert_array_equal(load_cube("one.nc").values, load_cube("two.nc").values)


def test_dark_flat_and_map_give_the_same_cube(
    folder: Path, frames: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    shot = frames[0]
    np.save("dark.npy", np.full_like(shot, 0.03))
    np.save("flat.npy", np.full_like(shot, 0.53))
    np.save("bad.npy", (np.arange(shot.size).reshape(shot.shape) == 3000).astype(np.uint8))
    np.save("raw.npy", shot + np.float32(0.03))
    assert run(f"reconstruct shot.npy --mask mask.npy -o clean.nc --dark 0 {FAST}") == 0
    line = "reconstruct raw.npy --mask mask.npy --dark dark.npy --flat flat.npy --bad-pixels"
    assert run(f"{line} bad.npy -o cube.nc {FAST}") == 0
    said = capsys.readouterr().err
    assert "a dark frame (dark.npy) is subtracted" in said
    assert "1 bad pixel in the map bad.npy: gap-tv leaves it out" in said
    clean, cube = load_cube("clean.nc"), load_cube("cube.nc")
    assert np.abs(cube.values - clean.values).mean() < 1e-3
    assert run(f"{line} nothere.npy -o other.nc {FAST}") == 2
    assert run(f"reconstruct raw.npy --mask mask.npy -o other.nc --dark nothere.npy {FAST}") == 2
    assert "is neither a number nor an existing file" in capsys.readouterr().err


def test_frames_of_the_sensor_turn_with_the_snapshot(
    folder: Path, frames: tuple[np.ndarray, np.ndarray]
) -> None:
    """A camera that writes columns first does so with its dark frames too."""
    numbers, shot = np.random.default_rng(2), frames[0]
    dark = 0.05 * numbers.random(shot.shape, dtype=np.float32)
    flat = 1 + 0.2 * numbers.random(shot.shape, dtype=np.float32)
    bad = np.zeros(shot.shape, np.uint8)
    bad[20, 31] = bad[70, 12] = 1
    given = {"dark": dark, "flat": dark + flat, "bad": bad, "raw": shot * flat + dark}
    for name, values in given.items():
        np.save(f"{name}.npy", values)
        np.save(f"{name}-turned.npy", values.T)
    line = "reconstruct raw{0}.npy --dark dark{0}.npy --flat flat{0}.npy --bad-pixels bad{0}.npy "
    line += f"--mask mask.npy {FAST} -o cube{{0}}.nc"
    assert run(line.format("")) == 0
    assert run(line.format("-turned") + " --turn-snapshot transposed") == 0
    right, turned = load_cube("cube.nc"), load_cube("cube-turned.nc")
    np.testing.assert_array_equal(turned.values, right.values)


@pytest.mark.parametrize("form", ["pages", "files"])
def test_exposures_are_averaged(
    folder: Path, frames: tuple[np.ndarray, np.ndarray], form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    noise = np.random.default_rng(0).standard_normal((4, *frames[0].shape)).astype(np.float32)
    stack = frames[0] + 0.02 * noise
    np.save("stack.npy", stack)
    for number, one in enumerate(stack):
        np.save(f"exposure{number}.npy", one)
    given = "stack.npy" if form == "pages" else " ".join(f"exposure{k}.npy" for k in range(4))
    assert run(f"reconstruct {given} --average --mask mask.npy -o cube.nc --dark 0 {FAST}") == 0
    assert "from 4 exposures" in capsys.readouterr().err
    assert load_cube("cube.nc").attrs["noise_std"] == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("name", ["flipped-top-bottom", "transposed"])
def test_the_command_that_is_named_mends_a_mask_the_wrong_way_round(
    folder: Path, frames: tuple[np.ndarray, np.ndarray], name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    mask = frames[1]
    np.save("wrong.npy", mask[::-1] if name != "transposed" else mask.T)
    line = f"reconstruct shot.npy --mask wrong.npy --dark 0 {FAST}"
    assert run(f"{line} -o cube.nc") == 2
    assert f"--turn-mask {name}" in capsys.readouterr().err
    assert run(f"{line} -o cube.nc --turn-mask {name}") == 0
    assert run(f"reconstruct shot.npy --mask mask.npy -o right.nc --dark 0 {FAST}") == 0
    np.testing.assert_array_equal(load_cube("cube.nc").values, load_cube("right.nc").values)


@pytest.mark.parametrize(
    ("crop", "larger", "words"),
    [
        ("0,0,100,100", (1, 1), "1 px too tall and 1 px too wide"),
        ("1,0,100,100", (1, 0), "The mask is 1 px too tall. The part"),
        ("0,11,100,100", (0, 22), "as large as the sensor"),
        ("7,60,100,100", (9, 71), "9 px too tall and 71 px too wide"),
    ],
)
def test_the_crop_that_is_named_fits_a_mask_that_is_too_large(
    folder: Path, frames: tuple[np.ndarray, np.ndarray], crop: str, larger: tuple[int, int],
    words: str, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # The rest is part of the code too, as on a real plate.
    plate = fabricate_mask((100 + larger[0], 100 + larger[1]), seeded(5)).numpy()
    top, left, *_ = (int(number) for number in crop.split(","))
    plate[top : top + 100, left : left + 100] = frames[1]
    np.save("large.npy", plate)
    line = f"reconstruct shot.npy --mask large.npy --dark 0 {FAST}"
    assert run(f"{line} -o cube.nc") == 2
    told = capsys.readouterr().err
    assert f"--crop-mask {crop} " in told
    assert words in told
    assert run(f"{line} -o cube.nc --crop-mask {crop}") == 0
    assert run(f"reconstruct shot.npy --mask mask.npy --dark 0 {FAST} -o right.nc") == 0
    np.testing.assert_array_equal(load_cube("cube.nc").values, load_cube("right.nc").values)
    assert run(f"{line} -o other.nc --crop-mask 5,95,100,100") == 2
    assert "TOP,LEFT,HEIGHT,WIDTH within the mask" in capsys.readouterr().err


def test_a_crop_is_four_whole_numbers() -> None:
    mask = Mask(np.ones((8, 8)))
    for wrong in ("1,2", "0,0,-1,4", "0.5,0,4,4"):
        with pytest.raises(ConfigError, match="--crop-mask is"):
            RawFrameOptions(crop_mask=wrong).mask(mask)


def test_timings_are_told_by_part_and_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"reconstruct shot.npy --mask mask.npy -o cube.nc --dark 0 --overwrite {FAST}"
    assert run(f"{line} --timings spent.json") == 0
    told = capsys.readouterr().err
    spent = json.loads((folder / "spent.json").read_text())
    parts = ["imports", "reading", "weights", "checks", "solver", "writing", "other", "total"]
    assert sorted(spent) == sorted(parts)
    assert spent["total"] == pytest.approx(sum(spent[name] for name in parts[:-1]), abs=1e-3)
    assert [row.split()[0] for row in told.splitlines()[-8:]] == parts
    assert run(f"{line} --timings table") == 0
    assert "total" in capsys.readouterr().err
    assert run(f"{line} --timings spent.txt") == 2
    assert "give table, or a .json file" in capsys.readouterr().err
    assert run(line) == 0
    assert "total" not in capsys.readouterr().err
