"""Spectral libraries: known materials, and which of them each pixel resembles.

Read are ENVI spectral libraries (.sli beside its .hdr), tables (CSV: wavelengths in the first
column, one column per material) and the text files of ECOSTRESS, one material each. They are told
apart by what they hold, not by their names, and read with NumPy and plain text handling; sizes that
a file states are checked against what it has. Spectra are compared at the bands of the cube,
interpolated linearly between the library's own wavelengths.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import check_finite
from prismask.errors import DataMissingError, FormatError, PrismaskWarning, ShapeError, ValuesError
from prismask.scenes.formats.contents import (
    MOST_TEXT_BYTES,
    check_claim,
    check_decoded,
    file_size,
    reading,
    record_bytes,
)
from prismask.scenes.formats.envi import TYPES, numbers, parse_header, whole
from prismask.scenes.records import Cube
from prismask.scenes.spectra import Spectrum, Values, axes_for
from prismask.scenes.units import to_nanometres

MOST_NM_BEYOND = 1.0
"""How far a band may lie beyond a library's spectrum that still covers it."""
NOTHING = -1
"""Number of the material in pixels that are none of them."""


@dataclass(frozen=True, eq=False, repr=False)
class SpectralLibrary:
    """Spectra of known materials; each may have wavelengths of its own."""

    spectra: tuple[Spectrum, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.spectra:
            raise ValuesError(f"{self.source or 'the library'} holds no spectra.")

    @property
    def names(self) -> list[str]:
        """Names of the materials."""
        return [one.name for one in self.spectra]

    def __len__(self) -> int:
        return len(self.spectra)

    def __iter__(self) -> Iterator[Spectrum]:
        return iter(self.spectra)

    def __getitem__(self, which: int | str) -> Spectrum:
        return self.spectra[self.names.index(which) if isinstance(which, str) else which]

    def __repr__(self) -> str:
        some = ", ".join(self.names[:3]) + (" …" if len(self) > 3 else "")
        return f"<SpectralLibrary of {len(self)} spectra: {some}>"

    def at(self, wavelengths: Values) -> SpectralLibrary:
        """The spectra that cover `wavelengths` in nm, at these; a warning names the others."""
        kept, left_out = [], []
        for one in self.spectra:
            values = _at(one, wavelengths)
            if values is None:
                left_out.append(one.name)
            else:
                kept.append(Spectrum(values, wavelengths, name=one.name))
        span = f"{wavelengths[0]:g} to {wavelengths[-1]:g} nm"
        if not kept:
            raise ValuesError(
                f"no spectrum of {self.source or 'the library'} covers the cube's bands from "
                f"{span}. Are its wavelengths in the unit it says?"
            )
        if left_out:
            more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
            text = f"{', '.join(left_out[:3])}{more} do not cover {span}, and are left out."
            warnings.warn(text, PrismaskWarning, stacklevel=3)
        return SpectralLibrary(tuple(kept), self.source)


@dataclass(frozen=True, eq=False, repr=False)
class MaterialMap:
    """Which material each pixel resembles most."""

    names: list[str]
    """Of the materials."""
    index: NDArray[np.int64]
    """Number of the material `(H, W)`; −1 where none is near enough."""
    angle: NDArray[np.float64]
    """Angle in degrees to the nearest material, `(H, W)`."""

    def __repr__(self) -> str:
        height, width = self.index.shape
        return f"<MaterialMap {height}×{width} of {len(self.names)} materials>"

    def shares(self) -> dict[str, float]:
        """The share of the pixels that each material has, the most frequent first."""
        found = {name: float((self.index == k).mean()) for k, name in enumerate(self.names)}
        listed = sorted(found.items(), key=lambda item: -item[1])
        return {name: share for name, share in listed if share > 0}

    def plot(self, ax: Any = None) -> Any:
        """Draw the map with a legend; gives the axes. Needs matplotlib (extra: report)."""
        ax = axes_for(ax)
        from matplotlib import colormaps
        from matplotlib.patches import Patch

        # Ten strong colours, then their ten pale ones; they begin again after that.
        order = np.array([*range(0, 20, 2), *range(1, 20, 2)])
        colours = colormaps["tab20"](order[np.arange(len(self.names)) % 20])
        nothing = np.array([[0.9, 0.9, 0.9, 1.0]])
        ax.imshow(np.concatenate([colours, nothing])[self.index], interpolation="nearest")
        shown = list(self.shares())[:20]
        handles = [Patch(color=colours[self.names.index(name)], label=name) for name in shown]
        ax.set(xlabel="x in pixels", ylabel="y in pixels")
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        return ax


def angles_to(cube: Cube, spectra: Any) -> NDArray[np.float64]:
    """Angles in degrees between the pixels and spectra; see `Cube.angle_to`."""
    wanted = _spectra_for(cube, spectra)
    pixels = _directions(cube.values.reshape(cube.bands, -1).astype(np.float64), axis=0)
    others = _directions(np.atleast_2d(wanted), axis=1)
    angles = np.stack([_angle(other, pixels) for other in others]).reshape(-1, *cube.size)
    return angles if wanted.ndim == 2 else angles[0]


def nearest_materials(cube: Cube, library: Any, limit: float | None = None) -> MaterialMap:
    """The nearest material of each pixel; see `Cube.nearest_material`."""

    if not isinstance(library, SpectralLibrary):
        library = load_library(library)
    ready = library.at(_wavelengths(cube))
    angles = angles_to(cube, ready)
    index, angle = angles.argmin(axis=0), angles.min(axis=0)
    if limit is not None:
        index = np.where(angle <= limit, index, NOTHING)
    return MaterialMap(ready.names, index.astype(np.int64), angle)


def ranked(spectrum: Spectrum, library: SpectralLibrary) -> list[tuple[str, float]]:
    """The materials with their angle in degrees to one spectrum, the nearest first."""
    here = _directions(spectrum.values[:, None], axis=0)
    found = []
    for one in library:
        (angle,) = _angle(_directions(one.values, axis=0), here)
        found.append((one.name, float(angle)))
    return sorted(found, key=lambda pair: pair[1])


def scaled_to(material: Spectrum, spectrum: Spectrum) -> tuple[Spectrum, float]:
    """A material at the brightness of a spectrum, and the factor: angles ignore brightness."""
    length = float(np.linalg.norm(material.values))
    factor = float(np.linalg.norm(spectrum.values)) / length if length > 0 else 1.0
    return replace(material, values=material.values * factor), factor


def _spectra_for(cube: Cube, spectra: Any) -> Values:
    """Spectra `(C,)` or `(N, C)` at the cube's bands."""
    if isinstance(spectra, Spectrum) and spectra.wavelengths is not None:
        if cube.wavelengths is None or np.array_equal(spectra.wavelengths, cube.wavelengths):
            wanted = spectra.values
        else:
            wanted = SpectralLibrary((spectra,)).at(cube.wavelengths)[0].values
    elif isinstance(spectra, SpectralLibrary):
        is_ready = all(one.wavelengths is cube.wavelengths for one in spectra)
        ready = spectra if is_ready else spectra.at(_wavelengths(cube))
        wanted = np.stack([one.values for one in ready])
    else:
        wanted = np.asarray(spectra, dtype=np.float64)
    if wanted.ndim not in (1, 2) or wanted.shape[-1] != cube.bands:
        raise ShapeError(
            f"the spectra have the shape {'×'.join(map(str, wanted.shape))}, and this cube has "
            f"{cube.bands} bands: give one spectrum of that length, or several as N×{cube.bands}."
        )
    check_finite(wanted, "spectra")
    return wanted


def _wavelengths(cube: Cube) -> Values:
    if cube.wavelengths is None:
        raise ValuesError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown, so no library can be "
            "compared with it. Give them: load_cube(path, wavelengths=[…])."
        )
    return cube.wavelengths


