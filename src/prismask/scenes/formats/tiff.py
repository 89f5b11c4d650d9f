"""Multi-page TIFF: one page per band, wavelengths and provenance as JSON in the description.

Keeps values, wavelengths, kind and provenance; no error bar. Needs the extra `io` (tifffile,
and imagecodecs for compressions other than deflate).
"""

from __future__ import annotations

import json
import math
import struct
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError, MissingPartError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    COLOURED,
    DEFLATE_RATIO,
    Contents,
    Variable,
    as_kind,
    check_claim,
    check_count,
    check_decoded,
    file_size,
    kind_of,
    plain,
    wavelengths_of,
)
from prismask.scenes.records import Record

_TYPE_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
"""Bytes of the types of TIFF tags that take more than one."""

COLOUR_FILTER_ARRAY = 32803
"""Photometric interpretation of frames whose pixels lie behind filters of several colours."""


def read(path: Path) -> Contents:
    """What a TIFF file holds."""
    tifffile = _tifffile()
    pages = count_pages(path)
    with tifffile.TiffFile(path) as file:
        first = file.pages[0]
        for page in file.pages:
            _check_page(path, page, first)
        # As float32, which every record is.
        bytes_each = max(4, first.dtype.itemsize if first.dtype is not None else 4)
        check_decoded(path, math.prod(first.shape) * bytes_each * pages, "its pages")
        about = _about(first.description)
        stated = about.get("pages", pages)
        if stated != pages or len(file.pages) != pages:
            raise FormatError(f"{path} has {len(file.pages)} whole pages of {stated}: cut short.")
        flat = pages == 1 and about.get("dimensions") != 3
        shape = first.shape if flat else (pages, *first.shape)
        note = "" if len(first.shape) == 2 else f"{COLOURED}, with one page per band"
        if first.photometric == COLOUR_FILTER_ARRAY:
            note = "raw frame of a colour sensor (Bayer), which cannot be used"
        note = note if first.dtype is not None and first.dtype.kind in "fiub" else "not numbers"
        dtype = str(first.dtype)
    variable = Variable(
        path.stem, shape, dtype, partial(_read, path, flat), note=note, is_named=False
    )
    return Contents(
        str(path),
        "TIFF",
        {path.stem: variable},
        about.get("wavelengths_nm"),
        "nm",
        about.get("provenance"),
        as_kind(about.get("kind")),
    )


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as TIFF, 32-bit floating point."""
    tifffile = _tifffile()
    values = record.values
    wavelengths = wavelengths_of(record)
    about = {
        "prismask": 1,
        "kind": kind_of(record),
        "dimensions": values.ndim,
        "pages": 1 if values.ndim == 2 else values.shape[0],
        "wavelengths_nm": None if wavelengths is None else wavelengths.tolist(),
        "provenance": plain(record.attrs),
    }
    large = values.nbytes > 2**31
    with (
        write_beside(path, overwrite=overwrite) as part,
        part.open("wb") as file,
        tifffile.TiffWriter(file, bigtiff=large) as writer,
    ):
        description: str | None = json.dumps(about, allow_nan=False)
        for plane in values.reshape(-1, *values.shape[-2:]):
            # Page by page, each with its directory first: the file then ends with values.
            writer.write(
                plane,
                photometric="minisblack",
                metadata=None,
                contiguous=False,
                description=description,
            )
            description = None


def count_pages(path: Path) -> int:
    """Follow the chain of page directories; one that leads out of the file is an error.

    tifffile shows only the pages it can reach, so a file cut short would look like a shorter one.
    """
    size = file_size(path)
    with path.open("rb") as file:
        head = file.read(16)
        order = "<" if head[:2] == b"II" else ">"
        big = head[2:4] in (b"+\0", b"\0+")
        position = _number(path, head[8:16] if big else head[4:8], order)
        seen: set[int] = set()
        while position:
            check_count(path, len(seen), "pages")
            if position >= size or position in seen:
                raise FormatError(f"{path} is cut short: page {len(seen) + 1} lies beyond its end.")
            seen.add(position)
            position = _next_directory(path, file, position, order, big)
    if not seen:
        raise FormatError(f"{path} has no page.")
    return len(seen)


def _next_directory(path: Path, file: IO[bytes], position: int, order: str, big: bool) -> int:
    """Check that all values of a directory lie in the file; give back where the next one is."""
    size = file_size(path)
    entry, room = ("HHQQ", 8) if big else ("HHII", 4)
    file.seek(position)
    count = _number(path, file.read(8 if big else 2), order, 8 if big else 2)
    length = struct.calcsize(order + entry)
    check_claim(path, file.tell() + count * length + room, size, "a page directory")
    for _, code, values, where in struct.iter_unpack(order + entry, file.read(count * length)):
        taken = values * _TYPE_BYTES.get(code, 1)
        if taken > room:
            check_claim(path, where + taken, size, "a tag")
    return _number(path, file.read(room), order, room)


def _number(path: Path, raw: bytes, order: str, length: int | None = None) -> int:
    letters = {2: "H", 4: "I", 8: "Q"}
    if len(raw) not in letters or length not in (None, len(raw)):
        raise FormatError(f"{path} is cut short in a page directory.")
    return int(struct.unpack(order + letters[len(raw)], raw)[0])


def _check_page(path: Path, page: Any, first: Any) -> None:
    size = file_size(path)
    if page.shape != first.shape or page.dtype != first.dtype:
        raise FormatError(
            f"{path} has pages of {first.shape} {first.dtype} and {page.shape} {page.dtype}: "
            "the bands of a cube are of one size and type."
        )
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        check_claim(path, offset + count, size, "a page")
    check_claim(path, page.nbytes, sum(page.databytecounts), "a page", DEFLATE_RATIO)
    # A tile is decoded whole, however little of it the page shows.
    check_decoded(path, math.prod(page.chunks) * page.dtype.itemsize, "a tile or strip")


def _about(description: str) -> dict[str, Any]:
    """Our own description, or nothing."""
    try:
        about = json.loads(description)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(about, dict) or "prismask" not in about:
        return {}
    if not isinstance(about.get("provenance", {}), dict):
        raise FormatError("the provenance is not a JSON object.")
    return about


def _read(path: Path, flat: bool) -> NDArray[Any]:
    with _tifffile().TiffFile(path) as file:
        try:
            planes = [page.asarray() for page in file.pages]
        except ValueError as problem:
            if "imagecodecs" not in str(problem):
                raise
            raise MissingPartError(
                f"{path} is compressed with {file.pages[0].compression.name}, which needs "
                "imagecodecs: pip install 'prismask[io]'. Or save it uncompressed or with deflate."
            ) from problem
    return np.asarray(planes[0] if flat else np.stack(planes))


def _tifffile() -> Any:
    try:
        import tifffile
    except ImportError as problem:
        raise MissingPartError("TIFF files need tifffile: pip install 'prismask[io]'.") from problem
    return tifffile
