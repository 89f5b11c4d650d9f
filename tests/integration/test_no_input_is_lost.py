"""Whatever a command is told to write, the files it reads are there afterwards as they were."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismask.apps.cli import app as cli
from prismask.inference.reconstruct import Reconstruction
from prismask.models.registry import create_model
from prismask.models.weights import save_weights
from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.parallel.ownership import owned
from prismask.scenes import atomic
from prismask.scenes.formats.files import save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.demo import random_scene

SIZE = (16, 20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that commands read, and other names for some of it."""
    monkeypatch.chdir(tmp_path)
    mask = Mask(fabricate_mask(SIZE, seeded(0)).numpy())
    scene = random_scene(0, SIZE)
    save(mask, tmp_path / "mask.nc")
    save(scene, tmp_path / "scene.nc")
    save(scene, tmp_path / "pair.hdr")
    shot = Measurement(simulate(scene, mask, CASSI.from_step(28)).values)
    save(shot, tmp_path / "shot.nc")
    (tmp_path / "shots").mkdir()
    save(shot, tmp_path / "shots" / "one.nc")
    save(shot, tmp_path / "shots" / "two.nc")
    for nm in (450, 650):
        np.save(f"lit{nm}.npy", shot.values)
    (tmp_path / "bands.nc").write_text("\n".join(f"{450 + 7 * k}" for k in range(28)))
    model = create_model("srn", bands=28, mask_posterior="gst", seed=0, width=8, blocks=1)
    save_weights(model, tmp_path / "tiny.safetensors", {"name": "tiny", "step_px": 2.0})
    (tmp_path / "sub").mkdir()
    for name in ("shot.nc", "mask.nc", "scene.nc"):
        (tmp_path / f"soft-{name}").symlink_to(tmp_path / name)
        os.link(tmp_path / name, tmp_path / f"hard-{name}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.md").write_text("tables")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


RECONSTRUCT = "reconstruct shot.nc --mask mask.nc --iterations 1 --overwrite -o"
SIMULATE = "simulate scene.nc --mask mask.nc --overwrite -o"


@pytest.mark.parametrize(
    "line",
    [
        f"{RECONSTRUCT} shot.nc",
        f"{RECONSTRUCT} sub/../shot.nc",
        f"{RECONSTRUCT} mask.nc",
        f"{RECONSTRUCT} soft-shot.nc",
        f"{RECONSTRUCT} hard-shot.nc",
        f"{RECONSTRUCT} hard-mask.nc",
        f"{RECONSTRUCT} bands.nc --wavelengths ./bands.nc",
        f"{SIMULATE} scene.nc",
        f"{SIMULATE} mask.nc",
        f"{SIMULATE} soft-mask.nc",
        f"{SIMULATE} hard-scene.nc",
        "simulate pair.hdr --mask mask.nc --overwrite -o pair.img",
        "convert scene.nc hard-scene.nc --overwrite",
        "camera 450=lit450.npy 650=lit650.npy --dark shot.nc --no-figure --overwrite -o shot.nc",
        "calibrate tiny.safetensors -o tiny.safetensors --overwrite",
        "calibrate tiny.safetensors -o sub/../tiny.safetensors --overwrite",
        "report run -o run/summary.html --overwrite",
    ],
)
def test_what_is_read_is_not_written(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)
    assert cli.run(line.split()) == 2
    assert "is what is read, and would be lost" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
