"""PNG images as masks and measurements: 8 or 16 bits, as fractions of full scale. Read only."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.formats.contents import (
    COLOURED,
    DEFLATE_RATIO,
    Contents,
    Variable,
    check_claim,
    check_decoded,
    file_size,
)

_COLOUR_TYPES = {0: "grey", 2: "RGB", 3: "palette", 4: "grey + alpha", 6: "RGBA"}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def read(path: Path) -> Contents:
    """What a PNG file holds."""
    width, height, depth, colour = check_whole(path)
    note = "" if colour in (0, 4) else COLOURED
    note = _shortened(depth, colour) or note
    dtype = f"{depth}-bit {_COLOUR_TYPES[colour]}"
    variable = Variable(
        path.stem, (height, width), dtype, partial(_grey, path), note=note, is_named=False
    )
    return Contents(str(path), "PNG", {path.stem: variable})


def read_pixels(path: Path) -> NDArray[Any]:
    """The pixels: `(H, W)` or `(H, W, channels)`, uint8 or uint16."""
    from PIL import Image

    _, _, depth, colour = check_whole(path)
    trouble = _shortened(depth, colour)
    if trouble:
        raise FormatError(f"{path} is a PNG of 16-bit {_COLOUR_TYPES[colour]}, {trouble}.")
    with Image.open(path) as image:
        pixels = np.asarray(image)
    # Pillow hands out 16-bit grey as int32 in some versions.
    return pixels.astype(np.uint16) if depth == 16 else pixels


def check_whole(path: Path) -> tuple[int, int, int, int]:
    """Follow the chunks to the end; give back width, height, bit depth and colour type.

    Decoders accept some files whose end is missing.
    """
    size = file_size(path)
    with path.open("rb") as file:
        start = file.read(33)
        if len(start) < 33 or start[12:16] != b"IHDR":
            raise FormatError(f"{path} is cut short: a PNG header takes 33 bytes.")
        width, height, depth, colour = struct.unpack(">IIBB", start[16:26])
        position, name = 33, b"IHDR"
        while name != b"IEND":
            file.seek(position)
            chunk = file.read(8)
            if len(chunk) < 8:
                raise FormatError(f"{path} is cut short: its end mark is missing.")
            length, name = struct.unpack(">I4s", chunk)
            position += 12 + length
            check_claim(path, position, size, "a PNG chunk")
    if colour not in _COLOUR_TYPES:
        raise FormatError(f"{path} has colour type {colour}, which PNG does not know.")
    claimed = width * height * depth * _CHANNELS[colour] // 8
    check_claim(path, claimed, size, f"an image of {height}×{width}", DEFLATE_RATIO)
    check_decoded(path, claimed, f"an image of {height}×{width}")
    return width, height, depth, colour


def _shortened(depth: int, colour: int) -> str:
    """What to do with a file of which Pillow would read 8 bits of 16; empty for all others."""
    if depth != 16 or colour == 0:
        return ""
    return "of which only 8 bits would be read: save it as 16-bit grey without alpha, or as TIFF"


def _grey(path: Path) -> NDArray[Any]:
    pixels = read_pixels(path)
    return pixels[..., 0] if pixels.ndim == 3 else pixels
