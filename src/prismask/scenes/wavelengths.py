"""Which numbers in a file are the wavelengths of an array.

Formats such as ENVI and TIFF state them, and so do our own files. In others a variable is merely
called `lambda` or `bands`, and may as well be the weight of a regulariser or a count: it is taken
for the wavelengths if it is a list as long as one of the array's sides.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import ConfigError, PrismaskError, ValuesError
from prismask.scenes.formats.contents import Contents, Listed, Variable, own_name
from prismask.scenes.formats.limits import MOST_WAVELENGTHS
from prismask.scenes.formats.text import printable
from prismask.scenes.records import Cube, check_wavelengths
from prismask.scenes.units import is_count, to_nanometres, without_units

logger = logging.getLogger(__name__)

WAVELENGTH_NAMES = (
    "wavelength", "wavelengths", "wavelength_nm", "wavelengths_nm", "lambda", "lambdas", "wl",
    "bands",
)  # fmt: skip
"""Names under which wavelengths are found, in the order they are looked for."""

_LEAST_UM, _LEAST_NM = 0.1, 100.0
"""No optical band lies under 100 nm."""


def may_be_wavelengths(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a variable has such a name, and is a list or a single number."""
    return name.lower() in WAVELENGTH_NAMES and may_be_list(shape)


def may_be_list(shape: tuple[int, ...]) -> bool:
    """Whether an array is a list or a single number, and no longer than wavelengths are."""
    return sum(size != 1 for size in shape) <= 1 and math.prod(shape) <= MOST_WAVELENGTHS


def find_wavelengths(
    contents: Contents, variable: Variable, shape: tuple[int, ...]
) -> Listed | None:
    """The wavelengths of a variable that was read with that shape, as the file has them.

    None if it has none. Of several lists that fit, one along the axis where the format has the
    bands comes first, then one in the same group of the file or in none, then the order of
    `WAVELENGTH_NAMES` decides; other names come last.
    """
    if contents.wavelengths is not None:
        return stated_wavelengths(contents)
    axis = variable.band_axis
    fitting = [listed for listed in contents.listed if _fits(contents, listed, shape, axis)]
    return min(
        fitting,
        key=lambda listed: (
            len(listed.values) != shape[axis], _distance(listed, variable), _rank(listed)
        ),
        default=None,
    )  # fmt: skip


def stated_wavelengths(contents: Contents) -> Listed | None:
    """The wavelengths that a file states, whichever of its arrays is meant."""
    if contents.wavelengths is None:
        return None
    listed = Listed("", contents.wavelengths, contents.wavelength_units)
    return None if _counts_bands(contents, listed) else listed


def in_nanometres(listed: Listed, bands: int) -> NDArray[np.float64]:
    """The wavelengths of so many bands, checked; an error names the variable they come from."""
    try:
        return check_wavelengths(to_nanometres(listed.values, _units(listed)), bands)
    except PrismaskError as problem:
        if not listed.name:
            raise
        raise type(problem)(
            f"{problem} These are the numbers of the variable {listed.name!r}; "
            "--wavelengths replaces them."
        ) from problem


def _distance(listed: Listed, variable: Variable) -> int:
    """0: in the variable's own group; 1: in none; 2: in another."""
    group = listed.name.rpartition("/")[0]
    return 0 if group == variable.name.rpartition("/")[0] else 1 if not group else 2


def _rank(listed: Listed) -> int:
    name = own_name(listed.name)
    return WAVELENGTH_NAMES.index(name) if name in WAVELENGTH_NAMES else len(WAVELENGTH_NAMES)


def _fits(contents: Contents, listed: Listed, shape: tuple[int, ...], band_axis: int) -> bool:
    if _counts_bands(contents, listed):
        return False
    if listed.values.size == 1 and without_units(_units(listed)):
        # MATLAB has no other scalars. Where the bands are elsewhere, it must be nm beyond doubt.
        least = _LEAST_UM if shape[band_axis] == 1 else _LEAST_NM
        return 1 in shape and listed.values.item() >= least
    if listed.values.size in shape:
        return True
    if listed.values.size > 1:
        logger.warning(
            "%s: %s lists %d numbers, none of the sides of %s: not taken for its wavelengths.",
            contents.source, printable(listed.name), listed.values.size, size_text(shape),
        )  # fmt: skip
    return False


def _counts_bands(contents: Contents, listed: Listed) -> bool:
    """Whether it says 1, 2, 3 … of no unit."""
    counts = without_units(_units(listed)) and is_count(listed.values)
    if counts:
        name = printable(listed.name) or "wavelength"
        logger.info("%s: %s counts the bands, it says no wavelengths.", contents.source, name)
    return counts


def _units(listed: Listed) -> str | None:
    return "nm" if listed.name.lower().endswith("_nm") else listed.units


MOST_NM_BESIDE = 20.0
"""How far beyond the first and last band a wavelength may lie and still mean that band."""


def check_number(wavelength: Any) -> None:
    """Raise `ConfigError` unless it is a number, or an array of them."""
    if np.asarray(wavelength).dtype.kind not in "fiu":
        raise ConfigError(f"a wavelength is {wavelength!r:.40}; give a number in nm, such as 550.")


def nearest_band(cube: Cube, wavelength: float) -> int:
    """The number of the band nearest to a wavelength in nm; far beyond the ends is refused."""
    at = cube.wavelengths
    if at is None:
        raise ValuesError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown. Give them: "
            "Cube(values, wavelengths=[…]), or take a band by its number: cube.values[0]."
        )
    check_number(wavelength)
    if not at[0] - MOST_NM_BESIDE <= wavelength <= at[-1] + MOST_NM_BESIDE:
        raise ConfigError(
            f"the wavelength is {wavelength:g} nm; this cube runs from {at[0]:g} to {at[-1]:g} nm."
        )
    return int(np.abs(at - wavelength).argmin())
