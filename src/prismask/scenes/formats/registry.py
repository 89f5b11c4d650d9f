"""The list of file formats: how each is recognised by content, and read in the cage.

A format is a module with `read(path) -> Contents` and, if it can be written,
`write(record, path, overwrite)`; one of several files says which with `stored(path)` for those
that are there and `written(path)` for those that `write` makes. Adding one takes that module, a
function here that knows its first bytes (cheap, and importing nothing heavy), and one line in
`FORMATS`. Modules are imported when first used, because some bring heavy parts along.

Parsers written in C crash, loop and overflow on damaged files, so they only ever run in a process
of their own (`prismask.parallel.cage`). What comes back is data: what a file holds as facts, a
`Contents` whose variables read their arrays in the same manner when they are wanted.
"""

from __future__ import annotations

import dataclasses
import math
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from prismask.checks import closest, nearest
from prismask.errors import DataMissingError, FormatError, PrismaskError
from prismask.parallel.cage import (
    CrashError,
    MemoryLimitError,
    TaskFailedError,
    TimeLimitError,
    is_supported,
    run_caged,
)
from prismask.scenes.atomic import (
    OLD_SUFFIX,
    check_output,
    is_leftover,
    kept_from_swap,
    key_of_swap,
)
from prismask.scenes.formats.contents import (
    SECONDS_VARIABLE,
    Contents,
    Listed,
    ReadLimits,
    Variable,
    as_kind,
    bytes_text,
    file_size,
    how_to_raise,
    limits_for,
    plain,
    reading,
    using,
)
from prismask.scenes.records import Record
from prismask.scenes.units import kaist_to_fraction, to_fraction


@dataclass(frozen=True)
class Format:
    """One file format."""

    name: str
    """Short name, for `save(…, format=…)`."""
    title: str
    """Name in messages."""
    module: str
    """Module in `prismask.scenes.formats` that reads and writes it."""
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


HEAD = 1024
"""How many bytes the recognisers look at."""

_HDF5_START = b"\x89HDF\r\n\x1a\n"
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""TIFF and BigTIFF, either byte order."""
_PNG_START = b"\x89PNG\r\n\x1a\n"
ENVI_DATA = (".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", "")
"""Extensions of ENVI data files, in the order in which a header looks for its data."""

_UNSUPPORTED = {
    b"CDF\x01": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"CDF\x02": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"CDF\x05": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"\x80": "This looks like a pickle, which is never loaded: save the array with numpy.save.",
    b"CUBEPAK1": "This is a pack of training scenes: prismask.scenes.cubepack.read_cubepack.",
    b"\xff\xd8\xff": "This is a JPEG, whose compression alters values: use PNG or TIFF.",
}
"""What to do with files that are recognised and not read."""


def is_matlab73(path: Path, head: bytes) -> bool:
    """HDF5 behind MATLAB's 512-byte block, or plain HDF5 called .mat."""
    return (
        head[512:520] == _HDF5_START
        or head.startswith(b"MATLAB 7.3")
        or (head.startswith(_HDF5_START) and path.suffix.lower() == ".mat")
    )


def starts(*with_bytes: bytes) -> Callable[[Path, bytes], bool]:
    """Recognises files by their first bytes alone."""
    return lambda path, head: head.startswith(with_bytes)


def is_kaist_pack(path: Path, head: bytes) -> bool:
    """An archive of 8-bit scenes, each with its maximum: `scene01`, `scene01_max`."""
    if not head.startswith(_ZIP_STARTS):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "scene01_max.npy" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def is_cave_folder(path: Path, head: bytes) -> bool:
    """A folder, at any level, of CAVE scenes."""
    if not path.is_dir():
        return False
    from prismask.scenes.formats.cave import find_scenes

    return bool(find_scenes(path))


