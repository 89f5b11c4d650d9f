"""PNG and TIFF images from cameras and other programs, as masks and measurements."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from prismask.errors import FormatError, MissingPartError
from prismask.scenes.formats.files import load, load_cube, load_mask, load_measurement
from prismask.scenes.formats.png import read_pixels
from prismask.scenes.formats.registry import identify
from prismask.scenes.records import Mask, Measurement

GREY = np.random.default_rng(0).integers(2, 256, (6, 5)).astype(np.uint8)
DEEP = np.random.default_rng(0).integers(2, 65536, (6, 5)).astype(np.uint16)


def png(folder: Path, pixels: np.ndarray[Any, Any], name: str = "image.png") -> Path:
    Image.fromarray(pixels).save(folder / name)
    return folder / name


@pytest.mark.parametrize(("pixels", "full"), [(GREY, 255), (DEEP, 65535)])
def test_grey_images_are_fractions_of_full_scale(
    tmp_path: Path, pixels: np.ndarray[Any, Any], full: int
) -> None:
    path = png(tmp_path, pixels)
    np.testing.assert_allclose(load_measurement(path).values, pixels / full, rtol=1e-6)
    np.testing.assert_allclose(load_mask(path).values, pixels / full, rtol=1e-6)
    tiff = tmp_path / "image.tif"
    tifffile.imwrite(tiff, pixels)
    np.testing.assert_allclose(load_measurement(tiff).values, pixels / full, rtol=1e-6)


def test_black_and_white(tmp_path: Path) -> None:
    pixels = GREY > 128
    path = tmp_path / "image.png"
    Image.fromarray(pixels).convert("1").save(path)
    assert np.array_equal(load_mask(path).values, pixels.astype(np.float32))


@pytest.mark.parametrize("second", [DEEP, GREY.astype(np.float32), GREY[:, :4]])
def test_pages_of_mixed_types_are_no_cube(tmp_path: Path, second: np.ndarray[Any, Any]) -> None:
    """8 and 16 bits beside each other would be fractions of two full scales."""
    path = tmp_path / "mixed.tif"
    with tifffile.TiffWriter(path) as writer:
        for page in (GREY, second, GREY):
            writer.write(page, contiguous=False)
    with pytest.raises(FormatError, match=r"mixed\.tif has pages of .*one size and type"):
        load_cube(path)


def test_alpha_is_left_out(tmp_path: Path) -> None:
    path = png(tmp_path, np.stack([GREY, np.full_like(GREY, 255)], -1))
    np.testing.assert_allclose(load_mask(path).values, GREY / 255, rtol=1e-6)


@pytest.mark.parametrize(("colour", "channels", "name"), [(4, 2, "grey + alpha"), (6, 4, "RGBA")])
def test_sixteen_bits_are_not_read_as_eight(
    tmp_path: Path, colour: int, channels: int, name: str
) -> None:
    # Pillow writes no such file, and reads the upper half of its bits.
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width = DEEP.shape
    rows = np.repeat(DEEP[..., None], channels, -1).astype(">u2")
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    path = tmp_path / "image.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )
    with pytest.raises(FormatError, match="only 8 bits would be read: save it as 16-bit grey"):
        load_measurement(path)
    with pytest.raises(FormatError, match=re.escape(f"a PNG of 16-bit {name}, of which only 8")):
        read_pixels(path)


def test_the_name_of_the_file_may_say_mask(tmp_path: Path) -> None:
    assert isinstance(load(png(tmp_path, GREY)), Measurement)
    assert isinstance(load(png(tmp_path, GREY, "Mask_660.png")), Mask)


def test_colour_images_are_refused(tmp_path: Path) -> None:
    path = png(tmp_path, np.stack([GREY, GREY, GREY], -1))
    with pytest.raises(FormatError, match=r"RGB 6×5, colour: .* a colour sensor cannot be used"):
        load_mask(path)
    tiff = tmp_path / "image.tif"
    tifffile.imwrite(tiff, np.stack([GREY, GREY, GREY], -1), photometric="rgb")
    with pytest.raises(FormatError, match="a monochrome one, save it in grey, with one page per"):
        load_mask(tiff)


def test_image_is_no_cube(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a cube has 3 dimensions"):
        load_cube(png(tmp_path, GREY))


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (16, 16)}])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_stacks_by_tifffile(tmp_path: Path, options: Any, big: bool, order: str) -> None:
    stack = np.random.default_rng(0).random((4, 6, 5)).astype(np.float32)
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, stack, bigtiff=big, byteorder=order, photometric="minisblack", **options)
    assert np.array_equal(load_cube(path, wavelengths=[401, 402, 403, 404]).values, stack)


def test_pages_of_different_sizes(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    with tifffile.TiffWriter(path) as writer:
        writer.write(GREY)
        writer.write(GREY[:3])
    with pytest.raises(FormatError, match="of one size and type"):
        load_cube(path)


def test_stack_by_tifffile_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    with tifffile.TiffWriter(path) as writer:
        for _ in range(4):
            writer.write(GREY, contiguous=False)
    content = path.read_bytes()
    for place in range(1, len(content), 3):
        path.write_bytes(content[:place])
        with pytest.raises(FormatError):
            load_cube(path)


def test_tag_that_points_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, GREY, description="a long enough description")
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        place = file.pages[0].tags["ImageDescription"].offset
    content[place + 8 : place + 12] = len(content).to_bytes(4, "little")
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError, match="a tag claims"):
        load_mask(path)


def test_png_with_pixels_missing(tmp_path: Path) -> None:
    # All chunks are whole, but the image claims more rows than it has.
    path = png(tmp_path, GREY)
    content = bytearray(path.read_bytes())
    content[16:24] = (5).to_bytes(4, "big") + (2**31 - 1).to_bytes(4, "big")
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError, match=r"claims 10\.74 GB"):
        load_mask(path)


def test_tiff_without_tifffile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, GREY)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(MissingPartError, match=r"pip install 'prismask\[io\]'"):
        identify(path).read_here(path)


@pytest.mark.parametrize("compression", ["tiff_lzw", "group4"])
def test_compressed_tiff_with_imagecodecs(tmp_path: Path, compression: str) -> None:
    pytest.importorskip("imagecodecs", reason="the extra io is not installed")
    pixels = GREY > 128
    path = tmp_path / "image.tif"
    Image.fromarray(pixels).save(path, compression=compression)
    assert np.array_equal(load_mask(path).values, pixels.astype(np.float32))


def test_compressed_tiff_without_imagecodecs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "image.tif"
    Image.fromarray(GREY).save(path, compression="tiff_lzw")

    def asarray(page: Any) -> None:
        raise ValueError(f"{page.compression!r} requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile.TiffPage, "asarray", asarray)
    contents = identify(path).read_here(path)
    with pytest.raises(MissingPartError, match=r"compressed with LZW.*imagecodecs.*prismask\[io\]"):
        contents.variables["image"].read()


def test_a_bayer_frame_says_so_in_its_tags(tmp_path: Path) -> None:
    tifffile.imwrite(
        tmp_path / "raw.tif", np.zeros((8, 8), np.uint16), photometric=32803,
        extratags=[(33421, "H", 2, (2, 2), True), (33422, "B", 4, b"\0\1\1\2", True)],
    )  # fmt: skip
    with pytest.raises(FormatError, match="raw frame of a colour sensor"):
        load_measurement(tmp_path / "raw.tif")


def test_a_tiff_counts_as_what_it_becomes(tmp_path: Path) -> None:
    """Bytes that are packed well are four times as many as float32."""
    path = tmp_path / "bomb.tif"
    page = np.zeros((16384, 16384), np.uint8)
    tifffile.imwrite(path, page, compression="zlib", tile=(4096, 4096))
    with pytest.raises(FormatError, match="its pages would take"):
        load_measurement(path)
