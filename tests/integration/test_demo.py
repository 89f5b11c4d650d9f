"""`prismask demo` from end to end: in time, complete, readable, and careful with what is there."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.apps.cli.demo import PAGE, PICTURES, RECORDS
from prismask.scenes.colour import to_srgb
from prismask.scenes.formats.files import load, load_cube
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.synthetic.demo import colour_checker_boxes

LONGEST_SECONDS = 180

pytestmark = pytest.mark.slow


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prismask", "demo", "--out", str(folder), *arguments],
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo as `make demo` makes it."""
    folder = tmp_path_factory.mktemp("demo")
    # Its own processor time, whatever else runs beside the tests.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = demo(folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert taken < LONGEST_SECONDS
    assert done.stdout.strip().endswith(PAGE)
    return folder


def test_every_file_is_there_and_opens(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {*RECORDS, *PICTURES, PAGE}
    kinds = [type(load(made / name)) for name in RECORDS]
    assert kinds == [Cube, Mask, Measurement, Cube]
    for name in PICTURES:
        with Image.open(made / name) as picture:
            picture.load()
            assert min(picture.size) >= 256


def test_reconstruction_resembles_the_truth(made: Path) -> None:
    truth, cube = load_cube(made / "truth.nc"), load_cube(made / "cube.nc")
    mse = np.mean((truth.values - cube.values) ** 2, axis=(1, 2))
    assert np.mean(10 * np.log10(1 / mse)) > 22
    # Colours of the patches, which a wrong band order or dispersion would scramble.
    true_colour, colour = (to_srgb(each, "D65", 1.0) for each in (truth, cube))
    for name in ("blue", "green", "red", "yellow"):
        box = colour_checker_boxes(truth.size)[name]
        seen, wanted = (picture[box].mean(axis=(0, 1)) for picture in (colour, true_colour))
        assert seen.argmax() == wanted.argmax(), name


def test_the_interval_is_there_and_mostly_holds_the_truth(made: Path) -> None:
    truth, cube = load_cube(made / "truth.nc").values, load_cube(made / "cube.nc")
    assert cube.lower is not None
    assert cube.upper is not None
    inside = float(((truth >= cube.lower) & (truth <= cube.upper)).mean())
    # The scene is drawn and the network knows photographs: near its 90 %, not at it.
    assert 0.75 < inside < 0.995
    page = (made / PAGE).read_text(encoding="utf-8")
    assert f"it did {100 * inside:.0f} times" in page
    assert "90 % interval of a pixel" in page


def test_page_is_self_contained_and_names_its_conventions(made: Path) -> None:
    page = (made / PAGE).read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 6
    assert not re.search(r"https?://", page)
    for words in ("PSNR paper", "peak = maximum of the true cube", "SSIM", "interval", "seed=0"):
        assert words in page
    assert len(page) < 3_000_000


def test_a_second_run_keeps_the_first(made: Path) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    done = demo(made)
    assert done.returncode == 2
    assert "already contains a demo" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_small_demo_is_reproducible_and_overwrites_when_told(tmp_path: Path) -> None:
    small = ("--size", "64", "--method", "gap-tv", "--illuminant", "A", "--seed", "5")
    assert demo(tmp_path, *small).returncode == 0
    first = load_cube(tmp_path / "cube.nc").hash
    done = demo(tmp_path, *small, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert load_cube(tmp_path / "cube.nc").hash == first
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    for words in ("GapTv(", "--seed 5 --method gap-tv", "spread over the pixels of the patch"):
        assert words in page
