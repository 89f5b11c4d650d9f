"""The command as people call it: a real process, right and wrong input, files that stay whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

BANDS = 6
PRISMASK = [sys.executable, "-m", "prismask"]


def prismask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PRISMASK, *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scene and a mask that fit each other, and a few files that fit nothing."""
    wavelengths = np.linspace(450, 650, BANDS)
    save(random_scene(0, (32, 32), wavelengths), tmp_path / "scene.nc")
    generator = np.random.default_rng(0)
    save(Mask(generator.integers(0, 2, (32, 32)).astype(float)), tmp_path / "mask.nc")
    save(Mask(generator.random((16, 16))), tmp_path / "small-mask.nc")
    np.save(tmp_path / "nan.npy", np.full((3, 4, 4), np.nan))
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "empty.nc").touch()
    whole = (tmp_path / "scene.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "notes.txt").write_text("dear diary")
    return tmp_path


@pytest.mark.slow
def test_from_scene_to_score(folder: Path) -> None:
    """simulate → info → reconstruct → evaluate-pair → render → convert, each its own process."""
    done = prismask(
        folder, "simulate", "scene.nc", "--mask", "mask.nc", "-o", "shot.nc", "--step", "1.5",
        "--full-well", "20000", "--read-noise", "5", "--bits", "12", "--seed", "3",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shot.nc: 32×40, 6 bands")
    described = json.loads(prismask(folder, "info", "shot.nc", "--json").stdout)
    assert described["kind"] == "measurement"
    assert described["attrs"]["camera_offsets_px"] == [1.5 * band for band in range(BANDS)]
    # The snapshot remembers its camera, so reconstruct needs no options for it.
    done = prismask(
        folder, "reconstruct", "shot.nc", "--mask", "mask.nc", "-o", "cube.nc",
        "--iterations", "20",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr
    done = prismask(folder, "evaluate-pair", "scene.nc", "cube.nc", "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert scores["psnr_unit"]["value"] > 18
    assert "peak 1" in scores["psnr_unit"]["convention"]
    done = prismask(folder, "render", "cube.nc", "-o", "cube.png")
    assert done.returncode == 0, done.stderr
    with Image.open(folder / "cube.png") as picture:
        assert (picture.size, picture.mode) == ((32, 32), "RGB")
    done = prismask(folder, "convert", "cube.nc", "cube.mat")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(
        load_cube(folder / "cube.mat").values, load_cube(folder / "cube.nc").values
    )


def assert_refused(
    folder: Path, done: subprocess.CompletedProcess[str], sentence: str, before: dict[str, bytes]
) -> None:
    """Exit code 2, one sentence, no traceback, and every file as it was."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert sentence in done.stderr
    assert done.stderr.splitlines()[-1].startswith("prismask: ")
    assert done.stdout == ""
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("inof scene.nc", 'Did you mean "info"?'),
        ("render scene.nc -o a.png --illuminnt A", "Did you mean --illuminant?"),
        ("info missing.nc", "does not exist"),
        ("info empty.nc", "is empty (0 bytes)"),
        ("info notes.txt", "no known format"),
        ("convert cut.nc out.npz", "cut.nc"),
        ("convert nan.npy out.npz", "NaN"),
        ("convert pickled.npy out.npz", "pickled.npy"),
        ("convert scene.nc out.xyz", "extension '.xyz'"),
        ("convert scene.nc scene.nc", "exists already and was kept"),
        ("convert scene.nc nowhere/out.npz", "there is no folder"),
        ("convert scene.nc out.npz --kind mask", "holds a cube, not a mask"),
        ("convert scene.nc out.npz --wavelengths 600,500", "wavelengths"),
    ],
)
def test_wrong_input_is_refused_and_loses_nothing(
    folder: Path, arguments: str, sentence: str
) -> None:
    before = contents(folder)
    assert_refused(folder, prismask(folder, *arguments.split()), sentence, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("render scene.nc -o a.png --exposure bright", "--exposure is 'bright'"),
        ("render scene.nc -o a.png --band 900", "runs from 450 to 650 nm"),
        ("render scene.nc -o a.png --illuminant D66", "Did you mean 'D65'?"),
        ("simulate scene.nc --mask small-mask.nc -o a.nc", "use a larger mask or a smaller scene"),
        ("simulate scene.nc --mask mask.nc -o a.nc --bands 4", "cube has 6 bands"),
        ("simulate scene.nc --mask mask.nc -o a.nc --read-noise 3", "give --full-well as well"),
        ("simulate scene.nc --mask scene.nc -o a.nc", "holds a cube, not a mask"),
        ("reconstruct scene.nc --mask mask.nc -o a.nc", "holds a cube, not a measurement"),
        ("evaluate-pair scene.nc nan.npy", "NaN"),
        ("demo --out notes.txt", "is a file"),
        ("demo --size 8 --out demo", "too small to draw"),
    ],
)
def test_wrong_input_to_heavier_commands(folder: Path, arguments: str, sentence: str) -> None:
    before = contents(folder)
    assert_refused(folder, prismask(folder, *arguments.split()), sentence, before)


@pytest.mark.slow
def test_a_width_that_does_not_fit_names_the_one_that_would(folder: Path) -> None:
    np.save(folder / "measurement.npy", np.ones((32, 38), np.float32))
    before = contents(folder)
    done = prismask(folder, "reconstruct", "measurement.npy", "--mask", "mask.nc", "-o", "a.nc")
    assert_refused(folder, done, "need a measurement of 32×86", before)
    assert "These two sizes fit 4 bands at 2 px." in done.stderr


def test_debug_shows_where_it_happened(folder: Path) -> None:
    done = prismask(folder, "info", "missing.nc", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "DataMissingError" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT as on a terminal")
def test_interruption_leaves_no_file_and_says_130(folder: Path) -> None:
    process = subprocess.Popen(
        [*PRISMASK, "demo", "--out", "page", "--method", "pnp-dip"],  # takes minutes
        cwd=folder, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background has it ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("reconstructing"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not (folder / "page").exists()
