"""What every format builds on: what a file holds, and how much reading it may take.

A format module turns a file into `Contents`: a list of variables whose arrays are read only when
asked for, the wavelengths, and the attributes; nobody has decided yet which of it is the cube.
`selection` then makes a record of it. Texts are made fit to be shown, and provenance is kept as one
JSON text whatever it holds.

Limits. A file of a few bytes can claim terabytes, or keep a parser busy for ever. Both limits grow
with the file, so that healthy ones never meet them, and whoever trusts a file may raise them: with
`limits=ReadLimits(…)` where a file is loaded, or for everything that follows, commands too, with
the environment variables `PRISMASK_READ_MEMORY=16GB` and `PRISMASK_READ_SECONDS=600`.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import ConfigError, DataMissingError, FormatError, PrismaskError
from prismask.parallel.cage import Limits
from prismask.scenes.records import Cube, Mask, Record
from prismask.scenes.units import to_fraction

Kind = Literal["cube", "mask", "measurement"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COLOURED = (
    "colour: pictures from a colour sensor cannot be used; from a monochrome one, save it in grey"
)
"""What is said of a picture with a red, a green and a blue value in each pixel."""
PARTS = ("std", "lower", "upper")
"""A cube's error bar is `cube_std`, `cube_lower`, `cube_upper` in files, a mask's `mask_std`."""

TEXTS = ("kind", "provenance")
"""Texts that our own files hold in formats of named arrays."""


LONGEST_REASON, LONGEST_NAME = 500, 100
"""Letters of what a parser says, and of a variable's name, that messages have."""


@dataclass(frozen=True)
class Variable:
    """One array in a file."""

    name: str
    """Its name in the file; where it has none there (`is_named`), the file's stem."""
    shape: tuple[int, ...]
    """Its size as the file states it."""
    dtype: str
    """Its type as the file states it."""
    read: Callable[[], NDArray[Any]]
    """Reads it; rows come before columns, the bands lie along `band_axis`."""
    to_fraction: Callable[[NDArray[Any]], NDArray[Any]] = to_fraction
    """Brings what was read to fractions of full scale."""
    band_axis: int = 0
    """The axis along which this format has the bands, unless the wavelengths say otherwise."""
    note: str = ""
    """Why it cannot be used (a struct, complex numbers …); empty when it can."""
    is_named: bool = True
    """Whether the file itself names it; formats that hold a single array have no names."""

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        name = self.name if len(self.name) <= LONGEST_NAME else f"{self.name[:LONGEST_NAME]}…"
        return f"{name} ({self.dtype[:LONGEST_NAME]} {size_text(self.shape) or 'scalar'}{note})"


@dataclass(frozen=True)
class Listed:
    """Numbers in a file that its wavelengths may be."""

    name: str
    """The variable that holds them; empty where the format has a place for wavelengths."""
    values: Any
    """The numbers, as a float64 array of one dimension once made."""
    units: str | None = None
    """Their unit as the file states it."""

    def __post_init__(self) -> None:
        flat = np.asarray(self.values, dtype=np.float64).reshape(-1)
        object.__setattr__(self, "values", flat)


@dataclass(frozen=True)
class Contents:
    """Everything a file holds."""

    source: str
    """The file's path, for messages."""
    format: str
    """Title of the format, for messages."""
    variables: Mapping[str, Variable]
    """The arrays by name, in the order of the file."""
    wavelengths: Any = None
    """Wavelengths, where the file leaves no doubt that these are they."""
    wavelength_units: str | None = None
    """Their unit as the file states it."""
    attrs: Mapping[str, Any] | None = None
    """Provenance that came with the file; None where the file has no place for any."""
    kind: Kind | None = None
    """What the file says it holds, if it does."""
    listed: tuple[Listed, ...] = ()
    """Variables with the names of wavelengths, where nothing but the name speaks for it."""


def named_contents(
    path: Path,
    title: str,
    variables: Mapping[str, Variable],
    texts: Mapping[str, str],
    listed: tuple[Listed, ...],
) -> Contents:
    """Contents of a format of named arrays, where our own files have the texts `TEXTS`.

    Those hold `wavelengths` in nm; elsewhere a name may mean anything.
    """
    kind = as_kind(texts.get("kind"))
    if kind is None:
        return Contents(str(path), title, variables, listed=listed)
    attrs = from_json(texts.get("provenance", "{}"))
    ours = next((one.values for one in listed if one.name == "wavelengths"), None)
    return Contents(str(path), title, variables, ours, "nm", attrs, kind)


