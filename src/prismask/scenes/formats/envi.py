"""ENVI: raw numbers in one file, a text header that describes them in another.

Keeps values, wavelengths, kind and provenance; no error bar. Written as float32, band sequential,
little-endian. Integers count as fractions of their type's full scale, or of the header's
`reflectance scale factor` where it has one. Records have no place for missing values: a file that
has some, by its `data ignore value`, is refused with their number.

The two files are replaced so that no header ever stands beside data it does not describe, and one
version is whole at any moment (`atomic.write_together`, the header is the key file). `byte order`
is the last line of the headers we write and must be there, so a header cut short is noticed.

A header is text: `key = value` lines, where braces may span several. It is read here and not by
`spectral`, which knows no encoding but UTF-8, splits every list at its commas, our provenance too,
and takes time that grows with the square of a list's lines.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from prismask.errors import DataMissingError, FormatError, ValuesError
from prismask.scenes.atomic import file_of_swap, finish_swap, key_of_swap, write_together
from prismask.scenes.formats.contents import (
    MOST_TEXT_BYTES,
    Contents,
    Variable,
    as_kind,
    check_claim,
    check_decoded,
    file_size,
    from_json,
    kind_of,
    record_bytes,
    to_json,
    wavelengths_of,
)
from prismask.scenes.formats.registry import ENVI_DATA, header_beside
from prismask.scenes.records import Record
from prismask.scenes.units import to_fraction

logger = logging.getLogger(__name__)

TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
"""ENVI's numbers for the types it knows, less the complex ones (6 and 9)."""


class Layout(NamedTuple):
    """How the numbers lie in the data file."""

    dtype: np.dtype[Any]
    offset: int
    interleave: str
    bands: int
    lines: int
    samples: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sizes in the order of the file."""
        sizes = {"bsq": "bands lines samples", "bil": "lines bands samples"}
        names = sizes.get(self.interleave, "lines samples bands").split()
        first, second, third = (getattr(self, name) for name in names)
        return first, second, third

    @property
    def to_bands_first(self) -> tuple[int, int, int]:
        """The transposition from the order of the file to `(C, H, W)`."""
        return {"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (2, 0, 1)}[self.interleave]


def read(path: Path) -> Contents:
    """What an ENVI pair holds; either of the two files may be given."""
    header, data = stored(path)
    fields = parse_header(header)
    layout = _layout(header, fields)
    claimed = layout.offset + math.prod(layout.shape) * layout.dtype.itemsize
    check_claim(data, claimed, file_size(data), f"the header {header.name}")
    check_decoded(data, record_bytes(layout.shape, layout.dtype.itemsize), "its bands")
    if file_size(data) > claimed:
        logger.warning("%s holds more than its header describes; the rest is left out.", data)
    kind = as_kind(fields.get("prismask kind"))
    flat = layout.bands == 1 and fields.get("prismask dimensions") != "3"
    shape = (layout.lines, layout.samples) if flat else (layout.bands, layout.lines, layout.samples)
    scale = numbers(header, fields, "reflectance scale factor")
    variable = Variable(
        path.stem,
        shape,
        str(layout.dtype),
        partial(_read, data, layout, flat, _ignored(fields)),
        partial(_divide, scale[0]) if scale and scale[0] > 0 else to_fraction,
        is_named=False,
    )
    # Spaces in the provenance are kept, but line breaks of a reformatted header are not ours.
    attrs = from_json(unquote(fields["prismask provenance"])) if kind else _facts(fields)
    wavelengths = numbers(header, fields, "wavelength", layout.bands)
    units = fields.get("wavelength units")
    return Contents(str(path), "ENVI", {path.stem: variable}, wavelengths, units, attrs, kind)


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as an ENVI pair; `path` is the header or the data file."""
    files = data, header = written(path)
    interrupted = _interrupted(header)
    if interrupted is not None:
        new_header, (stated, _) = interrupted
        finish_swap(new_header, (stated, header))
    with write_together(files, overwrite=overwrite) as (data_part, header_part):
        record.values.astype("<f4", copy=False).tofile(data_part)
        # A name that is no text stays the bytes it is.
        text = _header_text(record, data.name).encode("utf-8", "surrogateescape")
        header_part.write_bytes(text)


def written(path: Path) -> tuple[Path, Path]:
    """Data file and header that `write` makes; `path` is one of them."""
    data = path.with_suffix(".img") if path.suffix.lower() == ".hdr" else path
    return data, path.with_suffix(".hdr")


