"""Files of spectral libraries, told apart by what they hold, not by their names.

ENVI (.sli beside its .hdr), tables in CSV, and ECOSTRESS text. All are read with NumPy and plain
text handling; sizes that a file states are checked against what it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import DataMissingError, FormatError
from prismask.scenes.formats.contents import reading
from prismask.scenes.formats.envi import TYPES
from prismask.scenes.formats.envi_header import numbers, parse_header, whole
from prismask.scenes.formats.limits import MOST_TEXT_BYTES, check_claim, file_size
from prismask.scenes.libraries import SpectralLibrary, as_library
from prismask.scenes.spectra import Spectrum
from prismask.scenes.units import to_nanometres

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
            f"{path} is no text, and no ENVI header lies beside it. Spectral libraries are .sli "
            "with .hdr, CSV, or ECOSTRESS text."
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
            f"{path} is no table of spectra: each line needs a wavelength and a value per "
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