def is_matlab(path: Path, head: bytes) -> bool:
    """MATLAB v5 by its header, and whatever else is called .mat, for a fitting error."""
    return (
        head.startswith(b"MATLAB 5.0")
        or head[124:128] in (b"\x00\x01IM", b"\x01\x00MI")
        or (path.suffix.lower() == ".mat" and not path.is_dir())
    )


def is_envi(path: Path, head: bytes) -> bool:
    """An ENVI header (a bad one too, whose reader says what is wrong), or data with one beside."""
    header = path.suffix.lower() == ".hdr" and not path.is_dir()
    return (
        head.startswith(b"ENVI")
        or header
        or header_beside(path) is not None
        or (not path.is_dir() and key_of_swap(path.with_suffix(".hdr")) is not None)
    )


def header_beside(data: Path) -> Path | None:
    """The ENVI header of a data file: `name.hdr` or `name.img.hdr`."""
    if data.is_dir() or data.suffix.lower() not in ENVI_DATA:
        return None
    for header in (data.with_suffix(".hdr"), data.with_name(data.name + ".hdr")):
        if header.is_file() and header != data:
            return header
    return None


_NO_BAR = ("std",)
_HDF5, _TIFF, _PNG = ("h5py",), ("tifffile", "imagecodecs"), ("PIL.Image", "PIL.PngImagePlugin")

FORMATS: tuple[Format, ...] = (
    Format("matlab7.3", "MATLAB v7.3", "matlab73", is_matlab73, (".mat",), parsers=_HDF5),
    Format("netcdf", "NetCDF-4", "netcdf", starts(_HDF5_START), (".nc", ".nc4"), parsers=_HDF5),
    Format(
        "npy", "NPY", "npy", starts(b"\x93NUMPY"), (".npy",), (*_NO_BAR, "wavelengths", "attrs")
    ),
    Format("kaist", "packed KAIST scenes", "kaist", is_kaist_pack),
    Format("npz", "NPZ", "npz", starts(*_ZIP_STARTS), (".npz",)),
    Format("tiff", "TIFF", "tiff", starts(*_TIFF_STARTS), (".tif", ".tiff"), _NO_BAR, _TIFF),
    Format("png", "PNG", "png", starts(_PNG_START), parsers=_PNG),
    Format("cave", "CAVE folder", "cave", is_cave_folder, parsers=_PNG),
    Format("matlab", "MATLAB v5", "matlab", is_matlab, (".mat",)),
    Format("envi", "ENVI", "envi", is_envi, (".hdr", ".img", ".dat"), _NO_BAR),
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
            head = file.read(HEAD)
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
    known = (text for magic, text in _UNSUPPORTED.items() if head.startswith(magic))
    hint = next(known, "Convert it, or, for raw data, write an ENVI header beside it.")
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


SMALL, FEW = 2**20, 16
"""A file of fewer bytes, values and arrays is read at once: a second call would cost more."""

_SCALES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "fraction": to_fraction,
    "kaist": kaist_to_fraction,
    "none": np.asarray,
}


def read_caged(form: Format, path: Path) -> Contents:
    """What a file holds; nothing of it is parsed in this process."""
    if not is_supported():
        return form.read_here(path)
    facts, arrays = _run(form, path, "list_contents", [])
    return _contents(form, path, facts, arrays)


def _read_array(form: Format, path: Path, name: str) -> NDArray[Any]:
    _, (array,) = _run(form, path, "read_array", [name])
    return array


def _run(
    form: Format, path: Path, task: str, arguments: list[Any]
) -> tuple[Any, list[NDArray[Any]]]:
    limits = limits_for(path)
    start = [form.name, str(path), limits.seconds, limits.memory_bytes]
    size = "" if path.is_dir() else f" for a file of {bytes_text(path.stat().st_size)}"
    try:
        return run_caged(f"{__name__}:{task}", [*start, *arguments], limits, form.modules)
    except TimeLimitError as problem:
        raise FormatError(
            f"{path}: reading it as {form.title} was stopped after {limits.seconds:.3g} s, the "
            f"limit{size}. It is damaged, or the disk is slow; then raise the limit: "
            f"{SECONDS_VARIABLE}=600 (or limits=ReadLimits(seconds=…))."
        ) from problem
    except MemoryLimitError as problem:
        raise FormatError(
            f"{path}: reading it as {form.title} takes more than "
            f"{bytes_text(limits.memory_bytes)} of memory, the limit{size}. {how_to_raise()}"
        ) from problem
    except (CrashError, TaskFailedError) as problem:
        raise FormatError(
            f"{path} cannot be read as {form.title}: {str(problem).rstrip('.')}. Is it damaged "
            "or cut short? Copy or download it again."
        ) from problem