def own_name(name: str) -> str:
    """`entry/data/Img` → `img`: the groups of HDF5 say nothing about what an array is."""
    return name.rpartition("/")[2].lower()


def kind_of(record: Record) -> Kind:
    """The kind of a record."""
    if isinstance(record, Cube):
        return "cube"
    return "mask" if isinstance(record, Mask) else "measurement"


def as_kind(word: Any) -> Kind | None:
    """A kind read from a file, or None if it is no such word."""
    return next((kind for kind in KINDS if kind == word), None)


def arrays_of(record: Record) -> dict[str, NDArray[np.float32]]:
    """The record's arrays by their names in files; the main one is last.

    A file cut short between two arrays then lacks the main one, and cannot pass for a whole.
    """
    kind = kind_of(record)
    arrays = {}
    for part in PARTS:
        values = getattr(record, part, None)
        if values is not None:
            arrays[f"{kind}_{part}"] = values
    return arrays | {kind: record.values}


def wavelengths_of(record: Record) -> NDArray[np.float64] | None:
    """The record's wavelengths; a measurement has none."""
    return getattr(record, "wavelengths", None)


def named_arrays(record: Record) -> dict[str, Any]:
    """All of a record for a format of named arrays: texts, wavelengths, arrays, main one last."""
    wavelengths = wavelengths_of(record)
    listed = {} if wavelengths is None else {"wavelengths": wavelengths}
    texts = {"kind": kind_of(record), "provenance": to_json(record.attrs)}
    return {**texts, **listed, **arrays_of(record)}


@contextmanager
def reading(source: object, title: str) -> Iterator[None]:
    """Turn whatever a parser throws at a damaged file into a `FormatError` that names the file."""
    # Messages end on terminals, and names in files may hold what a terminal obeys.
    source = printable(str(source))
    try:
        yield
    except PrismaskError as problem:
        text = str(problem)
        safe = printable(text)
        if source in safe and safe == text:
            raise
        raise type(problem)(safe if source in safe else f"{source}: {safe}") from problem
    except FileNotFoundError as problem:
        raise DataMissingError(f"{source} does not exist.") from problem
    except PermissionError as problem:
        raise FormatError(f"{source} may not be read: {problem.strerror}.") from problem
    except MemoryError as problem:
        raise FormatError(
            f"{source} takes more memory than there is, or than reading may take. {how_to_raise()}"
        ) from problem
    except Exception as problem:
        # Parsers of foreign formats raise anything from struct.error to AssertionError.
        text = printable(str(problem).strip().rstrip(".")[:LONGEST_REASON])
        text = text or type(problem).__name__
        raise FormatError(
            f"{source} cannot be read as {title}: {text}. Is it damaged or cut short? Copy or "
            "download it again."
        ) from problem


def plain(value: Any) -> Any:
    """The value made of what JSON knows: NumPy becomes numbers and lists, anything odd a string.

    NaN and infinity become the strings "nan", "inf", "-inf", since JSON has no such numbers.
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def to_json(attrs: Mapping[str, Any]) -> str:
    """Attributes as one line of ASCII JSON."""
    return json.dumps(plain(attrs), allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """Attributes from `to_json`'s line."""
    try:
        attrs = json.loads(text)
    except (ValueError, RecursionError) as problem:  # ValueError: numbers of thousands of digits
        raise FormatError(f"the provenance is not valid JSON: {problem}.") from problem
    if not isinstance(attrs, dict):
        raise FormatError("the provenance is not a JSON object.")
    return attrs


_UNSAFE = ("Cc", "Cf", "Cs")
"""Unicode's categories: control, format, surrogate."""


def printable(text: str) -> str:
    """The text with everything that a terminal obeys, or cannot show, written out as its code.

    Control characters (colours, window titles, moving the cursor), letters that turn the
    direction of writing, and halves of letters; line breaks and tabs stay.
    """
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in _UNSAFE
        else letter.encode("unicode_escape").decode()
        for letter in text
    )  # fmt: skip


MEMORY_VARIABLE, SECONDS_VARIABLE = "PRISMASK_READ_MEMORY", "PRISMASK_READ_SECONDS"
"""Environment variables that set the limits."""

MOST_OBJECTS = 10_000
"""Arrays, groups and members of an archive that one file may have."""
MOST_WAVELENGTHS = 65_536
"""Longer lists are no wavelengths of an image."""
MOST_TEXT_BYTES = 2**24
"""Headers, descriptions and attributes are read whole, so they are short."""
DEFLATE_RATIO = 1100
"""No deflate stream grows by more than 1032 times; a header that claims more is wrong."""

