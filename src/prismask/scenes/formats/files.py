"""The one place to open and save cubes, masks and measurements, whatever the format.

    cube = load_cube("scene.mat")
    save(cube, "scene.nc")

Formats are recognised by content, not by extension (`formats`); which variable is meant is
decided by `selection`. Values come out as fractions of full scale (`units`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from prismask.checks import choose
from prismask.errors import PrismaskError, ValuesError
from prismask.scenes.formats.contents import (
    KINDS,
    PARTS,
    Contents,
    Kind,
    Listed,
    ReadLimits,
    reading,
    using,
    wavelengths_of,
)
from prismask.scenes.formats.registry import format_for_writing, identify
from prismask.scenes.formats.selection import (
    bands_first,
    decide,
    find_wavelengths,
    in_nanometres,
    make_record,
    read_mask_std,
    read_pages,
    stated_wavelengths,
    warn_of_axes,
)
from prismask.scenes.records import Array, Cube, Mask, Measurement, Record
from prismask.scenes.units import to_nanometres
from prismask.wording import told_in_python, worded

logger = logging.getLogger(__name__)

_BLOCK = 2**22
"""Values that are looked at together."""

Wavelengths = Sequence[float] | NDArray[np.float64]


@told_in_python
def load(
    path: str | Path,
    kind: Kind | None = None,
    variable: str | None = None,
    limits: ReadLimits | None = None,
) -> Record:
    """The cube, mask or measurement in a file; `kind` and `variable` say which, where unclear.

    How a file is understood without them is written in `prismask.scenes.formats.selection`.
    `limits` raise or lower what reading may take, see `prismask.scenes.formats.contents`.
    """
    return _load(Path(path), kind, variable, None, limits)


@told_in_python
def load_cube(
    path: str | Path,
    variable: str | None = None,
    wavelengths: Wavelengths | None = None,
    limits: ReadLimits | None = None,
) -> Cube:
    """The cube in a file; `wavelengths` in nm say what the file does not, or replace it."""
    return cast(Cube, _load(Path(path), "cube", variable, wavelengths, limits))


@told_in_python
def load_mask(
    path: str | Path,
    variable: str | None = None,
    wavelengths: Wavelengths | None = None,
    limits: ReadLimits | None = None,
) -> Mask:
    """The mask in a file; `wavelengths` in nm belong to a mask with one plane per band."""
    return cast(Mask, _load(Path(path), "mask", variable, wavelengths, limits))


@told_in_python
def load_mask_std(path: str | Path, limits: ReadLimits | None = None) -> Array:
    """How far a mask may be wrong, `(H, W)` or `(C, H, W)`: a file in any format of a mask.

    What a mask in it has as its `std`, or else what would be the mask.
    """
    path = Path(path)
    with using(limits), reading(path, "a record"):
        return read_mask_std(identify(path).read(path))


@told_in_python
def load_measurement(
    path: str | Path, variable: str | None = None, limits: ReadLimits | None = None
) -> Measurement:
    """The measurement in a file."""
    return cast(Measurement, _load(Path(path), "measurement", variable, None, limits))


@told_in_python
def load_exposures(
    path: str | Path, variable: str | None = None, limits: ReadLimits | None = None
) -> list[Measurement]:
    """The pages of a file, or its one frame, as exposures of one scene."""
    path = Path(path)
    with using(limits), reading(path, "a record"):
        contents = identify(path).read(path)
        named = [v for name, v in contents.variables.items() if variable in (None, name)]
        if not any(len(one.shape) == 3 and not one.note for one in named):
            return [cast(Measurement, make_record(contents, "measurement", variable))]
        return read_pages(contents, variable)


@told_in_python
def save(
    record: Record, path: str | Path, overwrite: bool = False, format: str | None = None
) -> None:
    """Write a record in the format of the extension, or in the one named.

    NetCDF (.nc), MATLAB (.mat) and .npz keep everything. TIFF and ENVI keep no error bar of a cube
    or mask, .npy keeps the values alone; what is lost is logged. `format="matlab7.3"` writes that
    instead of v5. An existing file stays unless `overwrite`, and whatever happens it is never half
    written.
    """
    if not isinstance(record, Cube | Mask | Measurement):
        raise ValuesError(
            f"save writes a Cube, a Mask or a Measurement, and {type(record).__name__} is none of "
            "them. Say what the numbers are: save(Cube(values, wavelengths=[…]), path)."
        )
    path = Path(path)
    chosen = format_for_writing(path, format)
    lost = [words for what in chosen.loses for words in _held(record, what)]
    if lost:
        logger.warning("%s: %s does not keep %s.", path, chosen.title, ", ".join(lost))
    chosen.write(record, path, overwrite)


@told_in_python
def describe(
    path: str | Path, limits: ReadLimits | None = None, variable: str | None = None
) -> dict[str, Any]:
    """What a file holds, for people: format, variables, and facts on the one that stands out.

    Keys: `path`, `format`, `bytes`, `kind`, `variable`, `variables`, `shape` (bands first),
    `minimum`, `maximum`, `not_finite`, `wavelengths`, `attrs`, `problem`. Those that depend on a
    choice are None where it is not clear, and `problem` says why; `variable` makes the choice.
    """
    path = Path(path)
    with using(limits), reading(path, "a record"):
        return _describe(path, variable)


def _describe(path: Path, variable: str | None) -> dict[str, Any]:
    contents = identify(path).read(path)
    summary: dict[str, Any] = {
        "path": str(path),
        "format": contents.format,
        "bytes": None if path.is_dir() else path.stat().st_size,
        "kind": contents.kind,
        "variable": None,
        "variables": [
            {"name": v.name, "shape": v.shape, "dtype": v.dtype, "note": v.note}
            for v in contents.variables.values()
        ],
        "shape": None,
        "minimum": None,
        "maximum": None,
        "not_finite": None,
        "wavelengths": None,
        "attrs": dict(contents.attrs or {}),
        "problem": None,
    }
    try:
        # A folder of scenes has wavelengths, whichever of them is meant.
        with reading(contents.source, contents.format):
            stated = stated_wavelengths(contents)
            if stated is not None:
                at = to_nanometres(stated.values, stated.units)
                summary["wavelengths"] = [float(w) for w in at]
        listed = _facts(contents, summary, variable)
        # What cannot be loaded is no fact: it is reported as the problem that loading would have.
        summary["wavelengths"] = None
        if listed is not None:
            with reading(contents.source, contents.format):
                at = in_nanometres(listed, summary["shape"][0])
            summary["wavelengths"] = [float(w) for w in at]
    except PrismaskError as problem:
        summary["problem"] = worded(str(problem))
    return summary


def _load(
    path: Path,
    kind: Kind | None,
    variable: str | None,
    wavelengths: Wavelengths | None,
    limits: ReadLimits | None,
) -> Record:
    if kind is not None:
        choose(kind, KINDS, "kind of record")
    with using(limits), reading(path, "a record"):
        return make_record(identify(path).read(path), kind, variable, wavelengths)


def _facts(contents: Contents, summary: dict[str, Any], named: str | None) -> Listed | None:
    """Fill in what depends on the choice of an array; give back its wavelengths as listed."""
    variable, kind = decide(contents, variable=named)
    listed = None
    with reading(contents.source, contents.format):
        values = variable.read()
        found, not_finite = _ends(values)
        # Of the ends alone: as fractions the whole may take several times the memory.
        ends = variable.to_fraction(found).reshape(-1)
        if values.ndim == 3 and kind != "measurement":
            listed = find_wavelengths(contents, variable, values.shape)
        bands = None if listed is None else len(listed.values)
        if bands is None:
            warn_of_axes(contents, variable, values)
        values = bands_first(values, variable.band_axis, bands)
    summary |= {
        "kind": kind,
        "variable": variable.name,
        "shape": values.shape,
        "minimum": float(ends[0]) if len(ends) else None,
        "maximum": float(ends[1]) if len(ends) else None,
        "not_finite": not_finite,
    }
    return listed


def _ends(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Least and largest finite value, with as many dimensions as `values`, and how many are not."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    step = max(1, _BLOCK // max(1, rows.shape[-1]))
    found, bad = [], 0
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        kept = block[np.isfinite(block)] if block.dtype.kind == "f" else block.reshape(-1)
        bad += block.size - kept.size
        if kept.size:
            found += [kept.min(), kept.max()]
    ends = np.array([min(found), max(found)] if found else [], values.dtype)
    return ends.reshape(len(ends), *[1] * max(0, values.ndim - 1)), bad


def _held(record: Record, what: str) -> list[str]:
    """What a record has of `std`, `wavelengths` or `attrs`, in the words of the documentation."""
    if what == "wavelengths":
        return ["the wavelengths"] if wavelengths_of(record) is not None else []
    if what == "attrs":
        return ["the history"] if record.attrs else []
    bar = {"std": "the spread", "lower": "the interval", "upper": "the interval"}
    return sorted({bar[part] for part in PARTS if getattr(record, part, None) is not None})
