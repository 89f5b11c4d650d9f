"""Pictures: PNG bytes that come back as they were, files that are never half there."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.apps.cli.app import run
from prismask.errors import OutputExistsError
from prismask.scenes.colour import grey_picture, png_bytes, write_png
from prismask.scenes.formats.files import save
from prismask.scenes.synthetic.demo import random_scene


def test_png_keeps_every_pixel() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png_bytes(picture)))), picture)
    large = np.asarray(Image.open(io.BytesIO(png_bytes(picture, 3))))
    np.testing.assert_array_equal(large[1::3, 1::3], picture)


def test_existing_picture_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_text("mine")
    with pytest.raises(OutputExistsError):
        write_png(np.zeros((2, 2, 3), np.uint8), path)
    assert path.read_text() == "mine"
    write_png(np.zeros((2, 2, 3), np.uint8), path, overwrite=True)
    assert np.asarray(Image.open(path)).shape == (2, 2, 3)


def test_grey_picture_spans_the_range() -> None:
    values = np.linspace(0, 5, 1000).reshape(20, 50)
    picture = grey_picture(values)
    assert picture.min() == 0
    assert picture.max() == 255
    assert not grey_picture(np.zeros((3, 3))).any()


@pytest.mark.parametrize("words", ["", "--band 550"])
@pytest.mark.parametrize("exposure", ["0", "-1", "nan", "inf", "bright"])
def test_exposures_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, exposure: str
) -> None:
    save(random_scene(0, (8, 8)), tmp_path / "scene.nc")
    line = ["render", str(tmp_path / "scene.nc"), "-o", str(tmp_path / "a.png"), *words.split()]
    assert run([*line, f"--exposure={exposure}"]) != 0
    assert f"--exposure is '{exposure}'; it is auto or a number above 0" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()
    assert run([*line, "--exposure=0.5"]) == 0


@pytest.mark.parametrize("name", ["a.jpg", "a.tif", "a"])
def test_pictures_are_what_their_name_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    save(random_scene(0, (8, 8)), tmp_path / "scene.nc")
    assert run(["render", str(tmp_path / "scene.nc"), "-o", str(tmp_path / name)]) != 0
    assert "pictures are written as PNG: a.png" in capsys.readouterr().err
    assert not (tmp_path / name).exists()
    assert run(["render", str(tmp_path / "scene.nc"), "-o", str(tmp_path / "A.PNG")]) == 0
    assert (tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")
