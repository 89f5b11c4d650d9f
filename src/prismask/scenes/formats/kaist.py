"""The ten KAIST test scenes packed as 8-bit NPZ: `cube = (sceneNN + 0.5) / 256 · sceneNN_max`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import nearest
from prismask.errors import FormatError
from prismask.scenes.formats import npz
from prismask.scenes.formats.contents import Contents, Variable, check_decoded, record_bytes
from prismask.scenes.records import Cube


def read(path: Path) -> Contents:
    """What a pack of KAIST scenes holds: one variable per scene."""
    raw = npz.read(path)
    variables = {}
    for name, packed in raw.variables.items():
        if f"{name}_max" in raw.variables:
            decode = partial(_decode, path, packed, raw.variables[f"{name}_max"])
            variables[name] = Variable(
                name, packed.shape, packed.dtype, decode, to_fraction=np.asarray, note=packed.note
            )
    # Stored as float32: 453.3 comes back as 453.29998779 without the rounding.
    wavelengths = next((np.round(one.values, 3) for one in raw.listed), None)
    return Contents(str(path), "packed KAIST scenes", variables, wavelengths, "nm", None, "cube")


def read_kaist(path: Path, names: Iterable[str] | None = None) -> dict[str, Cube]:
    """Scenes of the pack by name; all of them unless `names` says which."""
    contents = read(path)
    cubes = {}
    for name in list(contents.variables) if names is None else names:
        if name not in contents.variables:
            raise FormatError(
                f"{path} has no scene {name!r}.{nearest(name, contents.variables)} "
                f"Found: {', '.join(contents.variables)}."
            )
        attrs = {"source": path.name, "scene": name}
        cubes[name] = Cube(contents.variables[name].read(), contents.wavelengths, attrs=attrs)
    return cubes


def _decode(path: Path, packed: Variable, maximum: Variable) -> NDArray[Any]:
    check_decoded(path, record_bytes(packed.shape, 1), packed.name)
    values = packed.read()
    if values.dtype != np.uint8:
        raise FormatError(f"{packed} is not packed in 8 bits.")
    full = np.float32(maximum.read())
    return (values.astype(np.float32) + np.float32(0.5)) / np.float32(256) * full