def _contents(
    form: Format, path: Path, facts: dict[str, Any], arrays: list[NDArray[Any]]
) -> Contents:
    with reading(path, form.title):
        sent = dict(zip(facts["sent"], arrays, strict=True))
        variables = {}
        for entry in facts["variables"]:
            name = str(entry["name"])
            read = partial(_read_array, form, path, name)
            variables[name] = Variable(
                name,
                tuple(int(n) for n in entry["shape"]),
                str(entry["dtype"]),
                partial(sent.__getitem__, name) if name in sent else read,
                _SCALES[entry["scale"]],
                int(entry["band_axis"]),
                str(entry["note"]),
                bool(entry["is_named"]),
            )
        return Contents(
            str(path),
            str(facts["format"]),
            variables,
            facts["wavelengths"],
            facts["wavelength_units"],
            facts["attrs"],
            as_kind(facts["kind"]),
            tuple(Listed(*one) for one in facts["listed"]),
        )


# --- in the cage ---------------------------------------------------------------------------------


def list_contents(form: str, path: str, seconds: float, memory_bytes: int) -> tuple[Any, list[Any]]:
    """What a file holds; its arrays too where all of them together are small."""
    contents = _open(form, path, seconds, memory_bytes)
    with using(ReadLimits(seconds, memory_bytes)):
        sent = _read_all(contents) if Path(path).is_file() and file_size(Path(path)) < SMALL else {}
    scales = {function: word for word, function in _SCALES.items()}
    variables = []
    for variable in contents.variables.values():
        facts = {
            field.name: getattr(variable, field.name)
            for field in dataclasses.fields(variable)
            if field.name not in ("read", "to_fraction")
        }
        variables.append(plain(facts | {"scale": scales[variable.to_fraction]}))
    wavelengths = contents.wavelengths
    if wavelengths is not None:
        wavelengths = Listed("", wavelengths).values.tolist()
    return {
        "format": contents.format,
        "variables": variables,
        "wavelengths": wavelengths,
        "wavelength_units": plain(contents.wavelength_units),
        "attrs": plain(contents.attrs),
        "kind": contents.kind,
        "listed": [[one.name, one.values.tolist(), one.units] for one in contents.listed],
        "sent": list(sent),
    }, list(sent.values())


def _read_all(contents: Contents) -> dict[str, NDArray[Any]]:
    """The arrays, unless one is large, or cannot be read: whoever wants it then gets the error."""
    usable = [v for v in contents.variables.values() if not v.note]
    if len(usable) > FEW or sum(math.prod(v.shape) for v in usable) > SMALL:
        return {}
    try:
        return {v.name: np.asarray(v.read()) for v in usable}
    except Exception:
        return {}


def read_array(
    form: str, path: str, seconds: float, memory_bytes: int, name: str
) -> tuple[Any, list[NDArray[Any]]]:
    """One array of a file."""
    contents = _open(form, path, seconds, memory_bytes)
    with using(ReadLimits(seconds, memory_bytes)), reading(path, contents.format):
        return None, [np.asarray(contents.variables[name].read())]


def _open(form: str, path: str, seconds: float, memory_bytes: int) -> Contents:
    chosen = next(one for one in FORMATS if one.name == form)
    with using(ReadLimits(seconds, memory_bytes)):
        return chosen.read_here(Path(path))
