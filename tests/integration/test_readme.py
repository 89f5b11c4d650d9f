"""What the README tells people to type works as it stands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from prismask.scenes.formats.files import load_cube

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def _block(language: str, containing: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def _look(words: list[str], folder: Path) -> None:
    """Until Ctrl-C, as it says; the browser tests look at the page."""
    quiet = os.environ | {"BROWSER": "true"}
    page = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, stdout=subprocess.PIPE, text=True, env=quiet
    )
    assert page.stdout is not None
    try:
        (link,) = re.findall(r"http://\S+", page.stdout.readline())
        answer = httpx.get(link, follow_redirects=True)
        assert "Prismask" in answer.text
        assert page.poll() is None
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(timeout=30)
        page.stdout.close()


def test_a_new_users_path(tmp_path: Path) -> None:
    """Every line of the first hour, in a fresh folder, in the order in which it is printed."""
    lines = _block("bash", "prismask demo").splitlines()
    assert lines[0].startswith("pip install '.[")
    for line in lines[1:]:
        words = shlex.split(line, comments=True)
        assert words[0] == "prismask"
        if words[1] == "view":
            _look(words, tmp_path)
            continue
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "warning:" not in done.stderr, line
    assert {"cube.nc", "cube.png", "spectra.csv", "spectra.png", "cube.quicklook.png", "demo"} == {
        path.name for path in tmp_path.iterdir()
    }
    assert "PSNR paper" in done.stdout
    code = _block("python", "reconstruct(")
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
    first, second = load_cube(tmp_path / "cube.nc"), load_cube(tmp_path / "mine.nc")
    np.testing.assert_array_equal(first.values, second.values)


def test_it_is_short_and_its_links_arrive() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 530
    for path in re.findall(r"\]\(([^)#]+)", text):
        assert path.startswith("http") or (ROOT / path.replace("%20", " ")).exists(), path


def test_the_pictures_are_small() -> None:
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 300_000