def stored(path: Path) -> tuple[Path, Path]:
    """Header and data file, from either; those of an interrupted write lie under hidden names."""
    interrupted = _interrupted(path.with_suffix(".hdr"))
    if interrupted is not None:
        new_header, (stated_data, new_data) = interrupted
        if path in (stated_data, path.with_suffix(".hdr")):
            logger.warning(
                "%s: a write was interrupted; what it wrote is complete, and read.", path
            )
            return new_header, new_data
    if path.suffix.lower() != ".hdr" and (beside := header_beside(path)):
        return beside, path
    stated = parse_header(path).get("prismask data file", "")
    names = [stated] if stated == Path(stated).name and stated else []
    # `scene.img.hdr` belongs to `scene.img`, `scene.hdr` to `scene.img`, `scene.dat` …
    for extension in ENVI_DATA:
        names += [path.stem + extension, path.stem + extension.upper()]
    for name in names:
        data = path.with_name(name)
        if data.is_file() and data != path:
            return path, data
    raise DataMissingError(
        f"{path} is an ENVI header, but its data file is not beside it. Looked for "
        f"{', '.join(dict.fromkeys(names))}."
    )


def _interrupted(header: Path) -> tuple[Path, tuple[Path, Path]] | None:
    """The new header of an interrupted swap, its data file, and where that lies; or None."""
    new_header = key_of_swap(header)
    if new_header is None:
        return None
    stated = parse_header(new_header).get("prismask data file", "")
    data = header.with_name(stated) if stated == Path(stated).name and stated else header
    data = header.with_suffix(".img") if data == header else data
    return new_header, (data, file_of_swap(new_header, data))


def _header_text(record: Record, data_name: str) -> str:
    values = record.values
    bands = 1 if values.ndim == 2 else values.shape[0]
    # Braces end a field and % marks a code; everything else of the JSON stays readable.
    provenance = to_json(record.attrs)
    for letter in "%{}":
        provenance = provenance.replace(letter, f"%{ord(letter):02X}")
    lines = [
        "ENVI",
        f"description = {{Prismask {kind_of(record)}, fraction of full scale}}",
        f"samples = {values.shape[-1]}",
        f"lines = {values.shape[-2]}",
        f"bands = {bands}",
        "header offset = 0",
        "file type = ENVI Standard",
        "data type = 4",
        "interleave = bsq",
        f"prismask kind = {kind_of(record)}",
        f"prismask dimensions = {values.ndim}",
        f"prismask data file = {data_name}",
        f"prismask provenance = {{{provenance}}}",
    ]
    wavelengths = wavelengths_of(record)
    if wavelengths is not None:
        lines.append("wavelength units = Nanometers")
        lines.append(f"wavelength = {{{', '.join(repr(float(w)) for w in wavelengths)}}}")
    return "\n".join([*lines, "byte order = 0", ""])


def _layout(header: Path, fields: dict[str, str]) -> Layout:
    code = whole(header, fields, "data type")
    if code not in TYPES:
        what = "complex numbers" if code in (6, 9) else "no type ENVI defines"
        raise FormatError(f"{header}: data type {code} is {what}; known are {sorted(TYPES)}.")
    dtype = np.dtype(TYPES[code])
    if dtype.itemsize > 1:
        if "byte order" not in fields:
            raise FormatError(
                f"{header} has no 'byte order', so the {dtype} values could be read two ways. "
                "Add a line 'byte order = 0' (little-endian, PCs) or 'byte order = 1'."
            )
        order = whole(header, fields, "byte order")
        if order not in (0, 1):
            raise FormatError(f"{header}: byte order is {order}; it is 0 (little) or 1 (big).")
        dtype = dtype.newbyteorder("<" if order == 0 else ">")
    bands, lines, samples = (whole(header, fields, key) for key in ("bands", "lines", "samples"))
    if min(bands, lines, samples) < 1:
        raise FormatError(f"{header} states {bands} bands of {lines}×{samples}: nothing to read.")
    interleave = fields.get("interleave", "bsq" if bands == 1 else "").lower()
    if interleave not in ("bsq", "bil", "bip"):
        raise FormatError(f"{header}: interleave is {interleave!r}; it is bsq, bil or bip.")
    offset = whole(header, fields, "header offset", 0)
    if offset < 0:
        raise FormatError(f"{header}: header offset is {offset}; it counts bytes from the start.")
    return Layout(dtype, offset, interleave, bands, lines, samples)


