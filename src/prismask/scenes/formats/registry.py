"""The list of file formats, and how one is recognised by content.

A format is a module with `read(path) -> Contents` and, if it can be written,
`write(record, path, overwrite)`; one of several files says which with `stored(path)` for those
that are there and `written(path)` for those that `write` makes. Adding one takes that module and
one line in `FORMATS`. Modules are imported when first used, because some bring heavy parts along.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

from prismask.checks import closest, nearest
from prismask.errors import DataMissingError, FormatError, PrismaskError
from prismask.scenes.atomic import (
    OLD_SUFFIX,
    check_output,
    is_leftover,
    kept_from_swap,
    key_of_swap,
)
from prismask.scenes.formats import sniffing
from prismask.scenes.formats.caged import read_caged
from prismask.scenes.formats.contents import Contents, reading
from prismask.scenes.records import Record


@dataclass(frozen=True)
class Format:
    """One file format."""

    name: str
    """Short name, for `save(…, format=…)`."""
    title: str
    """Name in messages."""
    module: str
    """Module in `prismask.scenes` that reads and writes it."""
    recognises: Callable[[Path, bytes], bool]
    """Whether a file with these first bytes is of this format."""
    extensions: tuple[str, ...] = ()
    """Extensions that `save` writes in this format; empty for formats that are only read."""
    loses: tuple[str, ...] = ()
    """What a record has and this format cannot keep: `std`, `wavelengths`, `attrs`."""
    parsers: tuple[str, ...] = ()
    """Modules written in C that parse it, which happens in a cage; empty where our own do."""

    def read(self, path: Path) -> Contents:
        """What the file holds; files that foreign code parses are read in a cage."""
        with reading(path, self.title):
            return read_caged(self, path) if self.parsers else self.read_here(path)

    def read_here(self, path: Path) -> Contents:
        """What the file holds, parsed in this process."""
        with reading(path, self.title):
            return cast(Contents, self._code().read(path))

    @property
    def modules(self) -> tuple[str, ...]:
        """What a cage imports before it reads such files."""
        return (*self.parsers, f"prismask.scenes.formats.{self.module}", __name__)

    def write(self, record: Record, path: Path, overwrite: bool) -> None:
        """Write a record."""
        self._code().write(record, path, overwrite)

    def stored(self, path: Path) -> tuple[Path, ...]:
        """The files that hold what is at `path`, itself among them."""
        with reading(path, self.title):
            code = self._code()
            return tuple(code.stored(path)) if hasattr(code, "stored") else (path,)

    def written(self, path: Path) -> tuple[Path, ...]:
        """The files that `write` makes for `path`."""
        code = self._code()
        return tuple(code.written(path)) if hasattr(code, "written") else (path,)

    def _code(self) -> Any:
        return import_module(f"prismask.scenes.formats.{self.module}")


_NO_BAR = ("std",)
_HDF5, _TIFF, _PNG = ("h5py",), ("tifffile", "imagecodecs"), ("PIL.Image", "PIL.PngImagePlugin")

FORMATS: tuple[Format, ...] = (
    Format("matlab7.3", "MATLAB v7.3", "matlab73", sniffing.is_matlab73, (".mat",), parsers=_HDF5),
    Format("netcdf", "NetCDF-4", "netcdf", sniffing.is_hdf5, (".nc", ".nc4"), parsers=_HDF5),
    Format("npy", "NPY", "npy", sniffing.is_npy, (".npy",), (*_NO_BAR, "wavelengths", "attrs")),
    Format("kaist", "packed KAIST scenes", "kaist", sniffing.is_kaist_pack),
    Format("npz", "NPZ", "npz", sniffing.is_zip, (".npz",)),
    Format("tiff", "TIFF", "tiff", sniffing.is_tiff, (".tif", ".tiff"), _NO_BAR, _TIFF),
    Format("png", "PNG", "png", sniffing.is_png, parsers=_PNG),
    Format("cave", "CAVE folder", "cave", sniffing.is_cave_folder, parsers=_PNG),
    Format("matlab", "MATLAB v5", "matlab", sniffing.is_matlab, (".mat",)),
    Format("envi", "ENVI", "envi", sniffing.is_envi, (".hdr", ".img", ".dat"), _NO_BAR),
)
"""Every format, in the order in which they are tried: the particular before the general."""

_MOST_NEIGHBOURS = 1000
"""Files among which a similar name is looked for."""

DEFAULTS = {".mat": "matlab"}
"""The format to write where an extension has several: v5 opens everywhere."""


def identify(path: Path) -> Format:
    """The format of a file by its content; on failure the error says what was tried."""
    if is_leftover(path):
        raise FormatError(
            f"{path} was left by a write that was interrupted. "
            + (
                "It is the previous version: rename it back, together with its pair."
                if path.name.endswith(OLD_SUFFIX)
                else "It is not complete: delete it."
            )
        )
    with reading(path, "a file"):
        if _was_swapped(path):
            return next(one for one in FORMATS if one.name == "envi")
        check_exists(path)
    head = b""
    if not path.is_dir():
        with reading(path, "a file"), path.open("rb") as file:
            head = file.read(sniffing.HEAD)
        if not head:
            raise FormatError(f"{path} is empty (0 bytes). Copy or download it again.")
    for candidate in FORMATS:
        with reading(path, candidate.title):
            if candidate.recognises(path, head):
                return candidate
    tried = ", ".join(candidate.title for candidate in FORMATS)
    if path.is_dir():
        raise FormatError(
            f"{path} is a folder without CAVE scenes (…_ms_01.png to …_ms_31.png) in it, the only "
            "folders that are read as a whole. Give one of its files."
        )
    start = "".join(chr(b) if 32 <= b < 127 else "." for b in head[:16])
    hint = sniffing.known_stranger(head) or (
        "Convert it, or, for raw data, write an ENVI header beside it."
    )
    swapped = kept_from_swap(path.with_suffix(".hdr"))
    if swapped:
        hint = f"Its ENVI header was moved to {swapped[0]} by a write that was interrupted."
    raise FormatError(
        f"{path} starts with '{start}', which no known format does. {hint} Tried: {tried}."
    )


def _was_swapped(path: Path) -> bool:
    """Whether a file is missing because a write was interrupted that had all but named it."""
    try:
        return not path.exists() and key_of_swap(path.with_suffix(".hdr")) is not None
    except (OSError, ValueError):
        return False


def check_exists(path: Path) -> None:
    """Raise unless there is a file or a folder: reading from a pipe may take for ever."""
    if _was_swapped(path):
        return
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise DataMissingError(_missing(path)) from None
    except (OSError, ValueError) as problem:  # a name too long, or with a zero in it
        reason = getattr(problem, "strerror", None) or problem
        raise FormatError(f"{path} cannot be opened: {reason}.") from problem
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FormatError(
            f"{path} is a pipe, a socket or a device, not a file. Write what comes out of it to "
            "a file first."
        )


def stored(path: Path) -> tuple[Path, ...]:
    """The files that hold what is at `path`; of one that cannot be read, itself alone."""
    try:
        return identify(path).stored(path)
    except PrismaskError:
        return (path,)


def format_for_writing(path: Path, name: str | None = None) -> Format:
    """The format to write: the one named, or that of the extension."""
    writable = {candidate.name: candidate for candidate in FORMATS if candidate.extensions}
    if name is not None:
        if name not in writable:
            raise FormatError(
                f"no format {name!r} can be written.{nearest(name, writable)} "
                f"Known: {', '.join(writable)}."
            )
        return writable[name]
    extension = path.suffix.lower()
    if extension in DEFAULTS:
        return writable[DEFAULTS[extension]]
    for candidate in writable.values():
        if extension in candidate.extensions:
            return candidate
    known = sorted({ext for candidate in writable.values() for ext in candidate.extensions})
    came = f"extension {extension!r}" if extension else "no extension"
    raise FormatError(f"{path} has {came}; files are written as {', '.join(known)}.")


def extensions_that_keep(what: str) -> list[str]:
    """Extensions of the formats that are written and do not lose `what`."""
    keeping = [candidate for candidate in FORMATS if what not in candidate.loses]
    return sorted({extension for candidate in keeping for extension in candidate.extensions})


def check_writable(path: Path, overwrite: bool = False) -> Format:
    """The format to write, after raising unless all of its files can be made at `path`."""
    chosen = format_for_writing(path)
    for file in chosen.written(path):
        check_output(file, overwrite)
    return chosen


def _missing(path: Path) -> str:
    old = kept_from_swap(path)
    if old:
        names = ", ".join(str(other) for other in old)
        return (
            f"{path} is missing because a write was interrupted while swapping it. The previous "
            f"version was kept as {names}: rename it back (together with its pair)."
        )
    folder = path.parent
    near = islice(folder.iterdir(), _MOST_NEIGHBOURS) if folder.is_dir() else ()
    # Without their endings: every file of a format ends alike.
    others = {other.stem: other.name for other in near}
    meant = closest(path.stem, others)
    hint = "" if meant is None else f" Did you mean {others[meant]!r}?"
    return f"{path} does not exist.{hint}"
