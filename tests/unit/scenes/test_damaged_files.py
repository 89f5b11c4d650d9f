"""Damaged files: whatever is wrong with one, the error is ours and names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from file_examples import IDS, WRITTEN, a_cube, same, write
from PIL import Image

from prismask.errors import FormatError, PrismaskError
from prismask.scenes.cubepack import read_cubepack, write_cubepack
from prismask.scenes.formats.files import describe, load

# SciPy warns about a variable it cannot read and goes on; users do not turn warnings to errors.
pytestmark = pytest.mark.filterwarnings("ignore")


def cuts(length: int) -> list[int]:
    """Where to cut: near both ends byte by byte, in between at some forty places."""
    places = {
        *range(1, 20),
        *range(length - 20, length),
        *np.linspace(1, length - 1, 40).astype(int),
    }
    return sorted(int(place) for place in places if 0 < place < length)


def example(folder: Path, extension: str, form: str | None) -> Path:
    if extension == ".png":
        path = folder / "good.png"
        pixels = np.random.default_rng(0).integers(0, 65535, (9, 7)).astype(np.uint16)
        Image.fromarray(pixels).save(path)
        return path
    return write(a_cube(), folder, "good", extension, form)


ALL = [*WRITTEN, (".png", None)]
ALL_IDS = [*IDS, ".png"]


@pytest.mark.parametrize(("extension", "form"), ALL, ids=ALL_IDS)
def test_cut_short(tmp_path: Path, extension: str, form: str | None) -> None:
    good = example(tmp_path, extension, form)
    whole = load(good)
    content = good.read_bytes()
    for place in cuts(len(content)):
        good.write_bytes(content[:place])
        if extension == ".hdr" and place == len(content) - 1:
            # The line break that ends an ENVI header is all that may be missing unnoticed.
            assert same(load(good), whole)
            continue
        with pytest.raises(PrismaskError, match="good"):
            load(good)


def test_pack_cut_short(tmp_path: Path) -> None:
    good = tmp_path / "good.cubepack"
    write_cubepack(good, {"one": a_cube()})
    content = good.read_bytes()
    for place in cuts(len(content)):
        good.write_bytes(content[:place])
        with pytest.raises(PrismaskError, match="good"):
            read_cubepack(good)


@pytest.mark.parametrize("extension", [".img", ".dat"])
def test_header_of_the_pair_cut_short(tmp_path: Path, extension: str) -> None:
    data = write(a_cube(), tmp_path, "good", extension, None)
    header = data.with_suffix(".hdr")
    content = header.read_bytes()
    for place in cuts(len(content))[:-1]:
        header.write_bytes(content[:place])
        with pytest.raises(PrismaskError):
            load(data)


@pytest.mark.parametrize(("extension", "form"), ALL, ids=ALL_IDS)
def test_wrong_bytes_never_escape_as_another_error(
    tmp_path: Path, extension: str, form: str | None
) -> None:
    good = example(tmp_path, extension, form)
    content = good.read_bytes()
    generator = np.random.default_rng(1)
    refused = 0
    for _ in range(40):
        wrong = bytearray(content)
        for place in generator.integers(0, min(len(wrong), 2000), 3):
            wrong[place] = int(generator.integers(0, 256))
        good.write_bytes(bytes(wrong))
        try:
            load(good)
            describe(good)
        except PrismaskError:
            refused += 1
    assert refused > 0 or extension in (".img", ".dat")  # raw numbers are all valid


@pytest.mark.parametrize("extension", [".nc", ".mat", ".npy", ".npz", ".tif", ".hdr", ".png", ".x"])
def test_empty(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"empty{extension}"
    path.touch()
    with pytest.raises(FormatError, match="is empty"):
        load(path)


@pytest.mark.parametrize("extension", [".nc", ".mat", ".npy", ".npz", ".tif", ".hdr", ".png", ".x"])
def test_not_what_it_is_called(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"letter{extension}"
    path.write_text("Dear colleague, the data is on its way.\n" * 50)
    with pytest.raises(FormatError, match="letter"):
        load(path)


def test_the_error_says_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "letter.x"
    path.write_text("Dear colleague")
    with pytest.raises(FormatError, match=r"'Dear colleague'.*Tried: .*NetCDF-4.*TIFF.*ENVI"):
        load(path)


@pytest.mark.parametrize(
    ("head", "advice"),
    [(b"CDF\x01", "nccopy"), (b"\x80\x04\x95", "pickle"), (b"\xff\xd8\xff\xe0", "JPEG")],
)
def test_known_strangers_come_with_advice(tmp_path: Path, head: bytes, advice: str) -> None:
    path = tmp_path / "stranger.x"
    path.write_bytes(head + bytes(100))
    with pytest.raises(FormatError, match=advice):
        load(path)
