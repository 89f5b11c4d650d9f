"""`prismask reconstruct`, `models` and `calibrate` as people run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from prismask.apps.cli import app as cli
from prismask.inference.reconstruct import Reconstruction
from prismask.models.registry import create_model
from prismask.models.weights import read_record, save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

BANDS, SIZE = 28, (32, 40)
CAMERA = CASSI.from_step(BANDS)
PRISMASK = [sys.executable, "-m", "prismask"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mask, three snapshots in `shots`, and small untrained weights."""
    monkeypatch.chdir(tmp_path)
    mask = Mask(fabricate_mask(SIZE, seeded(0)).numpy())
    save(mask, tmp_path / "mask.nc")
    (tmp_path / "shots").mkdir()
    for seed in range(3):
        shot = simulate(random_scene(seed, SIZE), mask, CAMERA)
        # Values alone, as a foreign file has them: no camera, no wavelengths, no scale.
        save(Measurement(shot.values), tmp_path / "shots" / f"shot{seed}.nc")
    model = create_model("srn", bands=BANDS, mask_posterior="gst", seed=0, width=8, blocks=1)
    record = {"name": "tiny", "step_px": 2.0, "wavelengths_nm": [450.0 + k for k in range(BANDS)]}
    save_weights(model, tmp_path / "tiny.safetensors", record)
    return tmp_path


def run(line: str) -> int:
    return cli.run(line.split())


