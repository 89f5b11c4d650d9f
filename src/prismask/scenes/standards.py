"""Published colorimetric tables, and lamps in the bands of a camera.

The observer, which every picture needs, lies beside this file. Lights and the ColorChecker come
from colour-science on first use: importing it takes a second or two, warns about optional parts
that are not installed, and changes how NumPy prints; none of this may leak into a program that
only wants a picture, so the import happens here and nowhere else.

Lamps with lines (the CIE's fluorescent, discharge and LED illuminants) lie beside this file too;
`illuminant_at` knows more lights, but needs colour-science. A camera's band collects all light
between its edges, and a lamp's line is narrower than that: sampled at the centre it would be
missed, or counted for the whole band. So power is averaged over each band, whose edges lie halfway
between its neighbours' centres.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.checks import choose
from prismask.errors import MissingPartError
from prismask.scenes.records import check_wavelengths

Values = NDArray[np.float64]

OBSERVER = Path(__file__).with_name("cie_1931.csv")
EQUAL_ENERGY = "E"
"""The light with the same power at every wavelength."""


@cache
def observer() -> tuple[Values, Values]:
    """CIE 1931 2° observer: wavelengths `(N,)` in nm and x̄, ȳ, z̄ as `(3, N)`."""
    table = np.loadtxt(OBSERVER, delimiter=",", comments="#")
    return _kept(table[:, 0]), _kept(table[:, 1:].T)


def observer_at(wavelengths: ArrayLike) -> Values:
    """x̄, ȳ, z̄ at `wavelengths (C,)` in nm, `(3, C)`; zero outside the table."""
    at = np.asarray(wavelengths, dtype=np.float64)
    known, functions = observer()
    return np.stack([np.interp(at, known, row, left=0.0, right=0.0) for row in functions])


@cache
def illuminant_names() -> tuple[str, ...]:
    """Names that `illuminant_at` accepts, such as `D65`, `A`, `FL2` or `LED-B3`."""
    return tuple(str(name) for name in _colour().SDS_ILLUMINANTS)


def illuminant_at(name: str, wavelengths: ArrayLike) -> Values:
    """Relative power of a CIE illuminant at `wavelengths (C,)` in nm, largest value 1."""
    from prismask.checks import choose

    at = np.asarray(wavelengths, dtype=np.float64)
    if name == EQUAL_ENERGY:
        return np.ones_like(at)
    known, power = _illuminant(choose(name, illuminant_names(), "illuminant"))
    values = np.interp(at, known, power)
    return np.asarray(values / values.max())


@cache
def _illuminant(name: str) -> tuple[Values, Values]:
    table = _colour().SDS_ILLUMINANTS[name]
    return _kept(table.wavelengths), _kept(table.values)


@cache
def _colour_checker() -> tuple[tuple[str, ...], Values, Values]:
    chart = _colour().SDS_COLOURCHECKERS["ISO 17321-1"]
    names = tuple(str(name) for name in chart)
    wavelengths = _kept(chart[names[0]].wavelengths)
    return names, wavelengths, _kept(np.stack([chart[name].values for name in names]))


def colour_checker_names() -> tuple[str, ...]:
    """Names of the 24 patches, row by row from "dark skin" to "black 2 (1.5 D)"."""
    return _colour_checker()[0]


def colour_checker_at(wavelengths: ArrayLike) -> Values:
    """Measured reflectance of the 24 ColorChecker patches (ISO 17321-1), `(24, C)`."""
    at = np.asarray(wavelengths, dtype=np.float64)
    _, known, reflectances = _colour_checker()
    return np.stack([np.interp(at, known, row) for row in reflectances])


@cache
def _colour() -> ModuleType:
    import warnings

    try:
        with warnings.catch_warnings(), np.printoptions():
            warnings.simplefilter("ignore")
            import colour
    except ImportError as error:
        raise MissingPartError(
            "colour-science is needed for colour and standard spectra; install it with "
            "`pip install colour-science`."
        ) from error
    module: ModuleType = colour
    return module


def _kept(values: Any) -> Values:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


LAMPS = Path(__file__).with_name("cie_lamps.csv")
SAMPLES = 64
"""Points at which a band is averaged: much closer than the table's 5 nm."""


@cache
def lamp_names() -> tuple[str, ...]:
    """Names of the lamps, such as `FL11`, `HP3` or `LED-RGB1`."""
    return _table()[0]


def lamp_in_bands(name: str, wavelengths: ArrayLike) -> Values:
    """Mean relative power of a lamp in bands with these centres `(C,)` in nm, largest value 1.

    Beyond the table (380 to 780 nm) its last value goes on.
    """
    names, known, powers = _table()
    row = powers[names.index(choose(name, names, "lamp"))]
    low, high = band_edges(wavelengths)
    inside = (np.arange(SAMPLES) + 0.5) / SAMPLES
    at = low[:, None] + (high - low)[:, None] * inside
    values = np.interp(at, known, row).mean(1)
    return np.asarray(values / values.max())


def band_edges(wavelengths: ArrayLike) -> tuple[Values, Values]:
    """Lower and upper edge `(C,)` of each band, halfway to its neighbours; a lone one has 10 nm."""
    given = np.asarray(wavelengths, dtype=np.float64)
    centres = check_wavelengths(given, given.size)
    if centres.size == 1:
        return centres - 5.0, centres + 5.0
    middles = (centres[1:] + centres[:-1]) / 2
    first, last = 2 * centres[0] - middles[0], 2 * centres[-1] - middles[-1]
    edges = np.concatenate([[first], middles, [last]])
    return edges[:-1], edges[1:]


@cache
def _table() -> tuple[tuple[str, ...], Values, Values]:
    """Names, wavelengths `(N,)` and power `(lamps, N)`."""
    lines = LAMPS.read_text(encoding="utf-8").splitlines()
    header, *rows = [line for line in lines if not line.startswith("#")]
    table = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    table.flags.writeable = False
    return tuple(header.split(",")[1:]), table[:, 0], table[:, 1:].T
