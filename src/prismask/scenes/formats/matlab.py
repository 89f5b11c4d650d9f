"""MATLAB files of versions 5 to 7 (`save -v6`, `save -v7`).

Cubes are H×W×C on disk, as MATLAB users store them, and come out bands first. Our own files hold
`cube` (with `cube_std` …), `mask` or `measurement`, `wavelengths` in nm, and the texts `kind` and
`provenance`: everything a record has is kept.

Elements. Prismask needs arrays of numbers and short texts only, so it reads those itself: every
length is checked against what is there before it is believed. SciPy's reader crashes on some
damaged files, loses variables of others behind a warning, and lists complex arrays as real ones.

After a header of 128 bytes a file is a chain of elements: a tag (type, length) and data. An array
is an element of elements: flags, dimensions, name, values. Since v7 it is usually wrapped in a
compressed element. Types and classes are numbered as in MathWorks' description of the format.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError
from prismask.scenes.atomic import write_beside
from prismask.scenes.formats.contents import (
    DEFLATE_RATIO,
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
from prismask.scenes.formats.selection import may_be_wavelengths
from prismask.scenes.records import Record
from prismask.scenes.units import kaist_to_fraction, to_fraction

TITLE = "MATLAB v5"
NUMERIC = {
    "double", "single", "logical", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64",
}  # fmt: skip
"""MATLAB classes that are plain arrays of numbers."""
LARGEST = 2**31
"""v5 cannot hold an array of 2 GiB or more; v7.3 can."""


def read(path: Path) -> Contents:
    """What a MATLAB file holds."""
    variables: dict[str, Variable] = {}
    texts: dict[str, str] = {}
    listed: list[Listed] = []
    for element in list_elements(path):
        name, word = element.name, element.matlab_class
        # However well it is packed, every number takes a byte before that.
        check_claim(path, math.prod(element.shape), file_size(path), name, DEFLATE_RATIO)
        check_decoded(path, math.prod(element.shape) * item_bytes(word), name)
        read = partial(read_numbers, path, element)
        variables[name] = matlab_variable(name, element.shape, word, read)
        if word == "char" and name in TEXTS:
            texts[name] = read_text(path, element)
        elif may_be_wavelengths(name, element.shape) and word in NUMERIC - {"logical"}:
            listed.append(Listed(name, read()))
    return named_contents(path, TITLE, variables, texts, tuple(listed))


def write(record: Record, path: Path, overwrite: bool) -> None:
    """Write a record as MATLAB v5, or as v7.3 where it is too large for v5."""
    from scipy.io import savemat

    if record.values.nbytes >= LARGEST:
        from prismask.scenes.formats import matlab73

        matlab73.write(record, path, overwrite)
        return
    variables = {name: bands_last(value) for name, value in named_arrays(record).items()}
    with write_beside(path, overwrite=overwrite) as part:
        savemat(part, variables, appendmat=False, oned_as="row")


def matlab_variable(
    name: str, shape: tuple[int, ...], matlab_class: str, read: Callable[[], NDArray[Any]]
) -> Variable:
    """A variable of a MATLAB file of any version; `read` gives it H×W×C."""
    note = "" if matlab_class in NUMERIC else f"a {matlab_class}, not an array of numbers"
    scale = kaist_to_fraction if name in ("img", "img_expand") else to_fraction
    return Variable(name, shape, matlab_class, read, scale, band_axis=-1, note=note)


def bands_last(value: Any) -> Any:
    """An array `(C, H, W)` → H×W×C; anything else stays."""
    return np.moveaxis(value, 0, -1) if np.ndim(value) == 3 else value


_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_PREFIX = 4096
"""Flags, dimensions and name of an array fit into this many bytes."""
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
    16: "u1", 17: "u2",
}  # fmt: skip
_CLASSES = {
    1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 6: "double", 7: "single",
    8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32", 14: "int64",
    15: "uint64", 16: "function", 17: "object",
}  # fmt: skip
_DTYPES = {"double": "float64", "single": "float32"}
_COMPLEX_FLAG, _LOGICAL_FLAG = 0x0800, 0x0200


@dataclass(frozen=True)
class Element:
    """One variable of a v5 file."""

    name: str
    shape: tuple[int, ...]
    matlab_class: str
    """MATLAB's name for the type, with "complex" before it where that applies."""
    position: int
    """Where its tag starts in the file."""


class _Cursor:
    """Reads one sub-element after the other from the data of an array."""

    def __init__(self, data: bytes, order: str, whole: bool) -> None:
        self.data, self.order, self.whole, self.position = data, order, whole, 0

    def next(self) -> tuple[int, bytes]:
        """Type and data of the next sub-element; data may end early unless `whole`."""
        head = self.data[self.position : self.position + 8]
        if len(head) < 8:
            raise FormatError("an array ends in the middle of a tag.")
        first, length = struct.unpack(self.order + "II", head)
        if first >> 16:  # up to four bytes are packed into the tag itself
            kind, length, start = first & 0xFFFF, first >> 16, self.position + 4
            self.position += 8
        else:
            kind, start = first, self.position + 8
            self.position = start + length + -length % 8
        data = self.data[start : start + length]
        if (length > 4 and first >> 16) or (self.whole and len(data) < length):
            raise FormatError("an array is shorter than its tag says.")
        return kind, data


