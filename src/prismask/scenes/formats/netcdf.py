"""NetCDF-4, the format of our own files: opens in xarray, Panoply and MATLAB.

Keeps everything a record has. Plain HDF5 is read too, with its arrays taken bands first. Arrays in
groups are called by their path, `entry/data/img`.
"""

from __future__ import annotations

import io
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside
from prismask.scenes.conversion import axis_order, described, means_wavelengths, provenance
from prismask.scenes.formats.contents import (
    DEFLATE_RATIO,
    Contents,
    Listed,
    Variable,
    as_kind,
    check_claim,
)
from prismask.scenes.formats.hdf5 import (
    LINK,
    all_arrays,
    attribute,
    attributes,
    link_variable,
    note_for,
    open_node,
    read_values,
    text_attribute,
)
from prismask.scenes.formats.selection import may_be_list
from prismask.scenes.records import Record

_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_FILLS = ("_FillValue", "missing_value")
_PACKING = (*_FILLS, "_Unsigned", "scale_factor", "add_offset")
LEAST_COMPRESSED, COMPRESSION = 2**20, 1
"""Bytes of an array from which it is compressed, and how hard: more takes longer for 1 % less."""
CHUNK = (8, 128, 128)
"""Largest chunk: a spectrum and a plane are both read from few of them."""
MOST_LISTS = 100
"""Lists of wavelengths that are read; a file with more leaves the choice to people anyway."""


def read(path: Path) -> Contents:
    """What a NetCDF-4 file holds."""
    import h5py

    variables: dict[str, Variable] = {}
    listed: list[Listed] = []
    coordinates: set[str] = set()
    with h5py.File(path, "r") as file:
        attrs = attributes(path, file)
        for name, node in all_arrays(path, file):
            if node is LINK:
                variables[name] = link_variable(name)
                continue
            is_scale = h5py.h5ds.is_scale(node.id)
            if is_scale and text_attribute(node, "NAME").startswith(_NO_VARIABLE):
                continue
            note, units = note_for(node), text_attribute(node, "units")
            if not note and len(listed) < MOST_LISTS:
                listed += _listed(path, name, node, units)
            group = name.rpartition("/")[0]
            for other in text_attribute(node, "coordinates").split():
                coordinates.add(f"{group}/{other}".lstrip("/"))
            if not is_scale:
                note = note or ("a list of times" if " since " in units else "")
                read = partial(_read, path, name)
                variables[name] = Variable(name, node.shape or (), str(node.dtype), read, note=note)
    # What lies in no group comes first.
    order = sorted(
        (name for name in variables if name not in coordinates), key=lambda name: "/" in name
    )
    variables = {name: variables[name] for name in order}
    kind = as_kind(attrs.get("prismask_kind"))
    shown = {key: value for key, value in attrs.items() if not key.startswith("_N")}
    return Contents(
        str(path), "NetCDF-4", variables, None, None, provenance(shown), kind, tuple(listed)
    )


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as NetCDF-4."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(_image(record))


def _image(record: Record) -> memoryview:
    """The bytes of the file.

    Made in memory, because HDF5 brings the interpreter down when the disk is full.
    """
    import h5netcdf

    variables, whole = described(record)
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        file.dimensions = {
            name: size
            for dims, values, _ in variables.values()
            for name, size in zip(dims, values.shape, strict=True)
        }
        for name, (dims, values, attrs) in variables.items():
            _stored(file, name, dims, values).attrs.update(attrs)
        file.attrs.update(whole)
    return buffer.getbuffer()


def _stored(file: Any, name: str, dims: tuple[Any, ...], values: NDArray[Any]) -> Any:
    """A variable of the file; large ones are compressed, by all cores."""
    if values.nbytes < LEAST_COMPRESSED or values.dtype.kind != "f":
        return file.create_variable(name, dims, values.dtype, data=values)
    sizes = (*CHUNK[-values.ndim :],) if values.ndim <= 3 else values.shape
    chunks = tuple(min(most, size) for most, size in zip(sizes, values.shape, strict=True))
    stored = file.create_variable(
        name, dims, values.dtype, chunks=chunks, compression="gzip",
        compression_opts=COMPRESSION, shuffle=True,
    )  # fmt: skip
    offsets = list(product(*(range(0, n, c) for n, c in zip(values.shape, chunks, strict=True))))
    # zlib lets other threads run; HDF5 would compress one chunk after the other.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        packed = pool.map(lambda offset: _packed(values, offset, chunks), offsets)
        for offset, data in zip(offsets, packed, strict=True):
            file._h5file[name].id.write_direct_chunk(offset, data)
    return stored


def _packed(values: NDArray[Any], offset: tuple[int, ...], chunks: tuple[int, ...]) -> bytes:
    """One chunk as HDF5's filters shuffle and gzip store it; chunks at the end are filled up."""
    part = values[tuple(slice(at, at + size) for at, size in zip(offset, chunks, strict=True))]
    whole = np.zeros(chunks, values.dtype)
    whole[tuple(slice(size) for size in part.shape)] = part
    by_significance = whole.view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return zlib.compress(by_significance.tobytes(), COMPRESSION)


def _read(path: Path, name: str) -> NDArray[Any]:
    import h5py

    # The file is opened again for each array, so that nobody has to close `Contents`.
    with h5py.File(path, "r") as file:
        node = open_node(file, name)
        packing = {key: text for key in _PACKING if (text := attribute(node, key)) is not None}
        values = _unpacked(read_values(path, node), packing)
        order = axis_order(_dimensions(node))
    return values if order is None else values.transpose(order)


def _listed(path: Path, name: str, node: Any, units: str) -> list[Listed]:
    """The array as a list that may be the wavelengths, or nothing."""
    own = name.rpartition("/")[2]
    if not means_wavelengths(own, units) or node.ndim != 1 or node.dtype.kind == "b":
        return []
    check_claim(path, node.nbytes, path.stat().st_size, name, DEFLATE_RATIO)
    if not may_be_list(node.shape):
        return []
    return [Listed(name, read_values(path, node), units or None)]


def _dimensions(node: Any) -> list[str]:
    """The names of an array's dimensions, as far as it has any."""
    names = []
    for axis in node.dims:
        label = axis[0].name if len(axis) else axis.label
        names.append(str(label or "").rpartition("/")[2])
    return names


def _unpacked(values: NDArray[Any], attrs: dict[str, Any]) -> NDArray[Any]:
    """The numbers that packed ones stand for, by the rules of netCDF; missing ones are NaN."""
    if str(attrs.get("_Unsigned", "")).lower() == "true" and values.dtype.kind == "i":
        values = values.view(values.dtype.str.replace("i", "u"))
    marks = [np.asarray(attrs[key]).astype(values.dtype) for key in _FILLS if key in attrs]
    # A mark of NaN finds nothing: what it marks is NaN already.
    missing = [values == mark for mark in marks]
    if "scale_factor" in attrs or "add_offset" in attrs:
        small = values.dtype.itemsize <= 2 and "add_offset" not in attrs
        values = values.astype(np.float32 if small else np.float64)
        values *= float(attrs.get("scale_factor", 1))
        values += float(attrs.get("add_offset", 0))
    for where in missing:
        if where.any():
            values = np.where(where, np.nan, values)
    return values
