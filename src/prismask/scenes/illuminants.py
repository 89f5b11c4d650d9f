"""Lamps with lines: the CIE's fluorescent, discharge and LED illuminants, in the bands of a camera.

`standards.illuminant_at` knows more lights, but needs colour-science; these lie beside this file.
A camera's band collects all light between its edges, and a lamp's line is narrower than that:
sampled at the centre it would be missed, or counted for the whole band. So power is averaged over
each band, whose edges lie halfway between its neighbours' centres.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.checks import choose
from prismask.scenes.records import check_wavelengths

Values = NDArray[np.float64]

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
