"""Which variable of a file is the cube, the mask or the measurement, and which its wavelengths.

The order in which a file without instructions is understood:

1. what the file itself says (files written by Prismask state their kind);
2. the names of its variables (`NAMES`), a cube before a measurement before a mask;
3. names that merely contain "mask", "meas" or "snapshot"; the variable of a format without names
   (NPY, ENVI, TIFF, PNG) is called after the file, and that name counts only as long as nobody
   says what the file is;
4. dimensions: the only 3-D array is a cube, else the only 2-D array is a measurement.

Anything else is an error that lists what was found.

Wavelengths. Formats such as ENVI and TIFF state them, and so do our own files. In others a variable
is merely called `lambda` or `bands`, and may as well be the weight of a regulariser or a count: it
is taken for the wavelengths if it is a list as long as one of the array's sides.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import nearest, size_text
from prismask.errors import ConfigError, FormatError, PrismaskError, ShapeError, ValuesError
from prismask.scenes.formats.contents import (
    KINDS,
    MOST_WAVELENGTHS,
    PARTS,
    Contents,
    Kind,
    Listed,
    Variable,
    own_name,
    printable,
    reading,
)
from prismask.scenes.records import (
    Array,
    Cube,
    Mask,
    Measurement,
    Record,
    check_mask_std,
    check_wavelengths,
)
from prismask.scenes.units import COUNTS, full_count, is_count, to_nanometres, without_units

logger = logging.getLogger(__name__)

NAMES: dict[Kind, tuple[str, ...]] = {
    "cube": (
        "cube", "img", "img_expand", "truth", "gt", "hyper", "hsi", "rad", "radiance", "ref",
        "reflectance", "recon", "pred",
    ),
    "measurement": ("measurement", "meas", "meas_real", "snapshot", "y"),
    "mask": ("mask", "mask_3d", "mask3d", "coded_aperture"),
}  # fmt: skip
"""Names under which the field stores each kind, in the order they are looked for."""

DIMENSIONS: dict[Kind, tuple[int, ...]] = {"cube": (3,), "measurement": (2,), "mask": (2, 3)}
SHORTER = 1.5
"""How many times shorter than both others an axis is, if it is likely that of the bands."""
_LISTED, _NEAR = 40, 1000
"""How many variables a message lists, and among how many a similar name is looked for."""


def make_record(
    contents: Contents,
    kind: Kind | None = None,
    variable: str | None = None,
    wavelengths: Sequence[float] | NDArray[np.float64] | None = None,
) -> Record:
    """The record that `decide` finds in a file; `wavelengths` in nm replace the file's own."""
    chosen, kind = decide(contents, kind, variable)
    if len(chosen.shape) not in DIMENSIONS[kind]:
        raise ShapeError(
            f"{contents.source}: {chosen} has {len(chosen.shape)} dimensions; a {kind} has "
            f"{' or '.join(map(str, DIMENSIONS[kind]))}. {_advice(chosen.shape, kind)}"
        )
    values, full = _values_and_counts(contents, chosen)
    known = {"cube": PARTS, "mask": ("std",), "measurement": ()}[kind]
    companions = {part: contents.variables.get(f"{chosen.name}_{part}") for part in known}
    parts = {}
    for part, companion in companions.items():
        if companion is None or companion.note:
            continue
        # Before it is read: whoever limits what a record may hold has looked at the record alone.
        if prod(companion.shape) > prod(chosen.shape):
            raise ShapeError(
                f"{contents.source}: {companion} is larger than {chosen}, whose {part} it would be."
            )
        parts[part] = _values(contents, companion)
    attrs = contents.attrs
    if attrs is None:
        attrs = {"source": Path(contents.source).name, "variable": chosen.name}
    if kind == "measurement" and full is not None:
        attrs = {**attrs, COUNTS: full}
    with reading(contents.source, contents.format):
        if kind == "measurement":
            return Measurement(values, attrs)
        listed = None
        if values.ndim == 3 and wavelengths is not None:
            listed = Listed("", wavelengths, "nm")
        elif values.ndim == 3:
            listed = find_wavelengths(contents, chosen, values.shape)
        bands = None if listed is None else len(listed.values)
        if bands is None:
            warn_of_axes(contents, chosen, values)
        values = bands_first(values, chosen.band_axis, bands)
        parts = {part: bands_first(p, chosen.band_axis, bands) for part, p in parts.items()}
        stated = None if listed is None else in_nanometres(listed, len(values))
        if kind == "mask":
            return Mask(values, stated, attrs, **parts)
        return Cube(values, stated, attrs=attrs, **parts)


def read_mask_std(contents: Contents) -> Array:
    """How far a mask may be wrong: what `mask_std` is to `mask`, or else what would be the mask."""
    chosen, _ = decide(contents, "mask")
    chosen = contents.variables.get(f"{chosen.name}_std", chosen)
    values = bands_first(_values(contents, chosen), chosen.band_axis)
    with reading(contents.source, contents.format):
        return check_mask_std(values)


