"""NetCDF-4, the format of our own files: opens in xarray, Panoply and MATLAB.

Keeps everything a record has. Plain HDF5 is read too, with its arrays taken bands first. Arrays in
groups are called by their path, `entry/data/img`.
"""

from __future__ import annotations

import dataclasses
import io
import logging
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    DEFLATE_RATIO,
    Contents,
    check_claim,
    file_size,
)
from prismask.scenes.labelled import dataset_contents, to_dataset
from prismask.scenes.records import Record

logger = logging.getLogger(__name__)

ROOT = "/"


def read(path: Path) -> Contents:
    """What a NetCDF-4 file holds."""
    contents = _group(path, ROOT)
    variables, listed = dict(contents.variables), list(contents.listed)
    for name in _groups(path):
        try:
            inside = _group(path, name)
        except Exception as problem:  # parsers raise anything; the rest of the file is readable
            logger.warning(
                "%s: the group %s cannot be read and is left out: %s", path, name, problem
            )
            continue
        variables |= {variable.name: variable for variable in inside.variables.values()}
        listed += [dataclasses.replace(one, name=f"{name}/{one.name}") for one in inside.listed]
    return dataclasses.replace(contents, variables=variables, listed=tuple(listed))


def _group(path: Path, group: str) -> Contents:
    with _open(path, group) as dataset:
        contents = dataset_contents(dataset, str(path))
    variables = {
        name: dataclasses.replace(
            variable, name=f"{group}/{name}".lstrip("/"), read=partial(_read, path, group, name)
        )
        for name, variable in contents.variables.items()
    }
    return dataclasses.replace(contents, variables=variables)


def _groups(path: Path) -> list[str]:
    """The groups of a file that hold arrays, except the root."""
    import h5py

    found: list[str] = []

    def note(name: str, node: Any) -> None:
        group = name.rpartition("/")[0]
        if isinstance(node, h5py.Dataset) and group and group not in found:
            found.append(group)

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return found


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as NetCDF-4."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(_image(record))


def _image(record: Record) -> memoryview:
    """The bytes of the file.

    Made in memory, because HDF5 brings the interpreter down when the disk is full.
    """
    import h5netcdf

    dataset = to_dataset(record)
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        file.dimensions = {str(name): size for name, size in dataset.sizes.items()}
        for name, variable in dataset.variables.items():
            stored = file.create_variable(
                str(name), variable.dims, variable.dtype, data=variable.values
            )
            stored.attrs.update(variable.attrs)
        file.attrs.update(dataset.attrs)
    return buffer.getbuffer()


def _open(path: Path, group: str) -> Any:
    import h5py
    import xarray

    # h5netcdf complains on stderr while it is torn down after a file whose root it cannot read.
    with h5py.File(path, "r") as file:
        dict(file.attrs)
        for name, node in file[group].items():
            # xarray reads coordinates at once, so what they claim is checked before.
            if isinstance(node, h5py.Dataset) and node.ndim == 1:
                claimed = node.size * node.dtype.itemsize
                check_claim(path, claimed, file_size(path), name, DEFLATE_RATIO)
    return xarray.open_dataset(path, engine="h5netcdf", phony_dims="sort", cache=False, group=group)


def _read(path: Path, group: str, name: str) -> NDArray[Any]:
    # The file is opened again for each array, so that nobody has to close `Contents`.
    with _open(path, group) as dataset:
        check_claim(path, dataset[name].nbytes, file_size(path), name, DEFLATE_RATIO)
        return dataset_contents(dataset, str(path)).variables[name].read()
