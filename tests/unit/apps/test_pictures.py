"""Pictures: PNG bytes that come back as they were, files that are never half there."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.apps.pictures import grey_picture, png_bytes, write_png
from prismask.errors import OutputExistsError


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