def _at(one: Spectrum, wavelengths: Values) -> Values | None:
    at = one.wavelengths
    if at is None:
        return one.values if len(one.values) == len(wavelengths) else None
    if wavelengths[0] < at[0] - MOST_NM_BEYOND or wavelengths[-1] > at[-1] + MOST_NM_BEYOND:
        return None
    return np.interp(wavelengths, at, one.values)


def _directions(spectra: Values, axis: int) -> Values:
    """Spectra of length 1; those of zeros stay zeros."""
    length = np.linalg.norm(spectra, axis=axis, keepdims=True)
    return np.asarray(spectra / np.where(length > 0, length, 1.0))


def _angle(one: Values, pixels: Values) -> Values:
    """Degrees between a direction `(C,)` and directions `(C, N)`, `(N,)`.

    Beside a spectrum of zeros 90°, between two of them 0°, as in the metric SAM.
    """
    if not one.any():
        return np.where(pixels.any(axis=0), 90.0, 0.0)
    # Twice the angle of chord against sum (Kahan) stays exact where arccos is noise.
    chord = np.linalg.norm(pixels - one[:, None], axis=0)
    total = np.linalg.norm(pixels + one[:, None], axis=0)
    return np.where(pixels.any(axis=0), np.degrees(2 * np.arctan2(chord, total)), 90.0)


