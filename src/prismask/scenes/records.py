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
from prismask.scenes.units import check_nanometres

if TYPE_CHECKING:
    import xarray

    from prismask.scenes.colour import Exposure, Illuminant
    from prismask.scenes.libraries import MaterialMap, SpectralLibrary
    from prismask.scenes.regions import Where
    from prismask.scenes.spectra import Spectrum

Array = NDArray[np.float32]

MOST_MICROMETRES = 20.0
"""Wavelengths that all lie below are in µm, those of thermal cameras too."""


class _Labelled:
    """What all records have in common: they are arrays to NumPy, and show what they hold."""

    values: Array
    attrs: Mapping[str, Any]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width; of a measurement, on the sensor."""
        return int(self.values.shape[-2]), int(self.values.shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the values: `(C, H, W)` of a cube, `(H, W)` of most masks and measurements."""
        return tuple(int(size) for size in self.values.shape)

    @property
    def hash(self) -> str:
        """Short, stable id of the values."""
        return array_hash(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        from prismask.scenes.colour import summary

        return f"<{summary(self)}>"  # type: ignore[arg-type]  # one of the three

    def _repr_html_(self) -> str:
        """The record in a notebook: a thumbnail and the facts."""
        from prismask.scenes.colour import as_html

        return as_html(self)  # type: ignore[arg-type]  # one of the three

    def to_xarray(self) -> xarray.Dataset:
        """The record as an `xarray.Dataset` with dims `wavelength, y, x`, pixels counted from 0."""
        from prismask.scenes.conversion import to_dataset, with_pixels

        return with_pixels(to_dataset(self))  # type: ignore[arg-type]  # one of the three


@dataclass(frozen=True, eq=False, repr=False)
class Cube(_Labelled):
    """A hyperspectral image, with its error bar where one is known.

    >>> cube = Cube(np.ones((3, 4, 5)), wavelengths=[450, 550, 650])
    >>> cube
    <Cube 3 bands × 4×5, 450–650 nm>
    >>> np.asarray(cube).shape
    (3, 4, 5)
    """

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

    def rgb(
        self, illuminant: Illuminant | None = None, exposure: Exposure = "auto"
    ) -> NDArray[np.uint8]:
        """What the eye would see, sRGB `(H, W, 3)`; see `scenes.colour.to_srgb`."""
        from prismask.scenes.colour import to_srgb

        return to_srgb(self, illuminant, exposure)

    def band(self, wavelength: float) -> int:
        """The number of the band nearest to a wavelength in nm, counted from 0.

        >>> Cube(np.ones((3, 4, 5)), wavelengths=[450, 550, 650]).band(540)
        1
        """
        from prismask.scenes.formats.selection import nearest_band

        return nearest_band(self, wavelength)

    def sel(self, **labels: Any) -> xarray.DataArray:
        """What lies nearest to labels of `wavelength` (nm), `y` and `x`, or within slices of them.

        The error bar goes along as coordinates `cube_lower`, `cube_upper` and `cube_std`.

        >>> cube = Cube(np.ones((3, 4, 5)), wavelengths=[450, 550, 650])
        >>> cube.sel(wavelength=540).shape
        (4, 5)
        >>> cube.sel(wavelength=slice(500, 700), x=2).shape
        (2, 4)
        """
        from prismask.scenes.conversion import select

        return select(self, labels)

    def spectrum(self, where: Where, y: float | None = None) -> Spectrum:
        """The spectrum at a pixel, `spectrum(x, y)`, or the mean over a region.

        where: `(left, top, right, bottom)`, both ends included; corners `[(x, y), …]` of a
            polygon; a picture `(H, W)` of True and False; or a `Region` or `Polygon`.

        >>> cube = Cube(np.ones((3, 4, 5)), wavelengths=[450, 550, 650])
        >>> cube.spectrum(2, 1)
        <Spectrum x2 y1, 3 bands, 450–650 nm>
        >>> cube.spectrum((0, 0, 3, 3)).pixels
        16
        """
        from prismask.scenes.spectra import spectrum_of

        return spectrum_of(self, where, y)

    def angle_to(self, spectra: Spectrum | SpectralLibrary | Any) -> NDArray[np.float64]:
        """Angle in degrees between each pixel and a spectrum `(C,)`, as `(H, W)`.

        Several spectra `(N, C)`, or a library, give `(N, H, W)`. Angles ignore brightness.
        """
        from prismask.scenes.libraries import angles_to

        return angles_to(self, spectra)

    def nearest_material(
        self, library: SpectralLibrary | str | Any, limit: float | None = None
    ) -> MaterialMap:
        """For each pixel the material of a spectral library with the smallest angle.

        library: a `SpectralLibrary`, or files for `load_library`.
        limit: angle in degrees above which a pixel is none of them.
        """
        from prismask.scenes.libraries import nearest_materials

        return nearest_materials(self, library, limit)

    def plot(self, wavelength: float | None = None, ax: Any = None) -> Any:
        """Draw the cube as the eye sees it, or the band nearest to `wavelength` nm; gives the axes.

        Needs matplotlib (extra: report).
        """
        from prismask.scenes.colour import plot_cube

        return plot_cube(self, wavelength, ax)


@dataclass(frozen=True, eq=False, repr=False)
class Mask(_Labelled):
    """A calibrated coded aperture: transmission in [0, 1]."""

    values: Array
    """Transmission `(H, W)`, or one plane per band `(C, H, W)`, float32."""
    wavelengths: NDArray[np.float64] | None = None
    """Wavelength of each plane in nanometres, for a mask `(C, H, W)`."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Provenance."""
    std: Array | None = None
    """How far each value may be wrong, as a standard deviation: of the mask's shape, or one plane
    `(H, W)` for all bands; None if unknown."""

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
        if self.std is not None:
            object.__setattr__(self, "std", check_mask_std(self.std, values.shape))
        if self.wavelengths is not None:
            if values.ndim != 3:
                raise ShapeError("wavelengths were given for a mask with a single plane.")
            checked = check_wavelengths(self.wavelengths, values.shape[0])
            object.__setattr__(self, "wavelengths", checked)

    def plot(self, ax: Any = None) -> Any:
        """Draw it in grey with its scale; gives the axes. Needs matplotlib (extra: report)."""
        from prismask.scenes.colour import plot_plane

        return plot_plane(self, ax)


@dataclass(frozen=True, eq=False, repr=False)
class Measurement(_Labelled):
    """One coded snapshot as the sensor recorded it."""

    values: Array
    """Signal `(H, W)`, float32; the width or height includes the dispersion."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Provenance."""

    def __post_init__(self) -> None:
        _check_attrs(self.attrs)
        object.__setattr__(self, "values", _frozen(self.values, "measurement", ("H", "W")))

    def plot(self, ax: Any = None) -> Any:
        """Draw it in grey with its scale; gives the axes. Needs matplotlib (extra: report)."""
        from prismask.scenes.colour import plot_plane

        return plot_plane(self, ax)


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
    if values.ndim == 1 and len(values) != bands:
        raise ShapeError(
            f"{len(values)} wavelengths came for {bands} bands: list the centre of each band."
        )
    check_shape(values, (bands,), "wavelengths")
    check_finite(values, "wavelengths")
    if np.any(np.diff(values) <= 0):
        raise ValuesError(
            "wavelengths are not ascending: sort them together with the bands "
            "(order = wavelengths.argsort(); values = values[order])."
        )
    if values[0] <= 0:
        raise ValuesError(f"a wavelength of {values[0]:g} nm is not possible.")
    if values[-1] < MOST_MICROMETRES:
        check_nanometres(values)
    values.flags.writeable = False
    return values


def check_mask_std(
    given: Any, mask: tuple[int, ...] | None = None, name: str = "mask_std"
) -> Array:
    """How far a mask may be wrong, as a read-only float32 array `(H, W)` or `(C, H, W)`.

    mask: the shape of the mask that it belongs to, where that is known.
    """
    try:
        values = np.asarray(given)
    except ValueError as problem:
        raise ValuesError(f"{name} is not an array of numbers: {problem}.") from problem
    if values.dtype.kind in "fiub" and np.isnan(values).any():
        count = int(np.isnan(values).sum())
        raise ValuesError(
            f"{name} is NaN at {count} of {values.size} pixels. Where it is unknown how far the "
            "mask may be wrong, put the largest value that is known, or leave all of it out."
        )
    if mask is not None and values.shape not in (mask, mask[-2:]):
        fits = " or ".join(dict.fromkeys(size_text(shape) for shape in (mask, mask[-2:])))
        raise ShapeError(
            f"{name} is {size_text(values.shape) or 'a single number'} and its mask "
            f"{size_text(mask)}: {fits} is needed. Crop or turn it as the mask was."
        )
    array = _frozen(values, name, None)
    low, high = float(array.min()), float(array.max())
    if low < 0:
        raise ValuesError(
            f"{name} goes down to {low:.4g}; a standard deviation is 0 or more. Are these "
            "differences between two masks? Give their absolute values."
        )
    if high > 1:
        raise ValuesError(
            f"{name} goes up to {high:.4g}; a mask's values lie between 0 and 1, and so does their "
            "error. Divide it by what the mask was divided by."
        )
    return array


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
        raise ValuesError(f"{name} is not an array of numbers: {problem}.") from problem
    if array.dtype.kind not in "fiub":
        raise ValuesError(f"{name} holds {array.dtype} values; real numbers are needed.")
    spec = spec or (("H", "W") if array.ndim == 2 else ("C", "H", "W"))
    check_shape(array, spec, name)
    check_finite(array, name)
    array = np.array(array, dtype=np.float32, order="C")
    check_finite(array, f"{name} as float32")
    array.flags.writeable = False
    return array
