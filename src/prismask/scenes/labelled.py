"""Records as `xarray.Dataset` and back: dims `wavelength, y, x`, CF-style attributes.

Variables are `cube` with `cube_std`, `cube_lower`, `cube_upper`, or `mask` with `mask_std`, or
`measurement`.
Provenance travels as one JSON text in the attribute `provenance`, so nested values come back as
they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask import __version__
from prismask.checks import choose
from prismask.errors import ConfigError
from prismask.scenes.formats.attributes import from_json, plain, to_json
from prismask.scenes.formats.contents import (
    Contents,
    Kind,
    Listed,
    Variable,
    arrays_of,
    as_kind,
    kind_of,
    wavelengths_of,
)
from prismask.scenes.formats.selection import make_record
from prismask.scenes.records import Cube, Record
from prismask.scenes.units import is_length
from prismask.scenes.wavelengths import (
    MOST_NM_BESIDE,
    WAVELENGTH_NAMES,
    check_number,
    may_be_list,
)

if TYPE_CHECKING:
    import xarray

CONVENTIONS = "CF-1.11"

Described = tuple[tuple[str, ...], NDArray[Any], dict[str, str]]
"""Dimensions, values and attributes of a variable."""

_LONG_NAMES = {
    "cube": "spectral radiance as a fraction of full scale",
    "cube_std": "standard deviation of the cube",
    "cube_lower": "lower end of the interval of the cube",
    "cube_upper": "upper end of the interval of the cube",
    "mask": "transmission of the coded aperture",
    "mask_std": "standard deviation of the mask",
    "measurement": "coded snapshot as a fraction of full scale",
}
_SPECTRAL = {*WAVELENGTH_NAMES, "band", "channel", "channels", "spectral", "c"}
_ROWS = {"y", "row", "rows", "line", "lines", "height", "h", "lat", "latitude"}
_COLUMNS = {"x", "column", "columns", "col", "cols", "sample", "samples", "width", "w"}
_COLUMNS |= {"lon", "longitude"}


def to_dataset(record: Record) -> xarray.Dataset:
    """A record as a labelled dataset."""
    import xarray

    variables, attrs = described(record)
    coords = {name: variables.pop(name) for name in ("wavelength",) if name in variables}
    return xarray.Dataset(variables, coords, attrs)


def described(record: Record) -> tuple[dict[str, Described], dict[str, str]]:
    """Everything a dataset says, without one: xarray takes longer to import than most are to write.

    Variables by name, the wavelengths last, and the attributes of the whole.
    """
    kind = kind_of(record)
    wavelengths = wavelengths_of(record)
    arrays = arrays_of(record)
    variables: dict[str, Described] = {}
    for name in (kind, *(name for name in arrays if name != kind)):
        dims = ("wavelength", "y", "x")[-arrays[name].ndim :]
        attrs = {"long_name": _LONG_NAMES[name], "units": "1"}
        variables[name] = (dims, arrays[name], attrs)
    others = [name for name in arrays if name != kind]
    if others:
        variables[kind][2]["ancillary_variables"] = " ".join(others)
    if wavelengths is not None:
        about = {
            "units": "nm",
            "long_name": "centre wavelength of the band",
            "standard_name": "radiation_wavelength",
        }
        variables["wavelength"] = (("wavelength",), np.asarray(wavelengths), about)
    attrs = {
        "Conventions": CONVENTIONS,
        "title": f"Prismask {kind}",
        "source": f"Prismask {__version__}",
        "prismask_kind": kind,
        "provenance": to_json(record.attrs),
    }
    return variables, attrs


def with_pixels(dataset: xarray.Dataset) -> xarray.Dataset:
    """The dataset with coordinates `y` and `x`, pixels counted from 0; files do without them."""
    coords = {
        name: (name, np.arange(dataset.sizes[name]), {"long_name": f"{words} of the pixel"})
        for name, words in (("y", "row"), ("x", "column"))
    }
    return dataset.assign_coords(coords)


def select(cube: Cube, labels: Mapping[str, Any]) -> xarray.DataArray:
    """What lies at labels of a cube; its error bar goes along as coordinates."""
    for name in labels:
        choose(name, ("wavelength", "y", "x"), "label")
    if "wavelength" in labels and cube.wavelengths is None:
        raise ConfigError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown. Give them: "
            "Cube(values, wavelengths=[…]), or take a band by its number: cube.values[0]."
        )
    dataset = with_pixels(to_dataset(cube))
    array = dataset.set_coords([name for name in dataset if name != "cube"])["cube"]
    slices = {name: label for name, label in labels.items() if isinstance(label, slice)}
    points = {name: label for name, label in labels.items() if name not in slices}
    for name, label in points.items():
        if name == "wavelength":
            check_number(label)
        ends = array[name].values[[0, -1]]
        room = MOST_NM_BESIDE if name == "wavelength" else 0
        if np.any(np.asarray(label) < ends[0] - room) or np.any(np.asarray(label) > ends[1] + room):
            raise ConfigError(f"{name} is {label}; this cube runs from {ends[0]:g} to {ends[1]:g}.")
    array = array.sel(slices) if slices else array
    return array.sel(points, method="nearest") if points else array


def from_dataset(
    dataset: xarray.Dataset, kind: Kind | None = None, variable: str | None = None
) -> Record:
    """The record in a dataset, from Prismask or from elsewhere.

    Dimensions are brought to `wavelength, y, x` by their names where all are known (`band`,
    `row`, `lon` … too), and are taken in that order otherwise.
    """
    return make_record(dataset_contents(dataset, "dataset"), kind, variable)


def dataset_contents(dataset: xarray.Dataset, source: str) -> Contents:
    """What a dataset holds; arrays stay unread until asked for."""
    variables = {str(name): _variable(str(name), array) for name, array in dataset.items()}
    kind = as_kind(dataset.attrs.get("prismask_kind"))
    listed = _listed(dataset)
    return Contents(
        source, "NetCDF-4", variables, None, None, provenance(dataset.attrs), kind, listed
    )


def _variable(name: str, array: xarray.DataArray) -> Variable:
    note = "" if array.dtype.kind in "fiub" else "not real numbers"
    read = partial(_read, array)
    return Variable(name, array.shape, str(array.dtype), read, note=note)


def _read(array: xarray.DataArray) -> NDArray[Any]:
    order = axis_order([str(dim) for dim in array.dims])
    return np.asarray(array.values if order is None else array.values.transpose(order))


def axis_order(dims: Sequence[str]) -> tuple[int, ...] | None:
    """The order that brings dimensions of these names to wavelength, row, column; None: unclear."""
    places = []
    for dim in dims:
        word = dim.lower()
        places.append(
            0 if word in _SPECTRAL else 1 if word in _ROWS else 2 if word in _COLUMNS else None
        )
    if None in places or len(set(places)) != len(places):
        return None
    return tuple(sorted(range(len(places)), key=lambda axis: places[axis] or 0))


def means_wavelengths(name: str, units: str | None) -> bool:
    """Whether a list of that name holds wavelengths, or may do so.

    `band` merely counts, unless it has a unit of length.
    """
    word = name.lower()
    return word in WAVELENGTH_NAMES or (word in _SPECTRAL and is_length(units))


def _listed(dataset: xarray.Dataset) -> tuple[Listed, ...]:
    found = []
    for name, array in dataset.variables.items():
        units = array.attrs.get("units")
        units = None if units is None else str(units)
        is_list = array.ndim == 1 and may_be_list(array.shape) and array.dtype.kind in "fiu"
        if is_list and means_wavelengths(str(name), units):
            found.append(Listed(str(name), array.values, units))
    return tuple(found)


def provenance(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The provenance in the attributes of a dataset: ours as it was, or all of a foreign one."""
    if "prismask_kind" in attrs:
        return from_json(str(plain(attrs.get("provenance", "{}"))))
    return {str(key): plain(value) for key, value in attrs.items()}
