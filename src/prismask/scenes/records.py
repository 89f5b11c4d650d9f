"""Cube, Mask and Measurement: an array with the facts that belong to it.

Records hold NumPy arrays, are checked once when made, and never change afterwards. Values are
fractions of full scale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import check_finite, check_shape, size_text
from prismask.errors import ShapeError, ValuesError

if TYPE_CHECKING:
    import xarray

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Cube:
    """A hyperspectral image, with its error bar where one is known."""

    values: Array
    """Radiance `(C, H, W)`, float32."""
    wavelengths: NDArray[np.float64] | None = None
    """Centre wavelength of each band in nanometres, ascending; None if unknown."""
    std: Array | None = None
    """Standard deviation of each value, `(C, H, W)`."""
    lower: Array | None = None
    """Lower end of the interval named in `attrs["interval"]`, `(C, H, W)`."""
    upper: Array | None = None
    """Upper end of that interval."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Provenance: where it came from and how it was made."""

    def __post_init__(self) -> None:
        _check_attrs(self.attrs)
        values = _frozen(self.values, "cube", ("C", "H", "W"))
        object.__setattr__(self, "values", values)
        for name in ("std", "lower", "upper"):
            part = getattr(self, name)
            if part is not None:
                object.__setattr__(self, name, _frozen(part, f"cube {name}", values.shape))
        _check_interval(values, self.lower, self.upper)
        if self.wavelengths is not None:
            checked = check_wavelengths(self.wavelengths, values.shape[0])
            object.__setattr__(self, "wavelengths", checked)

    @property
    def bands(self) -> int:
        """Number of spectral bands C."""
        return int(self.values.shape[0])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.values.shape[1]), int(self.values.shape[2])

    @property
    def hash(self) -> str:
        """Short, stable id of the values."""
        return array_hash(self.values)

    def to_xarray(self) -> xarray.Dataset:
        """The cube as an `xarray.Dataset` with dims `wavelength, y, x`."""
        from prismask.scenes.labelled import to_dataset

        return to_dataset(self)


@dataclass(frozen=True, eq=False)
class Mask:
    """A calibrated coded aperture: transmission in [0, 1]."""

    values: Array
    """Transmission `(H, W)`, or one plane per band `(C, H, W)`, float32."""
    wavelengths: NDArray[np.float64] | None = None
    """Wavelength of each plane in nanometres, for a mask `(C, H, W)`."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Provenance."""

    def __post_init__(self) -> None:
        _check_attrs(self.attrs)
        values = _frozen(self.values, "mask", None)
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > 1:
            raise ValuesError(
                f"mask values run from {low:.4g} to {high:.4g}; transmission lies in [0, 1]. "
                "Divide by the flat field, or by the maximum."
            )
        object.__setattr__(self, "values", values)
        if self.wavelengths is not None:
            if values.ndim != 3:
                raise ShapeError("wavelengths were given for a mask with a single plane.")
            checked = check_wavelengths(self.wavelengths, values.shape[0])
            object.__setattr__(self, "wavelengths", checked)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.values.shape[-2]), int(self.values.shape[-1])

    @property
    def hash(self) -> str:
        """Short, stable id of the values."""
        return array_hash(self.values)

    def to_xarray(self) -> xarray.Dataset:
        """The mask as an `xarray.Dataset`."""
        from prismask.scenes.labelled import to_dataset

        return to_dataset(self)


@dataclass(frozen=True, eq=False)
class Measurement:
    """One coded snapshot as the sensor recorded it."""

    values: Array
    """Signal `(H, W)`, float32; the width or height includes the dispersion."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Provenance."""

    def __post_init__(self) -> None:
        _check_attrs(self.attrs)
        object.__setattr__(self, "values", _frozen(self.values, "measurement", ("H", "W")))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width on the sensor."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def hash(self) -> str:
        """Short, stable id of the values."""
        return array_hash(self.values)

    def to_xarray(self) -> xarray.Dataset:
        """The measurement as an `xarray.Dataset`."""
        from prismask.scenes.labelled import to_dataset

        return to_dataset(self)


Record = Cube | Mask | Measurement


def array_hash(values: NDArray[Any]) -> str:
    """First 12 hex digits of SHA-256 over shape and float32 values."""
    array = np.ascontiguousarray(values, dtype="<f4")
    digest = hashlib.sha256(size_text(array.shape).encode())
    digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def check_wavelengths(wavelengths: Any, bands: int) -> NDArray[np.float64]:
    """Wavelengths as a read-only ascending float64 array of the right length."""
    try:
        values = np.array(wavelengths, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as problem:
        raise ValuesError(f"wavelengths are not a list of numbers: {problem}.") from problem
    check_shape(values, (bands,), "wavelengths")
    check_finite(values, "wavelengths")
    if np.any(np.diff(values) <= 0):
        raise ValuesError(
            "wavelengths are not ascending: sort them together with the bands "
            "(order = wavelengths.argsort(); values = values[order])."
        )
    if values[0] <= 0:
        raise ValuesError(f"a wavelength of {values[0]:g} nm is not possible.")
    values.flags.writeable = False
    return values


def _check_attrs(attrs: Any) -> None:
    if not isinstance(attrs, Mapping):
        raise ValuesError(f"the provenance is {attrs!r:.80}; a dictionary is needed.")


def _check_interval(values: Array, lower: Array | None, upper: Array | None) -> None:
    """Raise unless lower ≤ value ≤ upper everywhere: no other ends are those of an error bar."""
    for name, wrong in (
        ("lower end above", None if lower is None else lower > values),
        ("upper end below", None if upper is None else upper < values),
    ):
        if wrong is not None and wrong.any():
            band, row, column = (int(k) for k in np.argwhere(wrong)[0])
            raise ValuesError(
                f"the interval of the cube has its {name} the value itself at "
                f"{int(wrong.sum())} of {wrong.size} places, first in band {band} at row {row}, "
                f"column {column}: it is not that of these values."
            )


def _frozen(values: Any, name: str, spec: tuple[str | int, ...] | None) -> Array:
    """A read-only float32 copy of `values`, checked; None stands for H×W or C×H×W."""
    try:
        array = np.asarray(values)
    except ValueError as problem:
        raise ValuesError(f"{name} is no array of numbers: {problem}.") from problem
    if array.dtype.kind not in "fiub":
        raise ValuesError(f"{name} holds {array.dtype} values; real numbers are needed.")
    spec = spec or (("H", "W") if array.ndim == 2 else ("C", "H", "W"))
    check_shape(array, spec, name)
    check_finite(array, name)
    array = np.array(array, dtype=np.float32, order="C")
    check_finite(array, f"{name} as float32")
    array.flags.writeable = False
    return array
