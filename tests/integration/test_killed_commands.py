"""`evaluate` and `camera`, killed before every change that they make to the disk.

The next run goes on or starts cleanly; inputs are as they were; nothing half written stays.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_evaluation import make_data

from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import load_mask, save
from prismask.scenes.records import Cube, Mask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are forked"),
]

SCRIPT = Path(__file__).parent / "dying_commands.py"


def killed_everywhere(folder: Path, line: str) -> list[Path]:
    """What each kill, and the run after it, left; at last comes the run that nobody killed."""
    command = [sys.executable, str(SCRIPT), str(folder), *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    killed = Path(f"{folder}-killed")
    return [*sorted(killed.iterdir(), key=lambda path: int(path.name)), folder]


def inputs(folder: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if "prismask" in path.name]


def scores(folder: Path) -> list[dict[str, str]]:
    """The long table without what a clock decides."""
    with (folder / "out" / "scores.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if "second" not in k} for row in csv.DictReader(file)]


def test_an_evaluation_goes_on_wherever_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    make_data(folder / "data")
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
    before = inputs(folder, names)
    line = (
        "evaluate gap-tv:iterations=1 --data data --out out --trials 2 --resume --without-timing "
        "--groups test_other_hardware --device cpu --metrics psnr_paper"
    )
    left = killed_everywhere(folder, line)
    # The lock, the journal, two lines in it, two records and four tables, each of several steps.
    assert len(left) > 20
    whole = scores(folder)
    assert len(whole) == 2 * 3
    for place in left:
        assert inputs(place, names) == before
        assert scores(place) == whole
        assert hidden(place) == []


def test_a_camera_is_measured_again_wherever_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    mask = Mask(fabricate_mask((64, 80), torch.Generator().manual_seed(1)).numpy())
    prism = CASSI((0.0, 11.9, 20.0))
    for number, nm in enumerate((450, 550, 650)):
        lit = np.zeros((3, 64, 80), np.float32)
        lit[number] = 1
        shot = simulate(Cube(lit, np.array([450.0, 550.0, 650.0])), mask, prism, scale=1.0)
        np.save(folder / f"lit{nm}.npy", shot.values)
    names = [path.name for path in folder.iterdir()]
    before = inputs(folder, names)
    save(Mask(np.eye(4, dtype=np.float32)), folder / "lab.nc")
    line = "camera 450=lit450.npy 550=lit550.npy 650=lit650.npy --no-figure --overwrite -o lab.nc"
    left = killed_everywhere(folder, line)
    assert len(left) > 2
    found = load_mask(folder / "lab.nc")
    assert found.size == (64, 80)
    for place in left:
        assert inputs(place, names) == before
        assert np.array_equal(load_mask(place / "lab.nc").values, found.values)
        assert sorted(path.name for path in place.iterdir()) == sorted([*names, "lab.nc"])