def test_one_snapshot_and_its_quick_look(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reconstruct shots/shot0.nc --mask mask.nc -o cube.nc --iterations 2") == 0
    out, err = capsys.readouterr()
    assert out.startswith("cube.nc: 28 bands of 32×40 by gap-tv")
    assert "self-check: residual" in err
    assert "wavelengths 453.3 to 648.1 nm are assumed" in err
    with Image.open(folder / "cube.quicklook.png") as picture:
        assert (picture.size, picture.mode) == ((40, 32), "RGB")
    assert load_cube(folder / "cube.nc").attrs["method"] == "gap-tv"


@pytest.mark.parametrize("name", ["cube.mat", "cube.hdr", "cube.tif"])
def test_the_extension_chooses_the_format(folder: Path, name: str) -> None:
    line = f"reconstruct shots/shot0.nc --mask mask.nc -o {name} --iterations 1 --no-quick-look"
    assert run(line) == 0
    found = load_cube(folder / name)
    assert found.values.shape == (BANDS, *SIZE)
    assert found.attrs["recipe"]
    assert not list(folder.glob("*.png"))


def test_a_network_with_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "reconstruct shots/shot1.nc --mask mask.nc -o cube.nc --model tiny.safetensors"
    assert run(f"{line} --samples 3 --tile 16") == 0
    cube = load_cube(folder / "cube.nc")
    assert cube.std is not None
    assert cube.upper is not None
    assert cube.attrs["weights_sha256"] == read_record(folder / "tiny.safetensors")["sha256"]
    assert "interval: central 90 % of the mask samples, not calibrated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("--bands 20", "need a measurement of 32×78"),
        ("--bands 20", "These two sizes fit 28 bands at 2 px."),
        ("--model nothere", "no weights are called 'nothere'"),
        ("--model runs/x/weights", "the path of a weights file"),
        ("--model tiny.safetensors --method gap-tv", "give one of them"),
        ("--model broken.safetensors", "broken.safetensors is not a readable safetensors file"),
        ("--samples 4 --method gap-tv", "gap-tv has no mask posterior"),
        ("--device tpu", "'tpu' is no device"),
        ("--method gaptv", "Did you mean 'gap-tv'?"),
        ("--pose nothere.nc", "nothere.nc"),
        ("--pose mask.nc", "mask.nc"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    folder: Path, change: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.safetensors").write_bytes(b"\x10" * 100)
    before = sorted(folder.rglob("*"))
    assert run(f"reconstruct shots/shot0.nc --mask mask.nc -o cube.nc {change}") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
    assert sorted(folder.rglob("*")) == before


def test_existing_outputs_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cube.quicklook.png").write_bytes(b"mine")
    line = "reconstruct shots/shot0.nc --mask mask.nc -o cube.nc --iterations 1"
    assert run(line) == 2
    assert (folder / "cube.quicklook.png").read_bytes() == b"mine"
    assert run(f"{line} --overwrite") == 0
    assert run(line) == 2
    assert "exists already and was kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("nowhere/cube.nc", "there is no folder"),
        ("keep.hdr", "keep.img exists already and was kept"),
        ("keep.dat", "keep.hdr exists already and was kept"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_work(
    folder: Path, out: str, sentence: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (folder / "keep.img").write_bytes(b"mine")
    if out == "keep.dat":
        (folder / "keep.hdr").write_bytes(b"mine")

    def work(*_: object, **__: object) -> None:
        pytest.fail("this takes minutes")

    monkeypatch.setattr("prismask.inference.reconstruct.Reconstruction.run", work)
    monkeypatch.setattr("prismask.optics.simulate.simulate", work)
    monkeypatch.setattr("prismask.scenes.formats.files.load", work)
    (folder / "truth.nc").write_bytes(b"not looked at")
    for line in (
        f"reconstruct shots/shot0.nc --mask mask.nc --iterations 1 -o {out}",
        f"simulate truth.nc --mask mask.nc -o {out}",
        f"convert mask.nc {out}",
    ):
        assert run(line) == 2
        assert sentence in capsys.readouterr().err
    assert (folder / "keep.img").read_bytes() == b"mine"
    (folder / "cubes").mkdir()
    (folder / "cubes" / "shot0.img").write_bytes(b"mine")
    assert run("reconstruct shots/shot0.* --mask mask.nc -o cubes --extension hdr") == 1
    assert "shot0.img exists already and was kept" in capsys.readouterr().out


def test_a_pose_found_before_is_used_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--mask mask.nc --iterations 1"
    assert run(f"reconstruct shots/shot0.nc {options} -o plain.nc") == 0
    assert run(f"reconstruct shots/shot1.nc {options} -o cube.nc --pose plain.nc") == 2
    assert "plain.nc does not note the pose of its mask" in capsys.readouterr().err
    plain = load_cube(folder / "plain.nc")
    pose = [0.5, -0.25, *[0.0] * 10]
    save(replace(plain, attrs={**plain.attrs, "mask_place": pose}), folder / "aligned.nc")
    assert run(f"reconstruct shots {options} -o cubes --pose aligned.nc") == 0
    assert (
        "lies 0.25 px further right and 0.50 px higher than calibrated" in capsys.readouterr().err
    )
    for name in ("shot0.nc", "shot2.nc"):
        assert load_cube(folder / "cubes" / name).attrs["mask_pose"] == pytest.approx(pose)


# --- folders -------------------------------------------------------------------------------------


def test_a_folder_with_a_bad_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shots" / "bad.mat").write_bytes(b"rubbish")
    np.save(folder / "shots" / "nan.npy", np.full((32, 94), np.nan, np.float32))
    line = "reconstruct shots --mask mask.nc -o cubes --iterations 1"
    assert run(line) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "3 reconstructed; 2 failed"
    assert "failed: shots/bad.mat:" in out
    assert "failed: shots/nan.npy:" in out
    assert "NaN" in out
    assert "5 of 5:" in err
    assert sorted(path.name for path in (folder / "cubes").glob("*.nc")) == [
        "shot0.nc", "shot1.nc", "shot2.nc",
    ]  # fmt: skip
    # The second time only what failed is tried again.
    for bad in ("bad.mat", "nan.npy"):
        (folder / "shots" / bad).unlink()
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "cubes").iterdir()}
    assert run(line) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 finished before"
    assert stamps == {path: path.stat().st_mtime_ns for path in (folder / "cubes").iterdir()}


def test_finished_is_what_was_made_the_same_way(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("reconstruct shots/*.nc --mask mask.nc -o cubes --iterations 1") == 0
    assert run("reconstruct shots --mask mask.nc -o cubes --iterations 2") == 1
    out = capsys.readouterr().out
    assert "3 failed" in out
    assert "exists already and was kept" in out
    assert run("reconstruct shots --mask mask.nc -o cubes --iterations 2 --overwrite") == 0
    assert "iterations=2" in load_cube(folder / "cubes" / "shot0.nc").attrs["method_options"]
    # A changed snapshot is another one.
    save(Measurement(np.ones((32, 94), np.float32)), folder / "shots" / "shot0.nc", overwrite=True)
    assert run("reconstruct shots --mask mask.nc -o cubes --iterations 2") == 1
    assert "2 finished before; 1 failed" in capsys.readouterr().out


def test_pictures_that_are_missing_are_drawn_from_finished_cubes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "reconstruct shots --mask mask.nc -o cubes --iterations 1"
    assert run(f"{line} --no-quick-look") == 0
    assert not list((folder / "cubes").glob("*.png"))
    cubes = {path: path.read_bytes() for path in (folder / "cubes").glob("*.nc")}
    capsys.readouterr()
    assert run(line) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 finished before"
    pictures = {path: path.read_bytes() for path in (folder / "cubes").glob("*.quicklook.png")}
    assert len(pictures) == 3
    assert cubes == {path: path.read_bytes() for path in cubes}
    assert run(f"{line} --overwrite") == 0
    assert pictures == {path: path.read_bytes() for path in pictures}, "the same as the run's own"


@pytest.mark.parametrize("iterations", [1, 2])
def test_another_process_that_is_faster(
    folder: Path, iterations: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    line = "reconstruct shots --mask mask.nc --iterations"
    assert run(f"{line} {iterations} -o others") == 0
    capsys.readouterr()
    plain = Reconstruction.run

    def slow(self: Reconstruction, *args: Any) -> Cube:
        cube = plain(self, *args)
        for path in (folder / "others").iterdir():
            shutil.copy(path, folder / "cubes")
        return cube

    monkeypatch.setattr(Reconstruction, "run", slow)
    made_alike = iterations == 1
    assert run(f"{line} 1 -o cubes") == (0 if made_alike else 1)
    told = capsys.readouterr()
    assert told.out.splitlines()[0] == ("3 finished before" if made_alike else "3 failed")
    assert ("finished meanwhile by another process" in told.err) == made_alike


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("reconstruct shots --mask mask.nc -o mask.nc", "is a file"),
        (
            "reconstruct shots --mask mask.nc -o cubes --extension npy",
            "give --extension dat, hdr, img, mat, nc, nc4, npz, tif, tiff",
        ),
        ("reconstruct shots --mask mask.nc -o shots", "is the folder of the snapshots"),
        ("reconstruct shots --mask mask.nc -o cubes --extension jpg", "files are written as"),
        ("reconstruct empty*.nc --mask mask.nc -o cubes", "no file matches"),
        ("reconstruct --mask mask.nc -o cubes", "give a snapshot"),
        # What is wrong for every snapshot is told once, not once for each.
        (
            "reconstruct shots --mask mask.nc -o cubes --method twist --samples 2",
            "no mask posterior",
        ),
    ],
)
def test_wrong_folders(
    folder: Path, line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line) == 2
    assert sentence in capsys.readouterr().err
    assert not (folder / "cubes").exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_in_the_middle_and_resumed(folder: Path, workers: int) -> None:
    """What was finished stays as it was, the rest is done, nothing is left over."""
    mask = Mask(fabricate_mask((128, 128), seeded(0)).numpy())
    save(mask, folder / "large.nc")
    (folder / "many").mkdir()
    for seed in range(6):
        shot = simulate(random_scene(seed, (128, 128)), mask, CAMERA)
        save(shot, folder / "many" / f"shot{seed}.nc")
    command = [*PRISMASK, "reconstruct", "many", "--mask", "large.nc", "-o", "cubes",
               "--iterations", "40", "--workers", str(workers)]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("2 of 6"):
            break
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _group_alive(process.pid):
        time.sleep(0.1)
    assert not _group_alive(process.pid), "a worker outlived its parent"
    finished = {path.name: path.read_bytes() for path in (folder / "cubes").glob("*.nc")}
    assert 2 <= len(finished) < 6
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{6 - len(finished)} reconstructed; {len(finished)} finished before" in done.stdout
    for name, content in finished.items():
        assert (folder / "cubes" / name).read_bytes() == content
    cubes = [load_cube(path) for path in sorted((folder / "cubes").glob("*.nc"))]
    assert len(cubes) == 6
    assert all(np.isfinite(cube.values).all() for cube in cubes)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# --- models and calibrate ------------------------------------------------------------------------


@pytest.mark.slow
def test_models_lists_backbones_and_shows_a_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("models") == 0
    shown = capsys.readouterr().out
    assert "1.25 M   81.8 G  fast" in shown
    assert re.search(r"lumen\.m2m .*PSNR paper \[dB\]: [\d.]+ \(same hardware", shown)
    assert re.search(r"lumen\.m2m .*\(default\)", shown)
    assert run("models --json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed["weights"] if one["default"]] == ["lumen.m2m"]
    assert {"name": "srn", "parameters": 1_250_972} in [
        {key: one[key] for key in ("name", "parameters")} for one in listed["backbones"]
    ]
    assert {"gap-tv", "twist", "pnp"} <= listed["solvers"].keys()
    assert run("models tiny.safetensors") == 0
    assert "step_px" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--noise-std=nan", "noise-std is nan"),
        ("--noise-std=-0.5", "noise-std is -0.5"),
        ("--noise-std=inf", "noise-std is inf"),
        ("--size=0", "too small"),
        ("--rows=8", "too small"),
        ("--wrong=nan", "wrong is nan"),
        ("--other=1", "other is 1"),
        ("--snapshots=1", "--snapshots is 1"),
        ("--minutes=0", "--minutes is 0"),
    ],
)
def test_calibrate_refuses_numbers_that_cannot_be(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, told: str
) -> None:
    assert run(f"calibrate tiny.safetensors -o made/w.safetensors {option}") == 2
    assert told in capsys.readouterr().err
    assert not (folder / "made").exists()


@pytest.mark.slow
@pytest.mark.data
def test_calibrate_stores_an_interval_that_reconstruct_uses(
    folder: Path, data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"calibrate tiny.safetensors --data {data_folder} -o honest.safetensors"
    rest = "--snapshots 12 --rows 64 --size 64 --other 0 --cache kept"
    rest += " --training-snapshots 4"
    assert run(f"{line} {rest}") == 0
    said = capsys.readouterr().out
    assert "on scenes that were left out, 12 snapshots" in said
    assert "by quarter of the intensities" in said
    assert "left out of the fit alone" in said
    record = read_record(folder / "honest.safetensors")
    assert record["sha256"] == read_record(folder / "tiny.safetensors")["sha256"]
    assert set(record["interval"]) == {"learned", "trust"}
    assert "beads" in record["interval"]["learned"]["about"]["fitted_on"]
    assert record["interval"]["learned"]["about"]["learned_from"] == 4
    line = "reconstruct shots/shot0.nc --mask mask.nc --model honest.safetensors"
    assert run(f"{line} -o cube.nc") == 0
    assert re.search(
        r"^trust: (good|doubtful|poor) \(0\.\d\d of 1\)\. [A-Z]", capsys.readouterr().err, re.M
    )
    cube = load_cube(folder / "cube.nc")
    assert cube.upper is not None
    assert "calibrated on 12 snapshots of 6 scenes" in cube.attrs["interval"]
    assert cube.attrs["trust_grade"] in ("good", "doubtful", "poor")
    assert 0 < cube.attrs["trust"] <= 1
    # What was kept is enough to fit again, and gives the same; without --cache nothing is left.
    kept = sorted((folder / "kept").glob("*/*.npz"))
    assert len(kept) == 12 + 4
    before = [path.stat().st_mtime_ns for path in kept]
    again = f"calibrate tiny.safetensors --data {data_folder} -o again.safetensors"
    assert run(f"{again} {rest}") == 0
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert read_record(folder / "again.safetensors")["interval"] == record["interval"]
    assert not list(folder.glob("*.calibrating"))
    assert run("calibrate tiny.safetensors -o honest.safetensors") == 2