_LEAST_MEMORY, _MEMORY_PER_BYTE = 2 * 10**9, 16
_LEAST_SECONDS, _BYTES_PER_SECOND = 10.0, 2e6
_ENDLESS, _BOUNDLESS = 1e7, 2**60
"""What an infinite limit means to the system."""
_COPIES = 4
"""Turning what a file holds into a record takes about four times its size."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class ReadLimits:
    """What reading a file may take; None stands for the limit that grows with the file."""

    seconds: float | None = None
    """Seconds for each array of the file. [default: 10, and one more for every 2 MB]"""
    memory_bytes: int | None = None
    """Memory; arrays may have a quarter of it. [default: 2 GB, and 16 times the file]"""

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; a limit lies above 0.")


_current: ContextVar[ReadLimits | None] = ContextVar("limits of reading", default=None)


@contextmanager
def using(limits: ReadLimits | None) -> Iterator[None]:
    """Read under these limits in the block; None keeps those that hold already."""
    if limits is None:
        yield
        return
    token = _current.set(limits)
    try:
        yield
    finally:
        _current.reset(token)


def limits_for(path: Path) -> Limits:
    """The limits for reading a file: those in use, else the environment's, else by its size."""
    size = 0 if path.is_dir() else file_size(path)
    stated = _current.get() or ReadLimits()
    memory = stated.memory_bytes or _from_environment(MEMORY_VARIABLE)
    seconds = stated.seconds or _from_environment(SECONDS_VARIABLE)
    return Limits(
        min(seconds or _LEAST_SECONDS + size / _BYTES_PER_SECOND, _ENDLESS),
        int(min(memory or _LEAST_MEMORY + _MEMORY_PER_BYTE * size, _BOUNDLESS)),
    )


def check_decoded(path: Path, claimed: int, what: str) -> None:
    """Raise before anything is allocated where an array takes more than reading may."""
    most = limits_for(path).memory_bytes // _COPIES
    if claimed > most:
        raise FormatError(
            f"{path}: {what} would take {bytes_text(claimed)}; arrays of this file may take "
            f"{bytes_text(most)}. {how_to_raise()}"
        )


def record_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """What an array takes in memory: as it is stored, or as float32, which every record is."""
    return math.prod(shape) * max(4, itemsize)


def check_claim(source: object, claimed: int, held: int, what: str, ratio: int = 1) -> None:
    """Raise before anything of the claimed size is allocated that the file cannot hold.

    `claimed` bytes are stated by the header, `held` bytes are in the file, and compression may
    make up for a factor `ratio`.
    """
    if claimed > held * ratio:
        raise FormatError(
            f"{source}: {what} claims {bytes_text(claimed)}, but the file holds only "
            f"{bytes_text(held)}. It is cut short, or its header is wrong."
        )


def check_count(source: object, count: int, what: str) -> None:
    """Raise where a file has more arrays or groups than anyone could mean."""
    if count > MOST_OBJECTS:
        raise FormatError(
            f"{source} holds more than {MOST_OBJECTS:,} {what}, which is the limit. Copy what "
            "you need into a file of its own."
        )


def file_size(path: Path) -> int:
    """Bytes in a file."""
    return path.stat().st_size


def how_to_raise() -> str:
    """What to do where a healthy file meets a limit."""
    return (
        f"If you trust the file, raise the limit: {MEMORY_VARIABLE}=16GB (or "
        "limits=ReadLimits(memory_bytes=…))."
    )


def bytes_text(count: int) -> str:
    """`11200000000` → `11.2 GB`."""
    for unit, size in (("bytes", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if count < 1000 * size:
            return f"{count / size:.4g} {unit}"
    # Divided as whole numbers: a header may state more than a float can hold.
    terabytes = count // 10**12
    return f"{count / 10**12:,.4g} TB" if terabytes < 10**9 else "more than 10⁹ TB"


def _from_environment(name: str) -> float | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?B?)", text.upper())
    word = match[2] if match else None
    if match is None or word is None or float(match[1]) <= 0:
        wanted = "a size such as 16GB" if name == MEMORY_VARIABLE else "seconds, such as 600"
        raise ConfigError(f"the environment has {name}={text!r}; it should be {wanted}.")
    return float(match[1]) * _UNITS[word if word in _UNITS else f"{word}B"]
