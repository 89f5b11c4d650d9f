"""What the README tells people to type works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prismask.scenes.formats.files import load_cube, save
from prismask.scenes.records import Mask, Measurement
from prismask.scenes.synthetic.random_scenes import random_scene

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    save(Mask(generator.random((16, 16))), tmp_path / "mask.mat")
    save(Measurement(generator.random((16, 70))), tmp_path / "snapshot.mat")
    save(random_scene(0, (16, 16)), tmp_path / "truth.nc")
    (tmp_path / "shots").mkdir()
    for number in range(2):
        save(Measurement(generator.random((16, 70))), tmp_path / "shots" / f"{number}.mat")
    return tmp_path


def _block(language: str, containing: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def test_the_commands(folder: Path) -> None:
    for line in _block("bash", "prismask reconstruct").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "prismask"
        if words[1] == "view":
            continue  # it serves until it is stopped; the browser tests look at it
        # Nobody has the README's cluster; one on this machine is a cluster too.
        words = ["local" if word.startswith("tcp://") else word for word in words]
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert (folder / "cube.png").exists()
    assert (folder / "550.png").exists()


def test_the_python(folder: Path) -> None:
    code = _block("python", "reconstruct(")
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    assert load_cube(folder / "cube.nc").values.shape == (28, 16, 16)


def test_the_picture_is_there_and_small() -> None:
    assert (ROOT / "docs" / "images" / "demo.png").stat().st_size < 300_000
