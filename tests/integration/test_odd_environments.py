"""Closed streams, ASCII terminals, no home, read-only folders: a command works or says why."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from prismask.optics.camera import CASSI
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.randomness import seeded
from prismask.optics.simulate import simulate
from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Mask
from prismask.scenes.synthetic.demo import random_scene

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="streams are closed by a shell")

COMMANDS = {
    "--help": "--help",
    "longer help": "reconstruct --help",
    "info": "info shot.nc",
    "reconstruct": "reconstruct shot.nc --mask mask.nc --iterations 1 --no-quick-look -o cube.nc",
}
CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]
FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    mask = Mask(fabricate_mask((16, 20), seeded(0)).numpy())
    save(mask, folder / "mask.nc")
    save(simulate(random_scene(0, (16, 20)), mask, CASSI.from_step(28)), folder / "shot.nc")
    return folder


def prismask(
    folder: Path, line: str, streams: str = "", **changes: str | None
) -> subprocess.CompletedProcess[str]:
    """The command in a process with other streams and another environment; None takes one away."""
    environment = {name: value for name, value in os.environ.items() if name not in changes}
    environment |= {name: value for name, value in changes.items() if value is not None}
    shell = f"exec {shlex.quote(sys.executable)} -m prismask {line} {streams}"
    return subprocess.run(
        ["sh", "-c", shell], cwd=folder, env=environment, capture_output=True, timeout=120,
        encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize("name", ["--help", "info"])
def test_closed_streams(files: Path, name: str, streams: str) -> None:
    done = prismask(files, COMMANDS[name], streams)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in streams.replace("2>&-", ""))


@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED)
def test_a_reconstruction_behind_closed_streams(files: Path, streams: str) -> None:
    """Its file must not get the number of a stream, which others write into."""
    done = prismask(files, f"{COMMANDS['reconstruct']} --overwrite", streams)
    assert done.returncode == 0, done.stderr
    assert load_cube(files / "cube.nc").bands == 28
    (files / "cube.nc").unlink()


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="nothing plays a full disk")
def test_streams_that_take_nothing(files: Path) -> None:
    """Results that nobody gets are told; remarks that nobody gets change nothing."""
    lost = prismask(files, COMMANDS["info"], f"> {FULL}")
    assert (lost.returncode, lost.stderr) == (2, "prismask: No space left on device.\n")
    refused = prismask(files, "info nothing.nc", f"2> {FULL}")
    assert (refused.returncode, refused.stdout) == (2, "")
    made = prismask(files, COMMANDS["reconstruct"].replace("cube.nc", "full.nc"), f"2> {FULL}")
    assert made.returncode == 0
    assert load_cube(files / "full.nc").bands == 28


@pytest.mark.slow
def test_remarks_into_a_pipe_that_nobody_reads(files: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    line = COMMANDS["reconstruct"].replace("cube.nc", "piped.nc")
    command = [sys.executable, "-m", "prismask", *line.split()]
    done = subprocess.run(command, cwd=files, stdout=subprocess.PIPE, stderr=write, timeout=120)
    os.close(write)
    assert (done.returncode, b"piped.nc" in done.stdout) == (0, True)
    assert load_cube(files / "piped.nc").bands == 28


@pytest.mark.parametrize(
    "changes",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"COLUMNS": "0"},
        {"COLUMNS": "wide"},
        {"COLUMNS": "1"},
        {"COLUMNS": "100000000"},
        {"COLUMNS": "9" * 5000},
        {"HOME": None},
        {"HOME": "/nonexistent"},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_odd_environments(files: Path, changes: dict[str, str | None]) -> None:
    for name in ("--help", "longer help", "info"):
        done = prismask(files, COMMANDS[name], **changes)
        assert (done.returncode, done.stderr) == (0, ""), name
        assert done.stdout
        if "COLUMNS" not in changes and "HOME" not in changes:
            assert done.stdout.isascii()


@pytest.mark.slow
def test_a_reconstruction_without_home_in_ascii(files: Path) -> None:
    line = COMMANDS["reconstruct"].replace("cube.nc", "ascii.nc")
    done = prismask(files, line, HOME=None, PYTHONIOENCODING="ascii", COLUMNS="0")
    assert done.returncode == 0, done.stderr
    assert load_cube(files / "ascii.nc").bands == 28


@pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="there is no such folder")
def test_a_working_folder_that_cannot_be_written(files: Path) -> None:
    here = f"cd /proc/self/fdinfo && exec {shlex.quote(sys.executable)} -m prismask"
    shot, mask = files / "shot.nc", files / "mask.nc"
    for line, words in (
        (f"info {shot}", ""),
        (f"reconstruct {shot} --mask {mask} -o cube.nc", "nothing can be written into"),
    ):
        done = subprocess.run(
            ["sh", "-c", f"{here} {line}"], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == (2 if words else 0), done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