def decide(
    contents: Contents, kind: Kind | None = None, variable: str | None = None
) -> tuple[Variable, Kind]:
    """The variable to read and its kind; `FormatError` with a list when it is not clear."""
    if variable is not None:
        chosen = _named(contents, variable)
        spoken = name_kind(chosen.name) if contents.kind is None else contents.kind
        by_size: Kind = "cube" if len(chosen.shape) == 3 else "measurement"
        return chosen, kind or spoken or by_size
    wanted: Kind
    for wanted in [kind] if kind else _order(contents):
        hinted = [v for v in _candidates(contents, wanted, kind) if name_kind(v.name) == wanted]
        for found in (_known(contents, wanted), hinted):
            if len(found) == 1:
                return found[0], wanted
    # A 2-D array that nothing calls a mask is a measurement.
    for wanted in [kind] if kind else _order(contents)[:2]:
        found = _candidates(contents, wanted, kind)
        if len(found) == 1:
            return found[0], wanted
        if found:
            break
    raise FormatError(_no_choice(contents, kind))


def name_kind(name: str) -> Kind | None:
    """The kind that a variable's name speaks for, if any."""
    word = own_name(name)
    for kind in KINDS:
        if word in NAMES[kind]:
            return kind
    if "mask" in word:
        return "mask"
    return "measurement" if "meas" in word or "snapshot" in word else None


def bands_first(values: NDArray[Any], band_axis: int = 0, bands: int | None = None) -> NDArray[Any]:
    """Move the bands of a 3-D array to the front; two dimensions stay.

    They lie along `band_axis`, unless the number of wavelengths `bands` is known, does not fit
    there, and fits exactly one other axis.
    """
    if values.ndim != 3:
        return values
    fitting = [axis for axis, size in enumerate(values.shape) if size == bands]
    if values.shape[band_axis] != bands and len(fitting) == 1:
        band_axis = fitting[0]
    return np.moveaxis(values, band_axis, 0)


def other_band_axis(shape: tuple[int, ...], band_axis: int = 0) -> str:
    """What to say where another axis than that of the bands is by far the shortest, or nothing."""
    if len(shape) != 3:
        return ""
    band_axis %= 3
    short = min(range(3), key=lambda axis: shape[axis])
    longer = min(size for axis, size in enumerate(shape) if axis != short)
    if short == band_axis or SHORTER * shape[short] > longer:
        return ""
    bands = shape[band_axis]
    picture = size_text(size for axis, size in enumerate(shape) if axis != band_axis)
    return (
        f"{size_text(shape)} is read as {bands} bands of {picture} pixels, because bands come "
        f"{'first' if band_axis == 0 else 'last'}. If they are the {shape[short]} along axis "
        f"{short}, move that axis (numpy.moveaxis(values, {short}, {band_axis})), or give the "
        "wavelengths, one per band."
    )


def warn_of_axes(contents: Contents, variable: Variable, values: NDArray[Any]) -> None:
    """Log it where the bands of a file without wavelengths may lie along another axis."""
    text = other_band_axis(values.shape, variable.band_axis)
    if text:
        logger.warning("%s: %s", contents.source, text)


def listing(contents: Contents) -> str:
    """The variables of a file in one line."""
    shown = [str(variable) for variable in contents.variables.values()]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more if shown else "nothing"


def _order(contents: Contents) -> list[Kind]:
    kinds: list[Kind] = ["cube", "measurement", "mask"]
    return kinds if contents.kind is None else [contents.kind]


def _known(contents: Contents, kind: Kind) -> list[Variable]:
    """The first variable, in the order of `NAMES`, with a known name and fitting dimensions."""
    if contents.kind not in (None, kind):
        return []
    by_name = {name.lower(): variable for name, variable in contents.variables.items()}
    for name in NAMES[kind]:
        variable = by_name.get(name)
        if variable and not variable.note and len(variable.shape) in DIMENSIONS[kind]:
            return [variable]
    return []


def _candidates(contents: Contents, kind: Kind, asked: Kind | None) -> list[Variable]:
    """Variables that could be of that kind as far as names and dimensions go."""
    if contents.kind not in (None, kind):
        return []
    is_said = kind in (contents.kind, asked)
    found = [
        variable
        for variable in contents.variables.values()
        if not variable.note
        and len(variable.shape) in DIMENSIONS[kind]
        # `scene1_maskA.tif` is how somebody called a file, not what lies in it.
        and ((is_said and not variable.is_named) or _may_be(contents, variable.name, kind))
    ]
    # What lies in groups is mostly about what does not.
    found = [variable for variable in found if "/" not in variable.name] or found
    # MATLAB stores every number as 1×1 and every list as 1×N: rarely what is meant.
    return [variable for variable in found if 1 not in variable.shape] or found


