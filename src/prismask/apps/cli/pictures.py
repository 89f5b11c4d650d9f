"""Pictures as files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside
from prismask.scenes.pictures import grey_picture as grey_picture
from prismask.scenes.pictures import png_bytes as png_bytes


def write_png(picture: NDArray[np.uint8], path: Path, overwrite: bool = False) -> None:
    """Write a picture as PNG."""
    write_bytes(png_bytes(picture), path, overwrite)


def write_bytes(content: bytes, path: Path, overwrite: bool = False) -> None:
    """Write a whole file, or leave what was there."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(content)
