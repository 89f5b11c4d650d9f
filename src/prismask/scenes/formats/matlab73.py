"""MATLAB v7.3 files: HDF5 behind a 512-byte block that says MATLAB, with axes reversed.

MATLAB stores arrays column by column, HDF5 row by row, so an H×W×C array of MATLAB appears as
C×W×H in the file. Every dataset names its class in the attribute `MATLAB_class`; characters are
16-bit numbers. Layout of our own files as in `matlab`.
"""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    TEXTS,
    Contents,
    Listed,
    Variable,
    named_arrays,
    named_contents,
)
from prismask.scenes.formats.hdf5 import (
    LINK,
    check_size,
    link_variable,
    members,
    note_for,
    open_node,
    read_values,
    text_attribute,
)
from prismask.scenes.formats.matlab import NUMERIC, bands_last, matlab_variable
from prismask.scenes.formats.selection import may_be_wavelengths
from prismask.scenes.records import Record

TITLE = "MATLAB v7.3"
USERBLOCK = 512


def read(path: Path) -> Contents:
    """What a MATLAB v7.3 file holds."""
    import h5py

    variables: dict[str, Variable] = {}
    texts: dict[str, str] = {}
    listed: list[Listed] = []
    with h5py.File(path, "r") as file:
        for name, node in members(path, file):
            if name.startswith("#"):  # MATLAB keeps what cells and objects refer to in there
                continue
            if node is LINK:
                variables[name] = link_variable(name)
                continue
            matlab_class = _class_of(node)
            is_array = isinstance(node, h5py.Dataset)
            shape = (node.shape or ())[::-1] if is_array else ()
            read = partial(_read, path, name)
            variable = matlab_variable(name, shape, matlab_class, read)
            if is_array and not variable.note and note_for(node):
                variable = dataclasses.replace(variable, note=note_for(node))
            variables[name] = variable
            if matlab_class == "char" and name in TEXTS:
                texts[name] = _text(path, node)
            elif may_be_wavelengths(name, shape) and matlab_class in NUMERIC - {"logical"}:
                listed.append(Listed(name, read_values(path, node)))
    return named_contents(path, TITLE, variables, texts, tuple(listed))


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as MATLAB v7.3."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(_image(record))


def _image(record: Record) -> memoryview:
    """The bytes of the file, made in memory for the reason given in `netcdf`."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=USERBLOCK) as file:
        for name, value in named_arrays(record).items():
            if isinstance(value, str):
                _put_text(file, name, value)
            elif value.ndim == 1:
                _put(file, name, value[None], "double")
            else:
                _put(file, name, bands_last(value), "single")
    buffer.seek(0)
    buffer.write(_header())
    return buffer.getbuffer()


def _put(file: Any, name: str, array: NDArray[Any], matlab_class: str) -> Any:
    dataset = file.create_dataset(name, data=array.T)
    dataset.attrs["MATLAB_class"] = np.bytes_(matlab_class)
    return dataset


def _put_text(file: Any, name: str, text: str) -> None:
    codes = np.array([ord(letter) for letter in text], dtype=np.uint16)
    dataset = _put(file, name, codes[None], "char")
    dataset.attrs["MATLAB_int_decode"] = np.int32(2)


def _header() -> bytes:
    """The 128 bytes by which MATLAB knows its files: text, no subsystem data, version, order."""
    now = datetime.now(UTC).strftime("%a %b %d %H:%M:%S %Y")
    text = f"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: {now} HDF5 schema 1.00 ."
    return text.encode().ljust(116) + bytes(8) + b"\x00\x02IM"


def _class_of(node: Any) -> str:
    import h5py

    word = text_attribute(node, "MATLAB_class")
    if word:
        pass
    elif isinstance(node, h5py.Group):
        word = "group"
    else:
        word = {"f": "double" if node.dtype.itemsize == 8 else "single"}.get(
            node.dtype.kind, str(node.dtype)
        )
    if isinstance(node, h5py.Group):
        return "sparse" if "MATLAB_sparse" in node.attrs else word if word == "group" else "struct"
    if node.dtype.names is not None:
        return f"complex {word}"
    if node.attrs.get("MATLAB_empty"):
        return f"empty {word}"
    return word


def _read(path: Path, name: str) -> NDArray[Any]:
    import h5py

    with h5py.File(path, "r") as file:
        node = open_node(file, name)
        array = read_values(path, node).T
        return array.astype(bool) if _class_of(node) == "logical" else array


def _text(path: Path, node: Any) -> str:
    if node.dtype.kind not in "iu" or not node.shape:
        raise FormatError(f"the text {node.name} is not stored as MATLAB stores texts.")
    check_size(path, 2 * node.size, f"the text {node.name}")
    return "".join(chr(code) for code in read_values(path, node).T.reshape(-1))