def as_library(spectra: Sequence[Spectrum], source: str) -> SpectralLibrary:
    """A library of spectra, with names that occur twice told apart by a number."""
    seen: dict[str, int] = {}
    named = []
    for one in spectra:
        seen[one.name] = seen.get(one.name, 0) + 1
        name = one.name if seen[one.name] == 1 else f"{one.name} ({seen[one.name]})"
        named.append(Spectrum(one.values, one.wavelengths, name=name))
    return SpectralLibrary(tuple(named), Path(source).name if source else "")


_UNIT = re.compile(r"(nm|nanomet\w+|um|µm|μm|microns?|micromet\w+|angstroms?)\b", re.IGNORECASE)
_ENDS = (" lower", " upper")
"""Columns of our own tables that are error bands, not materials."""

Files = str | os.PathLike[str]


def load_library(files: Files | Sequence[Files]) -> SpectralLibrary:
    """The materials in a file, in several, or in all text and .sli files of a folder."""
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths = [path for one in given for path in _listed(Path(one))]
    spectra: list[Spectrum] = []
    for path in paths:
        with reading(path, "a spectral library"):
            spectra += _read(path)
    return as_library(spectra, str(given[0]) if given else "")


def _listed(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [p for p in sorted(path.iterdir()) if p.suffix.lower() in (".sli", ".csv", ".txt")]
    if not found:
        raise DataMissingError(f"{path} holds no spectral library: no .sli, .csv or .txt file.")
    return found


def _read(path: Path) -> list[Spectrum]:
    header = next(filter(_is_envi_header, _headers_for(path)), None)
    if header is not None:
        return _read_envi(header, path)
    if file_size(path) > MOST_TEXT_BYTES:
        raise FormatError(f"{path} is too large for a table of spectra.")
    raw = path.read_bytes()
    if b"\0" in raw:
        raise FormatError(
            f"{path} is not a text file and has no ENVI header. Spectral libraries are .sli with "
            ".hdr, CSV, or ECOSTRESS text."
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if re.search(r"^X Units:", text, re.MULTILINE | re.IGNORECASE):
        return [_read_ecostress(path, text)]
    return _read_table(path, text)


# --- ENVI ----------------------------------------------------------------------------------------


def _headers_for(path: Path) -> list[Path]:
    """Where the header of a library may lie; `path` may be the header itself."""
    if path.suffix.lower() == ".hdr":
        return [path]
    return [path.with_suffix(".hdr"), path.with_suffix(".HDR"), path.with_name(f"{path.name}.hdr")]


def _is_envi_header(header: Path) -> bool:
    if not header.is_file():
        return False
    with header.open("rb") as file:
        return file.read(4) == b"ENVI"


def _read_envi(header: Path, given: Path) -> list[Spectrum]:
    fields = parse_header(header)
    if "spectral library" not in fields.get("file type", "").lower():
        raise FormatError(
            f"{given} is an ENVI image, not a spectral library: its header says file type = "
            f"{fields.get('file type', 'nothing')}."
        )
    data = given if given != header else _data_beside(header)
    points, count = whole(header, fields, "samples"), whole(header, fields, "lines")
    code, order = whole(header, fields, "data type"), whole(header, fields, "byte order")
    if code not in TYPES or order not in (0, 1) or points < 1 or count < 1:
        raise FormatError(f"{header}: data type {code}, byte order {order}, {count}×{points}.")
    kind = np.dtype(("<", ">")[order] + TYPES[code])
    offset = whole(header, fields, "header offset", 0)
    claimed = offset + points * count * kind.itemsize
    check_claim(data, claimed, file_size(data), f"the header {header.name}")
    check_decoded(data, record_bytes((count, points), kind.itemsize), "its spectra")
    values = np.fromfile(data, kind, points * count, offset=offset).reshape(count, points)
    scale = numbers(header, fields, "reflectance scale factor") or [1.0]
    listed = numbers(header, fields, "wavelength", points)
    if listed is None:
        raise FormatError(f"{header} has no 'wavelength': nothing says where its spectra lie.")
    at = to_nanometres(listed, fields.get("wavelength units"))
    names = [name.strip() for name in fields.get("spectra names", "").split(",") if name.strip()]
    if len(names) != count:
        names = [f"spectrum {k + 1}" for k in range(count)]
    rows = values.astype(np.float64) / (scale[0] if scale[0] > 0 else 1.0)
    return [_spectrum(name, at, row, header) for name, row in zip(names, rows, strict=True)]


def _data_beside(header: Path) -> Path:
    for name in (header.stem, f"{header.stem}.sli", f"{header.stem}.SLI"):
        data = header.with_name(name)
        if data.is_file() and data != header:
            return data
    raise DataMissingError(f"{header} is an ENVI header, but no {header.stem}.sli is beside it.")


# --- text ----------------------------------------------------------------------------------------


def _read_ecostress(path: Path, text: str) -> Spectrum:
    """A header of `Key: value` lines, then two columns: wavelength and reflectance."""
    facts: dict[str, str] = {}
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and _is_number(words[0]) and _is_number(words[1]):
            rows.append((float(words[0]), float(words[1])))
        elif ":" in line:
            key, _, value = line.partition(":")
            facts.setdefault(key.strip().lower(), value.strip())
    if not rows:
        raise FormatError(f"{path} has the header of an ECOSTRESS file, but no numbers below it.")
    table = np.asarray(rows)
    unit = _UNIT.search(facts.get("x units", ""))
    at = to_nanometres(table[:, 0], unit[0] if unit else None)
    is_percent = "percent" in facts.get("y units", "").lower()
    values = table[:, 1] / (100.0 if is_percent else 1.0)
    return _spectrum(facts.get("name") or path.stem, at, values, path)


def _read_table(path: Path, text: str) -> list[Spectrum]:
    """Wavelengths in the first column, a material in each of the others."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise FormatError(f"{path} is empty.")
    mark = next((mark for mark in (";", "\t", ",") if mark in lines[-1]), None)
    cells = [[cell.strip().strip('"') for cell in line.split(mark)] for line in lines]
    has_header = not _is_number(cells[0][0])
    body = cells[1:] if has_header else cells
    width = len(body[0]) if body else 0
    if width < 2 or any(len(row) != width for row in body):
        raise FormatError(
            f"{path} is not a table of spectra: each line needs a wavelength and a value per "
            "material, separated by commas."
        )
    try:
        table = np.array([[float(cell) if cell else np.nan for cell in row] for row in body])
    except ValueError as problem:
        raise FormatError(f"{path}: {problem}; a table of spectra holds numbers.") from problem
    head = cells[0] if has_header else ["", *(f"{path.stem} {k}" for k in range(1, width))]
    if len(head) != width:
        raise FormatError(f"{path}: {len(head)} names stand above {width} columns.")
    unit = _UNIT.search(head[0].replace("_", " "))
    at = to_nanometres(table[:, 0], unit[0] if unit else None)
    return [
        _spectrum(name or f"column {k}", at, table[:, k], path)
        for k, name in enumerate(head)
        if k > 0 and not name.endswith(_ENDS)
    ]


def _spectrum(name: str, at: NDArray[Any], values: NDArray[Any], path: Path) -> Spectrum:
    """In ascending order, without what is missing and without wavelengths that come twice."""
    known = np.isfinite(at) & np.isfinite(values)
    at, first = np.unique(at[known], return_index=True)
    if len(at) < 2 or at[0] <= 0:
        raise FormatError(f"{path}: {name} has fewer than two values at known wavelengths.")
    return Spectrum(values[known][first], at, name=name)


def _is_number(word: str) -> bool:
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False
