"""Numbers in files to the units Prismask works in: fractions of full scale, and nanometres."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError, ValuesError

if TYPE_CHECKING:
    from prismask.scenes.records import Array, Measurement

FULL_SCALE = {"u1": 255, "u2": 65535, "i1": 127, "i2": 32767}
"""What counts as 1 for each integer type that sensors and images use."""

COUNTS = "full_scale_counts"
"""What a record notes that was read from integers: the count that became 1."""

KAIST_FULL_SCALE = 65536
"""TSA-Net's training files hold `img` and `img_expand` in 65536ths of full scale."""

_NANOMETRES = {
    "nm": 1.0, "nanometer": 1.0, "nanometers": 1.0, "nanometre": 1.0, "nanometres": 1.0,
    "um": 1e3, "µm": 1e3, "μm": 1e3, "micron": 1e3, "microns": 1e3, "micrometer": 1e3,
    "micrometers": 1e3, "micrometre": 1e3, "micrometres": 1e3,
    "mm": 1e6, "m": 1e9, "angstrom": 0.1, "angstroms": 0.1, "å": 0.1,
}  # fmt: skip

LEAST_NM, MOST_NM = 100.0, 1e5
"""Wavelengths of optical bands."""

_NO_UNITS = ("", "unknown", "1")


def to_fraction(values: NDArray[Any]) -> NDArray[Any]:
    """Values as fractions of full scale.

    Floating-point values are taken as they stand. 8- and 16-bit integers are divided by the
    largest number of their type. Integers that are only 0 and 1 (a binary mask) are taken as
    they stand, whatever the type. Wider integers have no known full scale and are refused.
    """
    if values.dtype.kind not in "iu" or values.size == 0:
        return values
    low, high = int(values.min()), int(values.max())
    if low >= 0 and high <= 1:
        return values.astype(np.float32)
    full = FULL_SCALE.get(values.dtype.str[1:])
    if full is None:
        raise ValuesError(
            f"values are {values.dtype} from {low} to {high}, and such integers have no known "
            "full scale. Divide them by it and store them as floating point, or use uint8 or "
            "uint16, which are divided by 255 and 65535."
        )
    return values.astype(np.float32) / np.float32(full)


def full_count(values: NDArray[Any]) -> int | None:
    """The count that `to_fraction` makes 1; None where the numbers are not counts."""
    if values.dtype.kind not in "iu" or values.size == 0:
        return None
    is_binary = int(values.min()) >= 0 and int(values.max()) <= 1
    return 1 if is_binary else FULL_SCALE.get(values.dtype.str[1:])


def noted_counts(attrs: Mapping[str, Any]) -> int | None:
    """What the integers of a record were divided by, if it came from such."""
    noted = attrs.get(COUNTS)
    return int(noted) if noted in (1, *FULL_SCALE.values()) else None


def unscaled(measurement: Measurement) -> Array:
    """The measurement in the cube's units, `values / scale`, `(H, L)`; as is if none is known."""
    scale = noted_scale(measurement)
    return measurement.values / scale if scale != 1.0 else measurement.values


def noted_scale(measurement: Measurement) -> float:
    """The exposure that `simulate` noted, 1 where none is.

    In other people's files `scale` may be that of a map or of a pixel; ours comes with its rule.
    """
    attrs = measurement.attrs
    if "scale" not in attrs or "scale_rule" not in attrs:
        return 1.0
    scale = attrs["scale"]
    if not isinstance(scale, Real) or not 0 < float(scale) < math.inf:
        raise FormatError(f"the measurement's scale is {scale!r}; it is a number above 0.")
    return float(scale)


def kaist_to_fraction(values: NDArray[Any]) -> NDArray[Any]:
    """`img` and `img_expand` of TSA-Net files: 65536ths when large, else as any other array.

    The test scenes hold fractions under the same name, so floating-point values are divided only
    where they exceed 256, which no fraction does. Theirs are cubes: a frame of that name is
    from elsewhere, in units of its own.
    """
    counts = values.dtype.str[1:] == "u2" or (
        values.dtype.kind == "f" and values.size > 0 and values.max() > 256
    )
    if values.ndim != 3 or not counts:
        return to_fraction(values)
    scaled: NDArray[Any] = values.astype(np.result_type(values.dtype, np.float32))
    scaled /= KAIST_FULL_SCALE
    return scaled


def to_nanometres(wavelengths: Any, units: str | None = None) -> NDArray[np.float64]:
    """Wavelengths in nanometres, from the unit named in the file.

    Without a unit, numbers that are all below 100 are taken as micrometres: no optical band lies
    under 100 nm.
    """
    values = np.asarray(wavelengths, dtype=np.float64).reshape(-1)
    word = _word(units)
    if word in _NO_UNITS:
        factor = 1e3 if values.size and np.abs(values).max() < LEAST_NM else 1.0
    elif word in _NANOMETRES:
        factor = _NANOMETRES[word]
    else:
        raise FormatError(
            f"wavelengths are in {units!r}; known are nm, µm, mm, m and Å. Give the wavelengths "
            "yourself (wavelengths=…), in nanometres."
        )
    # 0.4533 µm is 453.3 nm, not 453.29999999999995.
    return values if factor == 1.0 else np.round(values * factor, 6)


def check_nanometres(wavelengths: Sequence[float] | NDArray[np.float64]) -> None:
    """Raise `ValuesError` with the factor that is missing, if people give another unit than nm."""
    low, high = float(np.min(wavelengths)), float(np.max(wavelengths))
    if not low < LEAST_NM:
        return
    for factor, unit in ((1e3, "µm"), (1e6, "mm"), (1e9, "m")):
        if low * factor >= LEAST_NM and high * factor < MOST_NM:
            raise ValuesError(
                f"wavelengths run from {low:g} to {high:g}, and no optical band lies below "
                f"{LEAST_NM:g} nm. In {unit}? Then multiply them by {factor:g}: "
                f"{low * factor:g} to {high * factor:g} nm."
            )
    raise ValuesError(
        f"wavelengths run from {low:g} to {high:g}; they are in nm, and no optical band lies below "
        f"{LEAST_NM:g} nm."
    )


def is_length(units: str | None) -> bool:
    """Whether a unit is one of wavelengths."""
    return _word(units) in _NANOMETRES


def without_units(units: str | None) -> bool:
    """Whether a file leaves the unit open."""
    return _word(units) in _NO_UNITS


def is_count(values: Any) -> bool:
    """Whether numbers are merely 0, 1, 2 … or 1, 2, 3 …: they count something."""
    flat = np.asarray(values).reshape(-1)
    return flat.size > 0 and any(
        np.array_equal(flat, np.arange(first, first + flat.size)) for first in (0, 1)
    )


def _word(units: str | None) -> str:
    return (units or "").strip().lower()
