"""Whatever people hold, as records: files, NumPy arrays, torch tensors, xarray objects.

Arrays are read as files are: integers of 8 and 16 bits are fractions of their type's full scale,
floating point is taken as it stands. Axes of length 1 in front, as in a batch of one, are dropped.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.errors import PrismaskWarning, ShapeError, ValuesError
from prismask.scenes.records import Array, Cube, Mask, Measurement, Record, check_mask_std
from prismask.scenes.units import to_fraction

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
        from prismask.scenes.labelled import dataset_contents

        dataset = given if hasattr(given, "data_vars") else given.to_dataset(name="mask")
        return read_mask_std(dataset_contents(dataset, name))
    values = _without_batch(_array(given, name), "mask", name)
    return check_mask_std(to_fraction(values), name=name)


def _as_record(given: Any, kind: Kind, name: str) -> Record:
    if isinstance(given, _KINDS[kind]):
        return given
    if isinstance(given, Cube | Mask | Measurement):
        raise ValuesError(
            f"{name} is a {type(given).__name__}; a {_KINDS[kind].__name__} belongs there. Are two "
            "arguments interchanged?"
        )
    if isinstance(given, str | os.PathLike):
        from prismask.scenes.formats.files import load

        return load(Path(given), kind)
    if hasattr(given, "dims") and hasattr(given, "coords"):
        return _from_xarray(given, kind)
    values = to_fraction(_without_batch(_array(given, name), kind, name))
    _warn_of_axes(values.shape, name)
    return _KINDS[kind](values)


def _warn_of_axes(shape: tuple[int, ...], name: str) -> None:
    from prismask.scenes.formats.selection import other_band_axis

    text = other_band_axis(shape)
    if text:
        warnings.warn(f"{name}: {text}", PrismaskWarning, stacklevel=5)


def _from_xarray(given: Any, kind: Kind) -> Record:
    from prismask.scenes.labelled import from_dataset

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
    try:
        array = np.asarray(given)
    except ValueError as problem:
        raise ValuesError(f"{name} is no array of numbers: {problem}.") from problem
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
        raise ShapeError(f"{name} is {came}; one {kind} is {wanted}. Hand over one at a time.")
    return array
