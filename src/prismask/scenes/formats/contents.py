"""What a file holds, before anyone has decided which of it is the cube.

A format module turns a file into `Contents`: a list of variables whose arrays are read only when
asked for, the wavelengths, and the attributes. `selection` then makes a record of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import DataMissingError, FormatError, PrismaskError
from prismask.scenes.formats.attributes import from_json
from prismask.scenes.formats.limits import how_to_raise
from prismask.scenes.formats.text import printable
from prismask.scenes.records import Cube, Mask, Record
from prismask.scenes.units import to_fraction

Kind = Literal["cube", "mask", "measurement"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PARTS = ("std", "lower", "upper")
"""A cube's error bar is `cube_std`, `cube_lower`, `cube_upper` in files, a mask's `mask_std`."""

TEXTS = ("kind", "provenance")
"""Texts that our own files hold in formats of named arrays."""


LONGEST_REASON, LONGEST_NAME = 500, 100
"""Letters of what a parser says, and of a variable's name, that are told."""


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


@contextmanager
def reading(source: object, title: str) -> Iterator[None]:
    """Turn whatever a parser throws at a damaged file into a `FormatError` that names the file."""
    # Messages end on terminals, and names in files may hold what a terminal obeys.
    source = printable(str(source))
    try:
        yield
    except PrismaskError as problem:
        said = str(problem)
        told = printable(said)
        if source in told and told == said:
            raise
        raise type(problem)(told if source in told else f"{source}: {told}") from problem
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
