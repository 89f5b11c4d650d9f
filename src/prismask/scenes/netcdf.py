"""NetCDF-4, the format of our own files: opens in xarray, Panoply and MATLAB.

Keeps everything a record has. Plain HDF5 is read too, with its arrays taken bands first.
"""

from __future__ import annotations

import dataclasses
import io
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from prismask.scenes.atomic import write_beside
from prismask.scenes.contents import (
    DEFLATE_RATIO,
    Contents,
    Variable,
    check_claim,
    file_size,
)
from prismask.scenes.labelled import dataset_contents, to_dataset
from prismask.scenes.records import Record


def read(path: Path) -> Contents:
    """What a NetCDF-4 file holds."""
    with _open(path) as dataset:
        contents = dataset_contents(dataset, str(path))
        variables = {
            name: dataclasses.replace(variable, read=partial(_read, path, variable))
            for name, variable in contents.variables.items()
        }
    return dataclasses.replace(contents, variables=variables)


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


def _open(path: Path) -> Any:
    import h5py
    import xarray

    # h5netcdf complains on stderr while it is torn down after a file whose root it cannot read.
    with h5py.File(path, "r") as file:
        dict(file.attrs)
        for name, node in file.items():
            # xarray reads coordinates at once, so what they claim is checked before.
            if isinstance(node, h5py.Dataset) and node.ndim == 1:
                claimed = node.size * node.dtype.itemsize
                check_claim(path, claimed, file_size(path), name, DEFLATE_RATIO)
    return xarray.open_dataset(path, engine="h5netcdf", phony_dims="sort", cache=False)


def _read(path: Path, variable: Variable) -> NDArray[Any]:
    # The file is opened again for each array, so that nobody has to close `Contents`.
    with _open(path) as dataset:
        array = dataset[variable.name]
        check_claim(path, array.nbytes, file_size(path), variable.name, DEFLATE_RATIO)
        return dataset_contents(dataset, str(path)).variables[variable.name].read()