def item_bytes(matlab_class: str) -> int:
    """Bytes of each number of a class, 1 where it has none."""
    try:
        return np.dtype(_DTYPES.get(matlab_class, matlab_class)).itemsize
    except TypeError:
        return 1


def list_elements(path: Path) -> list[Element]:
    """The variables of a file, in its order; raises if the chain does not end with the file."""
    order = _byte_order(path)
    elements: list[Element] = []
    for position, kind in _chain(path, order):
        if kind not in (_MATRIX, _COMPRESSED):
            continue
        cursor = _Cursor(_inner(path, position, order, _PREFIX), order, whole=False)
        name, shape, matlab_class = _describe(cursor)
        check_count(path, len(elements), "variables")
        if name:  # MATLAB stores what its objects refer to without a name
            elements.append(Element(name, shape, matlab_class, position))
    return elements


def read_numbers(path: Path, element: Element) -> NDArray[Any]:
    """The values of an array of numbers, in the type that MATLAB shows."""
    kind, data = _values(path, element)
    if kind not in _TYPES:
        raise FormatError(f"{element.name} is stored as type {kind}, which holds no numbers.")
    stored = np.frombuffer(data, np.dtype(_TYPES[kind]).newbyteorder(_byte_order(path)))
    if stored.size != math.prod(element.shape):
        raise FormatError(f"{element.name} has {stored.size} values for a size {element.shape}.")
    word = element.matlab_class
    # MATLAB stores a double array of small whole numbers as bytes; the class says what it is.
    dtype = "bool" if word == "logical" else _DTYPES.get(word, word)
    return stored.astype(dtype).reshape(element.shape, order="F")


def read_text(path: Path, element: Element) -> str:
    """A line of text."""
    kind, data = _values(path, element)
    if kind in (2, 16):
        return data.decode("utf-8", "replace")
    if kind in (4, 17):
        return data.decode("utf-16-le" if _byte_order(path) == "<" else "utf-16-be", "replace")
    return data.decode("latin-1")


def _values(path: Path, element: Element) -> tuple[int, bytes]:
    order = _byte_order(path)
    cursor = _Cursor(_inner(path, element.position, order, None), order, whole=True)
    _describe(cursor)
    return cursor.next()


def _byte_order(path: Path) -> Literal["<", ">"]:
    with path.open("rb") as file:
        mark = file.read(_HEADER)[126:]
    if mark not in (b"IM", b"MI"):
        raise FormatError(
            f"{path} is called .mat, but is neither a MATLAB v5 nor a v7.3 file. If it is older, "
            "open it in MATLAB or Octave and save it again with -v7."
        )
    return "<" if mark == b"IM" else ">"


def _chain(path: Path, order: str) -> Iterator[tuple[int, int]]:
    """Position and type of every top-level element, up to the end of the file exactly."""
    size = file_size(path)
    position = _HEADER
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            tag = file.read(8)
            if len(tag) < 8:
                raise FormatError(f"{path} is cut short in the tag of a variable.")
            kind, length = struct.unpack(order + "II", tag)
            check_claim(path, position + 8 + length, size, "a variable")
            yield position, kind
            position += 8 + length


def _inner(path: Path, position: int, order: str, largest: int | None) -> bytes:
    """The data of an array, unpacked; at most `largest` bytes of it."""
    with path.open("rb") as file:
        file.seek(position)
        kind, length = struct.unpack(order + "II", file.read(8))
        if kind == _MATRIX:
            return file.read(length if largest is None else min(length, largest))
        packed = file.read(length)
    inflater = zlib.decompressobj()
    head = inflater.decompress(packed, 8)
    if len(head) < 8:
        raise FormatError("a compressed variable is cut short.")
    kind, inner = struct.unpack(order + "II", head)
    if kind != _MATRIX:
        return b""
    check_claim(path, inner, length, "a compressed variable", DEFLATE_RATIO)
    check_decoded(path, inner if largest is None else 0, "a compressed variable")
    data = inflater.decompress(inflater.unconsumed_tail, max(1, min(inner, largest or inner)))
    if largest is None:
        inflater.decompress(inflater.unconsumed_tail, 1)  # reaches the checksum, and checks it
        if not inflater.eof or len(data) != inner:
            raise FormatError("a compressed variable is cut short or has another length.")
    return data


def _describe(cursor: _Cursor) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and class from the first sub-elements; leaves the cursor at the values."""
    _, flags = cursor.next()
    if len(flags) != 8:
        raise FormatError("the flags of a variable are damaged.")
    (bits,) = struct.unpack(cursor.order + "I", flags[:4])
    word = _CLASSES.get(bits & 0xFF, f"class {bits & 0xFF}")
    if bits & 0xFF == 17:  # objects have no dimensions
        return cursor.next()[1].decode("latin-1"), (), word
    _, sizes = cursor.next()
    if len(sizes) % 4 or len(sizes) < 8:
        raise FormatError("the dimensions of a variable are damaged.")
    shape = struct.unpack(f"{cursor.order}{len(sizes) // 4}i", sizes)
    if min(shape) < 0:
        raise FormatError(f"a variable has negative dimensions {shape}.")
    name = cursor.next()[1].decode("latin-1")
    if bits & _LOGICAL_FLAG and word not in ("sparse",):
        word = "logical"
    return name, shape, f"complex {word}" if bits & _COMPLEX_FLAG else word
