"""Recognising formats by their first bytes; each function is cheap and imports nothing heavy."""

from __future__ import annotations

import zipfile
from pathlib import Path

from prismask.scenes.atomic import key_of_swap

HEAD = 1024
"""How many bytes the recognisers look at."""

_HDF5 = b"\x89HDF\r\n\x1a\n"
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
ENVI_DATA = (".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", "")
"""Extensions of ENVI data files, in the order in which a header looks for its data."""

_STRANGERS = {
    b"CDF\x01": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"CDF\x02": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"CDF\x05": "This is NetCDF-3: convert it with `nccopy -k nc4 old.nc new.nc`.",
    b"\x80": "This looks like a pickle, which is never loaded: save the array with numpy.save.",
    b"CUBEPAK1": "This is a pack of training scenes: prismask.scenes.cubepack.read_cubepack.",
    b"\xff\xd8\xff": "This is a JPEG, whose compression alters values: use PNG or TIFF.",
}


def known_stranger(head: bytes) -> str:
    """What to do with a file of a recognised but unsupported format, or an empty string."""
    return next((text for magic, text in _STRANGERS.items() if head.startswith(magic)), "")


def is_matlab73(path: Path, head: bytes) -> bool:
    """HDF5 behind MATLAB's 512-byte block, or plain HDF5 called .mat."""
    return (
        head[512:520] == _HDF5
        or head.startswith(b"MATLAB 7.3")
        or (head.startswith(_HDF5) and path.suffix.lower() == ".mat")
    )


def is_hdf5(path: Path, head: bytes) -> bool:
    """HDF5, which NetCDF-4 is."""
    return head.startswith(_HDF5)


def is_npy(path: Path, head: bytes) -> bool:
    """A single NumPy array."""
    return head.startswith(b"\x93NUMPY")


def is_zip(path: Path, head: bytes) -> bool:
    """A zip archive, which .npz is."""
    return head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06")


def is_kaist_pack(path: Path, head: bytes) -> bool:
    """An archive of 8-bit scenes, each with its maximum: `scene01`, `scene01_max`."""
    if not is_zip(path, head):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "scene01_max.npy" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def is_tiff(path: Path, head: bytes) -> bool:
    """TIFF or BigTIFF, either byte order."""
    return head.startswith(_TIFF)


def is_png(path: Path, head: bytes) -> bool:
    """PNG."""
    return head.startswith(b"\x89PNG\r\n\x1a\n")


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
