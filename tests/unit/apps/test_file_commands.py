"""`convert` and `render`: what they read is never what they write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.apps.cli.app import run
from prismask.apps.cli.numbers import LONGEST_LIST, parse_numbers
from prismask.errors import ConfigError
from prismask.scenes.formats.files import load, save
from prismask.scenes.records import Cube

CUBE = Cube(np.random.default_rng(0).random((3, 4, 5), dtype=np.float32), [450.0, 550.0, 650.0])


@pytest.mark.parametrize(
    ("stored", "source", "target"),
    [
        ("x.nc", "x.nc", "x.nc"),
        ("x.nc", "x.nc", "sub/../x.nc"),
        ("x.nc", "link.nc", "x.nc"),
        ("x.nc", "x.nc", "link.nc"),
        ("x.hdr", "x.hdr", "x.img"),
        ("x.hdr", "x.img", "x.hdr"),
    ],
)
def test_an_input_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: str, source: str, target: str
) -> None:
    (tmp_path / "sub").mkdir()
    save(CUBE, tmp_path / stored)
    (tmp_path / "link.nc").symlink_to(tmp_path / "x.nc")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    paths = [str(tmp_path / source), str(tmp_path / target)]
    assert run(["convert", *paths, "--overwrite"]) == 2
    assert "would be lost" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_a_pair_beside_another_file_is_converted(tmp_path: Path) -> None:
    save(CUBE, tmp_path / "x.nc")
    assert run(["convert", str(tmp_path / "x.nc"), str(tmp_path / "x.hdr")]) == 0
    assert np.array_equal(load(tmp_path / "x.img").values, CUBE.values)


def test_a_picture_is_not_rendered_onto_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(np.eye(4, dtype=np.uint8)).save(path)
    assert run(["render", str(path), "-o", str(path), "--overwrite"]) == 2
    assert "would be lost" in capsys.readouterr().err


def test_a_list_of_numbers_is_no_large_file(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("450\n" * LONGEST_LIST)
    with pytest.raises(ConfigError, match="too long for a list of numbers"):
        parse_numbers(str(path), "--wavelengths")


class Ascii:
    """A stream of a terminal that knows no other letters."""

    encoding = "ascii"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text.encode("ascii").decode()

    def flush(self) -> None:
        pass


def test_streams_that_know_only_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grün.nc"
    save(CUBE, path)
    stream = Ascii()
    monkeypatch.setattr("sys.stdout", stream)
    assert run(["info", str(path)]) == 0
    assert "gr\\xfcn.nc" in stream.text