def _may_be(contents: Contents, name: str, kind: Kind) -> bool:
    """Whether a name does not speak against a kind."""
    return not _is_companion(contents, name) and (
        contents.kind == kind or name_kind(name) in (None, kind)
    )


def _is_companion(contents: Contents, name: str) -> bool:
    """Wavelengths, error bars, and masks that are sheared already belong to something else."""
    base, _, part = name.rpartition("_")
    return (
        own_name(name) in WAVELENGTH_NAMES
        or (part in PARTS and (base in contents.variables or own_name(base) in NAMES["cube"]))
        or "shift" in own_name(name)
    )


def _named(contents: Contents, variable: str) -> Variable:
    # HDF5 writes the path of an array with a slash in front.
    chosen = contents.variables.get(variable) or contents.variables.get(variable.lstrip("/"))
    if chosen is None:
        raise FormatError(
            f"{contents.source} has no variable {variable!r}."
            f"{nearest(variable, islice(contents.variables, _NEAR))} Found: {listing(contents)}."
        )
    if chosen.note:
        raise FormatError(f"{contents.source}: {chosen} cannot be used.")
    return chosen


def _values(contents: Contents, variable: Variable) -> NDArray[Any]:
    return _values_and_counts(contents, variable)[0]


def _values_and_counts(contents: Contents, variable: Variable) -> tuple[NDArray[Any], int | None]:
    """Fractions of full scale, and how many counts that was, if the file holds counts."""
    with reading(contents.source, contents.format):
        raw = variable.read()
        return variable.to_fraction(raw), full_count(raw)


def read_pages(contents: Contents, variable: str | None) -> list[Measurement]:
    """The pages of a file as frames of one sensor, each a measurement."""
    chosen, _ = decide(contents, "cube", variable)
    values, full = _values_and_counts(contents, chosen)
    attrs = {"source": Path(contents.source).name}
    noted = attrs if full is None else {**attrs, COUNTS: full}
    with reading(contents.source, contents.format):
        return [Measurement(page, noted) for page in bands_first(values, chosen.band_axis)]


def _no_choice(contents: Contents, kind: Kind | None) -> str:
    usable = [v for v in contents.variables.values() if not v.note]
    start = f"{contents.source} ({contents.format})"
    found = f"Found: {listing(contents)}."
    if kind and contents.kind not in (None, kind):
        both = {contents.kind, kind} == {"mask", "measurement"}
        swapped = " Are snapshot and mask swapped?" if both else ""
        return f"{start} holds a {contents.kind}, not a {kind}. {found}{swapped}"
    if not usable and contents.variables:
        return f"{start} holds nothing that can be used. {found}"
    if contents.kind and len(usable) > 1:
        return f"{start} holds several. {found} Choose one with {_option(kind)}."
    dimensions = {len(v.shape) for v in usable}
    if kind and usable and not dimensions & set(DIMENSIONS[kind]):
        sizes = "; ".join(size_text(v.shape) for v in usable[:3])
        return (
            f"{start} holds no {kind}: a {kind} has "
            f"{' or '.join(map(str, DIMENSIONS[kind]))} dimensions, what is there has "
            f"{' or '.join(map(str, sorted(dimensions)))} ({sizes}). "
            f"{_advice(max((v.shape for v in usable), key=len), kind)} {found}"
        )
    known = ", ".join(NAMES[kind] if kind else [name for k in KINDS for name in NAMES[k]])
    several = len(_candidates(contents, kind or "cube", kind)) > 1
    trouble = "several arrays could be" if several else "no variable is known as"
    return (
        f"{start}: {trouble} the {kind or 'cube, mask or measurement'} (known names: {known}). "
        f"{found} Name one with {_option(kind)}."
    )


def _option(kind: Kind | None) -> str:
    """How one says which variable is meant; beside a snapshot or a scene, masks have their own."""
    return "--variable NAME" + (" (for --mask: --mask-variable NAME)" if kind == "mask" else "")


def planes_advice(shape: tuple[int, ...]) -> str:
    """What to do with planes `(N, H, W)` or `(H, W, N)` that came for a single measurement."""
    exposures = (
        "If its pages are exposures of one scene, give --average: their mean is then reconstructed."
    )
    if shape[-1] not in COLOUR_CHANNELS:
        return exposures
    return (
        f"{exposures} If it is the picture of a colour sensor, whose filters pass other "
        "wavelengths in every pixel: take snapshots with a monochrome one."
    )


COLOUR_CHANNELS = (3, 4)


def _advice(shape: tuple[int, ...], wanted: Kind) -> str:
    dimensions = len(shape)
    if dimensions == 3 and wanted == "measurement":
        return f"{planes_advice(shape)} Otherwise it is a cube, or a mask with a plane per band."
    if dimensions == 3:
        return "Three dimensions are a cube, or a mask with one plane per band: load it as such."
    if dimensions == 2:
        return "Two dimensions are a measurement or a mask: load it as such."
    return "Squeeze or split the array first."


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
