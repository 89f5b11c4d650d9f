"""CAVE scenes as Columbia distributes them: a folder of 31 PNGs per scene, 400–700 nm every 10 nm.

`name_ms/name_ms/name_ms_01.png … _31.png`, 16 bits. One scene (watercolors) is 8-bit RGBA with
equal colours; their mean is taken. Any level of the folders may be given.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import FormatError
from prismask.scenes.formats.contents import Contents, Variable, check_decoded, record_bytes
from prismask.scenes.formats.png import check_whole, read_pixels

BANDS = 31
WAVELENGTHS_NM = tuple(400.0 + 10.0 * band for band in range(BANDS))
"""Centre wavelengths of the bands."""

_DEPTH = 3
MOST_ENTRIES = 20_000
"""All of CAVE is a tenth of that; somebody's home is more."""
_FILE = re.compile(r"(?P<scene>.+)_ms_(?P<band>\d\d)\.png", re.IGNORECASE)


def find_scenes(folder: Path) -> dict[str, dict[int, Path]]:
    """Scenes in a folder, up to three levels down: `{name: {band: file}}`, sorted by name."""
    scenes: dict[str, dict[int, Path]] = {}
    count = 0
    level = [folder]
    for _ in range(_DEPTH + 1):
        below: list[Path] = []
        for place in level:
            for entry in sorted(place.iterdir()):
                count += 1
                if count > MOST_ENTRIES:
                    raise FormatError(
                        f"{folder} holds more than {MOST_ENTRIES:,} files and folders: no folder "
                        "of CAVE scenes. Give one of its files."
                    )
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    below.append(entry)
                elif (match := _FILE.fullmatch(entry.name)) and entry.is_file():
                    scenes.setdefault(match["scene"], {})[int(match["band"])] = entry
        level = below
    return dict(sorted(scenes.items()))


def read(path: Path) -> Contents:
    """What a CAVE folder holds: one variable per scene."""
    variables = {}
    for name, files in find_scenes(path).items():
        first = next(iter(files.values()))
        width, height, depth, _ = check_whole(first)
        variables[name] = Variable(
            name,
            (len(files), height, width),
            f"{depth}-bit PNG",
            partial(read_scene, name, files),
            to_fraction=np.asarray,
        )
    return Contents(str(path), "CAVE folder", variables, WAVELENGTHS_NM, "nm", None, "cube")


def read_scene(name: str, files: dict[int, Path]) -> NDArray[np.float32]:
    """One scene `(31, H, W)` in [0, 1]."""
    missing = sorted(set(range(1, BANDS + 1)) - set(files))
    if missing or len(files) != BANDS:
        raise FormatError(
            f"CAVE scene {name} has {len(files)} bands of {BANDS}"
            + (f"; missing: {', '.join(map(str, missing))}." if missing else ".")
            + " Unpack it again."
        )
    first = files[1]
    width, height, *_ = check_whole(first)
    check_decoded(first.parent, record_bytes((BANDS, height, width), 4), f"the scene {name}")
    planes = [_plane(files[band]) for band in range(1, BANDS + 1)]
    sizes = {plane.shape for plane in planes}
    if len(sizes) != 1:
        text = ", ".join(sorted(size_text(size) for size in sizes))
        raise FormatError(f"the bands of CAVE scene {name} differ in size: {text}.")
    return np.stack(planes)


def _plane(path: Path) -> NDArray[np.float32]:
    pixels: NDArray[Any] = read_pixels(path)
    full = np.float32(65535 if pixels.dtype == np.uint16 else 255)
    values = pixels.astype(np.float32)
    if pixels.ndim == 3:
        # Grey with alpha has one colour channel, RGB and RGBA have three.
        colours = 3 if pixels.shape[-1] >= 3 else 1
        values = values[..., :colours].mean(-1)
    return values / full
