"""Pictures for the eye: grey from numbers, PNG from pictures, files that appear whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside

BRIGHT_PERCENTILE = 99.5
"""What is shown as white: the half percent above it (highlights, hot pixels) may clip."""


def png_bytes(picture: NDArray[np.uint8], enlarge: int = 1) -> bytes:
    """A picture `(H, W)` or `(H, W, 3)` as PNG, every pixel `enlarge` times as large."""
    from PIL import Image

    if enlarge != 1:
        picture = picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(held, format="PNG")
    return held.getvalue()


def grey_picture(values: NDArray[Any]) -> NDArray[np.uint8]:
    """An image `(H, W)` as 8-bit grey for the eye: 99.5th percentile white, sRGB curve."""
    from prismask.scenes.colour import encode_srgb

    top = float(np.percentile(values, BRIGHT_PERCENTILE))
    scaled = np.asarray(values, dtype=np.float64) / top if top > 0 else np.zeros(values.shape)
    return np.asarray(np.round(255 * encode_srgb(scaled)), dtype=np.uint8)


def write_png(picture: NDArray[np.uint8], path: Path, overwrite: bool = False) -> None:
    """Write a picture as PNG."""
    write_bytes(png_bytes(picture), path, overwrite)


def write_bytes(content: bytes, path: Path, overwrite: bool = False) -> None:
    """Write a whole file, or leave what was there."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(content)