def _read(data: Path, layout: Layout, flat: bool, ignored: float | None) -> NDArray[Any]:
    count = math.prod(layout.shape)
    values = np.fromfile(data, layout.dtype, count, offset=layout.offset)
    cube = values.reshape(layout.shape).transpose(layout.to_bands_first)
    if ignored is not None:
        _refuse_missing(cube, ignored)
    return cube[0] if flat else cube


def _ignored(fields: dict[str, str]) -> float | None:
    """The value that stands for none; other words than a number never occur in the data.

    Missing pixels that hold 0 are dark ones, which harm nobody: such files stay readable.
    """
    try:
        return float(fields["data ignore value"]) or None
    except (KeyError, ValueError):
        return None


def _refuse_missing(cube: NDArray[Any], ignored: float) -> None:
    if cube.dtype.kind == "f":
        with np.errstate(over="ignore"):
            ignored = cube.dtype.type(ignored)  # -3.4e38 is a rounded number in text and in data
    missing = np.isnan(cube) if math.isnan(ignored) else cube == ignored
    count = int(np.count_nonzero(missing.any(axis=0)))
    if count:
        raise ValuesError(
            f"{count} of {missing[0].size} pixels are marked as missing: they hold the header's "
            f"data ignore value, {ignored:g}, in at least one band. Crop or fill them, or remove "
            "that line from the header if it is a value like any other."
        )


def _divide(scale: float, values: NDArray[Any]) -> NDArray[Any]:
    return values / scale


def _facts(fields: dict[str, str]) -> dict[str, Any]:
    """What a foreign header says besides the layout."""
    layout = {"samples", "lines", "bands", "header offset", "data type", "interleave", "byte order"}
    return {k: v for k, v in fields.items() if k not in layout and not k.startswith("wavelength")}


def parse_header(path: Path) -> dict[str, str]:
    """The fields of a header, keys in lower case, braces taken off."""
    if file_size(path) > MOST_TEXT_BYTES:
        raise FormatError(f"{path} is too large for an ENVI header; is it the data file?")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    lines = text.splitlines()
    if not lines or lines[0].lstrip("\ufeff").strip() != "ENVI":
        raise FormatError(f"{path} is not an ENVI header: its first line is not 'ENVI'.")
    fields: dict[str, str] = {}
    rest = iter(lines[1:])
    for line in rest:
        key, equals, value = line.partition("=")
        if not equals or line.lstrip().startswith(";"):
            continue
        value = value.strip()
        if value.startswith("{"):
            value = _braced(path, key.strip(), value, rest)
        fields[_key(key)] = value
    return fields


def _braced(path: Path, key: str, start: str, rest: Iterator[str]) -> str:
    """What stands between braces, which may span several lines."""
    lines = [start]
    while "}" not in lines[-1]:
        following = next(rest, None)
        if following is None:
            raise FormatError(
                f"{path}: the list of {key!r} has no closing brace. The header is cut short, or "
                "the brace is missing."
            )
        lines.append(following.strip())
    value = " ".join(lines)
    return value[1 : value.index("}")].strip()


def whole(path: Path, fields: dict[str, str], key: str, default: int | None = None) -> int:
    """A whole number of the header."""
    if key not in fields and default is not None:
        return default
    if key not in fields:
        raise FormatError(f"{path} has no '{key}'. The header is cut short or not complete.")
    try:
        return int(fields[key])
    except ValueError as problem:
        raise FormatError(f"{path}: {key} is {fields[key]!r}, not a whole number.") from problem


def numbers(
    path: Path, fields: dict[str, str], key: str, count: int | None = None
) -> list[float] | None:
    """A list of numbers of the header, None if it is not there; `count` is how many fit."""
    if key not in fields:
        return None
    words = [word for word in fields[key].replace(",", " ").split() if word]
    try:
        values = [float(word) for word in words]
    except ValueError as problem:
        raise FormatError(
            f"{path}: {key} holds something that is no number: {problem}."
        ) from problem
    if count is not None and len(values) != count:
        what = "is empty ({})" if not values else f"lists {len(values)}"
        raise FormatError(
            f"{path}: {key} {what}, but there are {count} bands. Fill the list, or remove the line."
        )
    if not all(math.isfinite(value) for value in values):
        raise FormatError(f"{path}: {key} holds a number that is not finite.")
    return values


def _key(text: str) -> str:
    return " ".join(text.lower().split())
