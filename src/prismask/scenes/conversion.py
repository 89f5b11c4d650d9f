"""Records from whatever people hold, and to xarray: files, arrays, tensors, datasets.

Arrays are read as files are: integers of 8 and 16 bits are fractions of their type's full scale,
floating point is taken as it stands. Axes of length 1 in front, as in a batch of one, are dropped.

A record as `xarray.Dataset` has the dims `wavelength, y, x` and CF-style attributes. Variables are
`cube` with `cube_std`, `cube_lower`, `cube_upper`, or `mask` with `mask_std`, or `measurement`.
Provenance travels as one JSON text in the attribute `provenance`, so nested values come back as
they were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask import __version__
from prismask.checks import choose
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.scenes.formats.contents import (
    Contents,
    Kind,
    Listed,
    Variable,
    arrays_of,
    as_kind,
    from_json,
    kind_of,
    plain,
    to_json,
    wavelengths_of,
)
from prismask.scenes.formats.selection import (
    MOST_NM_BESIDE,
    WAVELENGTH_NAMES,
    check_number,
    make_record,
    may_be_list,
    planes_advice,
)
from prismask.scenes.records import Array, Cube, Mask, Measurement, Record, check_mask_std
from prismask.scenes.units import COUNTS, full_count, is_length, to_fraction
from prismask.wording import warn_caller

if TYPE_CHECKING:
    import xarray

    from prismask.scenes.formats.contents import Kind

    Given = str | os.PathLike[str] | ArrayLike | xarray.DataArray | xarray.Dataset
    CubeLike = Cube | Given
    MaskLike = Mask | Given
    MeasurementLike = Measurement | Given

_KINDS: dict[Kind, type[Record]] = {"cube": Cube, "mask": Mask, "measurement": Measurement}
_DIMENSIONS: dict[Kind, tuple[int, ...]] = {"cube": (3,), "mask": (2, 3), "measurement": (2,)}


def as_cube(given: CubeLike, name: str = "cube") -> Cube:
    """A cube record of a record, a file, an array or tensor `(C, H, W)`, or an xarray object."""
    return cast(Cube, _as_record(given, "cube", name))


def as_mask(given: MaskLike, name: str = "mask") -> Mask:
    """A mask record of the same, `(H, W)` or `(C, H, W)`."""
    return cast(Mask, _as_record(given, "mask", name))


def as_measurement(given: MeasurementLike, name: str = "measurement") -> Measurement:
    """A measurement record of the same, `(H, W)`."""
    return cast(Measurement, _as_record(given, "measurement", name))


def as_mask_std(given: Any, name: str = "mask_std") -> Array:
    """How far a mask may be wrong, `(H, W)` or `(C, H, W)`, of the same things as a mask.

    Of a mask, or of a file or dataset that holds one, its `std`; where it has none, its values.
    """
    if isinstance(given, Mask):
        return given.values if given.std is None else given.std
    if isinstance(given, Cube | Measurement):
        raise ValuesError(
            f"{name} is a {type(given).__name__}; give a number, or how far each pixel of the mask "
            "may be wrong: a Mask with a std, a file, an array."
        )
    if isinstance(given, str | os.PathLike):
        from prismask.scenes.formats.files import load_mask_std

        return load_mask_std(Path(given))
    if hasattr(given, "dims") and hasattr(given, "coords"):
        from prismask.scenes.formats.selection import read_mask_std

        dataset = given if hasattr(given, "data_vars") else given.to_dataset(name="mask")
        return read_mask_std(dataset_contents(dataset, name))
    values = _without_batch(_array(given, name), "mask", name)
    return check_mask_std(to_fraction(values), name=name)


def _as_record(given: Any, kind: Kind, name: str) -> Record:
    if isinstance(given, _KINDS[kind]):
        return given
    if isinstance(given, Cube | Mask | Measurement):
        raise ValuesError(
            f"{name} is a {type(given).__name__} and must be a {_KINDS[kind].__name__}. Are two "
            "arguments swapped?"
        )
    if isinstance(given, str | os.PathLike):
        from prismask.scenes.formats.files import load

        return load(Path(given), kind)
    if hasattr(given, "dims") and hasattr(given, "coords"):
        return _from_xarray(given, kind)
    raw = _without_batch(_array(given, name), kind, name)
    values, full = to_fraction(raw), full_count(raw)
    _warn_of_axes(values.shape, name)
    if kind == "measurement" and full is not None:
        return Measurement(values, {COUNTS: full})
    return _KINDS[kind](values)


def _warn_of_axes(shape: tuple[int, ...], name: str) -> None:
    from prismask.scenes.formats.selection import other_band_axis

    text = other_band_axis(shape)
    if text:
        warn_caller(f"{name}: {text}")


def _from_xarray(given: Any, kind: Kind) -> Record:

    if not hasattr(given, "data_vars"):
        # Its error bar, where `Cube.sel` has put one beside it, is a variable again.
        beside = [str(name) for name in given.coords if str(name).startswith(f"{kind}_")]
        given = given.to_dataset(name=kind).reset_coords(beside).assign_attrs(given.attrs)
    return from_dataset(given, kind)


def _array(given: Any, name: str) -> NDArray[Any]:
    if hasattr(given, "detach"):  # a torch tensor, which this room does not import
        given = given.detach().cpu()
        # NumPy knows no bfloat16.
        given = given.float() if given.is_floating_point() else given
    if np.ma.is_masked(given):
        count = int(np.ma.getmaskarray(given).sum())
        raise ValuesError(
            f"{name} is a masked array, and {count} of its values are masked: methods take "
            "whole frames. For a snapshot, pass y.filled(0) and "
            "bad_pixels=np.ma.getmaskarray(y), which leaves them out."
        )
    try:
        array = np.asarray(given)
    except ValueError as problem:
        raise ValuesError(f"{name} is not an array of numbers: {problem}.") from problem
    if array.dtype.kind == "c":
        raise ValuesError(
            f"{name} holds {array.dtype} values, and real numbers are needed: take abs() or .real."
        )
    if array.dtype.kind not in "fiub":
        raise ValuesError(
            f"{name} is a {type(given).__name__}; give a record, the path of a file, a NumPy "
            "array, a torch tensor or an xarray object of real numbers."
        )
    return array


def _without_batch(array: NDArray[Any], kind: Kind, name: str) -> NDArray[Any]:
    """Drop axes of length 1 in front; what then does not fit is refused with what would."""
    fits = _DIMENSIONS[kind]
    while array.ndim > fits[0] and array.shape[0] == 1 and not (kind == "cube" and array.ndim == 3):
        array = array[0]
    if array.ndim not in fits:
        wanted = {"cube": "C×H×W", "mask": "H×W or C×H×W", "measurement": "H×W"}[kind]
        came = "×".join(map(str, array.shape)) or "a single number"
        if kind == "measurement" and array.ndim == 3:
            raise ShapeError(
                f"{name} is {came}; one measurement is H×W. {planes_advice(array.shape)} "
                "Pass snapshots of several scenes one at a time."
            )
        raise ShapeError(f"{name} is {came}; one {kind} is {wanted}. Pass one at a time.")
    return array


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


def from_dataset(dataset: xarray.Dataset, kind: Kind | None = None) -> Record:
    """The record in a dataset, from Prismask or from elsewhere.

    Dimensions are brought to `wavelength, y, x` by their names where all are known (`band`,
    `row`, `lon` … too), and are taken in that order otherwise.
    """
    return make_record(dataset_contents(dataset, "dataset"), kind)


def dataset_contents(dataset: xarray.Dataset, source: str) -> Contents:
    """What a dataset holds; arrays stay unread until they are used."""
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