@pytest.mark.parametrize("name", ["one.nc", "two.quicklook.png"])
def test_a_folder_of_links_to_the_snapshots(
    folder: Path, link: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cubes are called like their snapshots, and a folder may hold links to those."""
    (folder / "cubes").mkdir()
    getattr(folder / "cubes" / name, link)(folder / "shots" / "two.nc")
    before = contents(folder)
    line = "reconstruct shots --mask mask.nc -o cubes --iterations 1 --overwrite"
    assert cli.run(line.split()) == 2
    assert "would be lost" in capsys.readouterr().err
    assert contents(folder) == before


def test_a_demo_does_not_write_over_its_weights(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "demo").mkdir()
    os.link(folder / "tiny.safetensors", folder / "demo" / "cube.nc")
    before = contents(folder)
    line = "demo -o demo --size 16 --model ./tiny.safetensors --overwrite"
    assert cli.run(line.split()) == 2
    assert "would be lost" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        "reconstruct shot.nc --mask mask.nc -o {}/cube.nc",
        "reconstruct shots --mask mask.nc -o {}",
        "reconstruct shots --mask mask.nc -o {}/deep/cubes",
        "simulate scene.nc --mask mask.nc -o {}/shot.nc",
        "convert scene.nc {}/scene.mat",
        "render scene.nc -o {}/scene.png",
        "camera 450=lit450.npy 650=lit650.npy -o {}/lab.nc",
        "calibrate tiny.safetensors -o {}/new.safetensors",
        "demo -o {}/demo",
        "report run -o {}/report.html",
        "evaluate gap-tv --out {}/run",
        "stress gap-tv --out {}/run",
        "analyse gap-tv --out {}/run",
    ],
)
def test_a_folder_that_takes_no_files_is_told_before_the_work(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object, **named: object) -> None:
        pytest.fail("the work began")

    for work in (
        "prismask.inference.reconstruct.Reconstruction.run",
        "prismask.optics.simulate.simulate",
        "prismask.scenes.formats.files.load_cube",
        "prismask.optics.measured.measure_camera",
        "prismask.models.weights.load_model",
        "prismask.scenes.synthetic.demo.demo_scene",
        "prismask.evaluation.report.page.build_page",
        "prismask.evaluation.run.runner.plan_evaluation",
        "prismask.evaluation.run.runner.plan_evaluation",
        "prismask.evaluation.analyses.runner.plan_evaluation",
    ):
        monkeypatch.setattr(work, never)
    # A folder in which nobody can make a file, whatever rights they have.
    assert cli.run(line.format("/proc/self/fdinfo").split()) == 2
    told = capsys.readouterr().err
    assert "/fdinfo" in told
    assert "written" in told


def test_a_disk_without_room_is_told_before_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", ("total", "used", "free"))
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _: usage(10**6, 10**6, 5000))
    before = contents(folder)
    line = "reconstruct shot.nc --mask mask.nc --iterations 1 -o cube.nc"
    assert cli.run(line.split()) == 2
    assert "its disk has 0.005 MB left" in capsys.readouterr().err
    assert contents(folder) == before


def test_room_that_is_just_enough(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    atomic.check_room(tmp_path / "x", free // 2)
    with pytest.raises(OSError, match="Make room"):
        atomic.check_room(tmp_path / "x", 2 * free + 1)


def test_folders_that_others_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one is told who the first one is, and changes nothing."""
    with owned(folder / "run", "a training"):
        for line in (
            "evaluate gap-tv --out run",
            "stress gap-tv --out run",
            "analyse gap-tv --out run",
            "join other another --out run",
            "reconstruct shots --mask mask.nc -o run --iterations 1",
            "reconstruct shots --mask mask.nc -o run --iterations 1 --overwrite",
        ):
            before = contents(folder)
            assert cli.run(line.split()) == 2, line
            told = capsys.readouterr().err
            assert f"run is in use by a training of process {os.getpid()}" in told, line
            assert contents(folder) == before


def test_reconstructions_of_a_folder_share_it_if_they_are_alike(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "reconstruct shots --mask mask.nc -o cubes --no-quick-look --iterations"
    codes: dict[str, int] = {}

    def meanwhile(self: Reconstruction, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(Reconstruction, "run", run)
        for other in ("2", "1 --overwrite", "1"):
            codes[other] = cli.run(f"{line} {other}".split())
        return run(self, *given, **named)

    run = Reconstruction.run
    monkeypatch.setattr(Reconstruction, "run", meanwhile)
    assert cli.run(f"{line} 1".split()) == 0
    assert codes == {"2": 2, "1 --overwrite": 2, "1": 0}
    told = capsys.readouterr()
    assert "It has other options, and the results would be mixed" in told.err
    assert "2 finished before" in told.out
    assert sorted(path.name for path in (folder / "cubes").iterdir()) == ["one.nc", "two.nc"]
