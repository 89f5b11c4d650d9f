"""NPY: one array, bands first. Keeps the values alone.

Pickles are never loaded: they can run anything.
"""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    Contents,
    Variable,
    check_claim,
    check_decoded,
    file_size,
    record_bytes,
)
from prismask.scenes.records import Record

LARGEST_HEADER = 10_000
"""Bytes; numpy.load knows the same limit."""
_MAGIC = 8


def read(path: Path) -> Contents:
    """What an NPY file holds."""
    with path.open("rb") as file:
        shape, dtype = array_header(file, path)
        check_claim(path, array_bytes(shape, dtype), file_size(path) - file.tell(), "the array")
    check_decoded(path, record_bytes(shape, dtype.itemsize), "the array")
    name = path.stem
    variable = Variable(
        name, shape, str(dtype), partial(_read, path), note=note_for(dtype), is_named=False
    )
    return Contents(str(path), "NPY", {name: variable})


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record's values as NPY."""
    with write_beside(path, overwrite=overwrite) as part, part.open("wb") as file:
        np.save(file, record.values, allow_pickle=False)


def array_header(file: IO[bytes], source: object) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array that starts here; pickled arrays are refused."""
    start = file.read(_MAGIC + 4)
    short = start[_MAGIC - 2 : _MAGIC] == b"\x01\x00"  # version 1.0 has two bytes for the length
    length = int.from_bytes(start[_MAGIC : _MAGIC + (2 if short else 4)], "little")
    if length > LARGEST_HEADER:
        raise FormatError(
            f"{source}: the header of the array claims {length} bytes; {LARGEST_HEADER} are the "
            "limit."
        )
    # Parsed from a copy: the rest of a member may be packed a thousandfold.
    header = io.BytesIO(start + file.read(length - (2 if short else 0)))
    np.lib.format.read_magic(header)
    shape, _, dtype = (
        np.lib.format.read_array_header_1_0(header, LARGEST_HEADER)
        if short
        else np.lib.format.read_array_header_2_0(header, LARGEST_HEADER)
    )
    if dtype.hasobject:
        raise FormatError(
            f"{source} holds pickled Python objects, which could run any code and are never "
            "loaded. Save the numbers themselves: numpy.save(path, array.astype('float32'))."
        )
    return tuple(int(size) for size in shape), dtype


def array_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array, computed without overflow."""
    return math.prod(shape) * dtype.itemsize


def note_for(dtype: np.dtype[Any]) -> str:
    """Why an array of this type cannot be a record."""
    return "" if dtype.kind in "fiub" else "not real numbers"


def _read(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array
