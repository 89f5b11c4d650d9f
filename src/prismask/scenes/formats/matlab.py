"""MATLAB files of versions 5 to 7 (`save -v6`, `save -v7`).

Cubes are H×W×C on disk, as MATLAB users store them, and come out bands first. Our own files hold
`cube` (with `cube_std` …), `mask` or `measurement`, `wavelengths` in nm, and the texts `kind` and
`provenance`: everything a record has is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.attributes import to_json
from prismask.scenes.formats.contents import (
    TEXTS,
    Contents,
    Listed,
    Variable,
    arrays_of,
    kind_of,
    named_contents,
    wavelengths_of,
)
from prismask.scenes.formats.limits import (
    DEFLATE_RATIO,
    check_claim,
    check_decoded,
    file_size,
)
from prismask.scenes.formats.matlab_elements import (
    item_bytes,
    list_elements,
    read_numbers,
    read_text,
)
from prismask.scenes.records import Record
from prismask.scenes.units import kaist_to_fraction, to_fraction
from prismask.scenes.wavelengths import may_be_wavelengths

TITLE = "MATLAB v5"
NUMERIC = {
    "double", "single", "logical", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64",
}  # fmt: skip
"""MATLAB classes that are plain arrays of numbers."""
LARGEST = 2**31
"""v5 cannot hold an array of 2 GiB or more; v7.3 can."""


def read(path: Path) -> Contents:
    """What a MATLAB file holds."""
    variables: dict[str, Variable] = {}
    texts: dict[str, str] = {}
    listed: list[Listed] = []
    for element in list_elements(path):
        name, word = element.name, element.matlab_class
        # However well it is packed, every number takes a byte before that.
        check_claim(path, math.prod(element.shape), file_size(path), name, DEFLATE_RATIO)
        check_decoded(path, math.prod(element.shape) * item_bytes(word), name)
        read = partial(read_numbers, path, element)
        variables[name] = matlab_variable(name, element.shape, word, read)
        if word == "char" and name in TEXTS:
            texts[name] = read_text(path, element)
        elif may_be_wavelengths(name, element.shape) and word in NUMERIC - {"logical"}:
            listed.append(Listed(name, read()))
    return named_contents(path, TITLE, variables, texts, tuple(listed))


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as MATLAB v5, or as v7.3 where it is too large for v5."""
    from scipy.io import savemat

    if record.values.nbytes >= LARGEST:
        from prismask.scenes.formats import matlab73

        matlab73.write(record, path, overwrite)
        return
    variables: dict[str, Any] = {"kind": kind_of(record), "provenance": to_json(record.attrs)}
    wavelengths = wavelengths_of(record)
    if wavelengths is not None:
        variables["wavelengths"] = wavelengths
    variables |= {name: bands_last(array) for name, array in arrays_of(record).items()}
    with write_beside(path, overwrite=overwrite) as part:
        savemat(part, variables, appendmat=False, oned_as="row")


def matlab_variable(
    name: str, shape: tuple[int, ...], matlab_class: str, read: Callable[[], NDArray[Any]]
) -> Variable:
    """A variable of a MATLAB file of any version; `read` gives it H×W×C."""
    note = "" if matlab_class in NUMERIC else f"a {matlab_class}, not an array of numbers"
    scale = kaist_to_fraction if name in ("img", "img_expand") else to_fraction
    return Variable(name, shape, matlab_class, read, scale, band_axis=-1, note=note)


def bands_last(array: NDArray[Any]) -> NDArray[Any]:
    """`(C, H, W)` → H×W×C; two dimensions stay."""
    return np.moveaxis(array, 0, -1) if array.ndim == 3 else array
