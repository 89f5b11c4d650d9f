"""NPZ: named arrays, bands first, in a zip archive.

Our own files hold `cube` (with `cube_std` …), `mask` or `measurement`, `wavelengths` in nm, and
the texts `kind` and `provenance`: everything a record has is kept.
"""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    DEFLATE_RATIO,
    MOST_TEXT_BYTES,
    TEXTS,
    Contents,
    Listed,
    Variable,
    check_claim,
    check_count,
    check_decoded,
    file_size,
    named_arrays,
    named_contents,
)
from prismask.scenes.formats.npy import array_bytes, array_header, note_for
from prismask.scenes.formats.selection import may_be_wavelengths
from prismask.scenes.records import Record

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read(path: Path) -> Contents:
    """What an NPZ file holds."""
    variables: dict[str, Variable] = {}
    texts: dict[str, str] = {}
    listed: list[Listed] = []
    with zipfile.ZipFile(path) as archive:
        check_count(path, len(archive.infolist()), "members")
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            name = info.filename.removesuffix(".npy")
            if info.compress_type not in _COMPRESSIONS:
                raise FormatError(f"{path}, {name} is packed in a way that NumPy does not use.")
            with archive.open(info) as member:
                shape, dtype = array_header(member, f"{path}, {name}")
                check_claim(path, array_bytes(shape, dtype), info.file_size, name)
            check_claim(path, info.file_size, file_size(path), name, DEFLATE_RATIO)
            check_decoded(path, info.file_size, name)
            if name in TEXTS and dtype.kind == "U" and info.file_size <= MOST_TEXT_BYTES:
                texts[name] = str(read_member(path, name))
                continue
            if may_be_wavelengths(name, shape) and dtype.kind in "fiu":
                listed.append(Listed(name, read_member(path, name)))
            variables[name] = Variable(
                name, shape, str(dtype), partial(read_member, path, name), note=note_for(dtype)
            )
    if not variables:
        raise FormatError(f"{path} is a zip archive without NumPy arrays in it.")
    return named_contents(path, "NPZ", variables, texts, tuple(listed))


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as NPZ."""
    with write_beside(path, overwrite=overwrite) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **named_arrays(record))


def read_member(path: Path, name: str) -> NDArray[Any]:
    """One array of an archive."""
    with np.load(path, allow_pickle=False) as archive:
        array: NDArray[Any] = archive[name]
        return array
