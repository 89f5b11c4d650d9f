"""Files made to do harm, each by a function `make(folder) -> path`."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tifffile
from file_examples import a_cube

from prismask.scenes.formats.files import save

Make = Callable[[Path], Path]
SECRET = "a file of this computer that nobody asked for"


def _hdf5(folder: Path, **arrays: Any) -> Path:
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return path


# --- parsers that crash or loop ------------------------------------------------------------------


def zeroed_chunk_addresses(folder: Path) -> Path:
    """HDF5 unpacks chunks from addresses that lead nowhere."""
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        values = np.random.default_rng(0).random((8, 32, 32), dtype=np.float32)
        file.create_dataset(
            "cube", data=values, chunks=(2, 16, 16), compression="gzip", fletcher32=True
        )
    content = bytearray(path.read_bytes())
    start = content.find(b"TREE\x01")  # the tree of chunks: keys of 40 bytes, then addresses
    assert start > 0
    for entry in range(struct.unpack_from("<H", content, start + 6)[0]):
        place = start + 24 + 48 * entry + 40
        content[place : place + 8] = bytes(8)
    path.write_bytes(bytes(content))
    return path


def heap_without_end(folder: Path) -> Path:
    """HDF5 walks for ever over free space of no size."""
    path = folder / "file.nc"
    save(a_cube(), path)
    content = bytearray(path.read_bytes())
    start = content.find(b"GCOL")
    assert start > 0
    end = start + struct.unpack_from("<Q", content, start + 8)[0]
    place = start + 16
    while place + 16 <= end:
        index, size = struct.unpack_from("<H6xQ", content, place)
        if index == 0:
            struct.pack_into("<Q", content, place + 8, 0)
            break
        place += 16 + size + -size % 8
    path.write_bytes(bytes(content))
    return path


CRASHES: list[Make] = [zeroed_chunk_addresses, heap_without_end]


# --- files that lead to others -------------------------------------------------------------------


def _secret(folder: Path) -> Path:
    path = folder / "secret.bin"
    path.write_bytes(np.frombuffer(SECRET.encode(), np.uint8).tobytes().ljust(64))
    return path


def external_storage(folder: Path) -> Path:
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        outside = [(str(_secret(folder)), 0, 64)]
        file.create_dataset("cube", (4, 4, 4), np.uint8, external=outside)
    return path


def external_storage_in_mat(folder: Path) -> Path:
    path = folder / "file.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        outside = [(str(_secret(folder)), 0, 64)]
        cube = file.create_dataset("cube", (4, 4, 4), np.uint8, external=outside)
        cube.attrs["MATLAB_class"] = np.bytes_("uint8")
    return path


def external_link(folder: Path) -> Path:
    with h5py.File(folder / "other.h5", "w") as other:
        other["cube"] = np.ones((4, 4, 4))
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = h5py.ExternalLink("other.h5", "/cube")
    return path


def soft_link_through_an_external_one(folder: Path) -> Path:
    path = external_link(folder)
    with h5py.File(path, "a") as file:
        file["img"] = h5py.SoftLink("/cube")
    return path


def virtual_array(folder: Path) -> Path:
    external_link(folder)
    path = folder / "virtual.h5"
    layout = h5py.VirtualLayout((4, 4, 4), np.float64)
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "cube", (4, 4, 4))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("cube", layout)
    return path


OUTSIDE: list[Make] = [
    external_storage, external_storage_in_mat, external_link, soft_link_through_an_external_one,
    virtual_array,
]  # fmt: skip


# --- bombs ---------------------------------------------------------------------------------------


def long_wavelengths(folder: Path) -> Path:
    """Half a megabyte that unpacks to gigabytes, read because of its name."""
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.ones((3, 4, 5))
        file.create_dataset(
            "wavelengths", (575_000_000,), "f8", chunks=(10**7,), compression="gzip",
            compression_opts=9,
        )  # fmt: skip
        for start in range(0, 40_000_000, 10**7):
            file["wavelengths"][start : start + 10**7] = 0
    return path


def _npy(shape: tuple[int, ...]) -> bytes:
    head = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode().ljust(117)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + head + b"\n"


def long_npz_wavelengths(folder: Path) -> Path:
    path = folder / "file.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("cube.npy", _npy((2, 3, 4)) + bytes(192))
        with archive.open("wavelengths.npy", "w", force_zip64=True) as member:
            member.write(_npy((68_000_000,)))
            for _ in range(544):
                member.write(bytes(10**6))
    return path


def npz_header(folder: Path) -> Path:
    """The header of an array, of which the file says that it takes four gigabytes."""
    path = folder / "file.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("cube.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1))
        for _ in range(200):
            member.write(b" " * 10**6)
    return path


def large_chunk(folder: Path) -> Path:
    """A small array in chunks of gigabytes."""
    path = folder / "file.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "cube", (4, 4, 4), np.uint8, chunks=(1000, 1000, 3000), maxshape=(None, None, None),
            compression="gzip",
        )  # fmt: skip
        packed = zlib.compress(bytes(10**6), 9)
        file["cube"].id.write_direct_chunk((0, 0, 0), packed)
    return path


def large_tile(folder: Path) -> Path:
    """A small image in one tile of gigabytes."""
    path = folder / "file.tif"
    image = np.ones((64, 64), np.uint8)
    tifffile.imwrite(path, image, tile=(64, 64), compression="zlib", photometric="minisblack")
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        for name in ("TileWidth", "TileLength"):
            tag = file.pages[0].tags[name]
            content[tag.offset + 2 : tag.offset + 4] = struct.pack("<H", 4)
            content[tag.offset + 8 : tag.offset + 12] = struct.pack("<I", 64_000)
    path.write_bytes(bytes(content))
    return path


def packed_v5(folder: Path) -> Path:
    """A few megabytes of MATLAB v5 that unpack to hundreds."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    count = 600 * 10**6
    inside = (
        element(6, struct.pack("<II", 9, 0))
        + element(5, struct.pack("<iii", 600, 1000, 1000))
        + element(1, b"cube")
        + struct.pack("<II", 2, count)
    )
    packer = zlib.compressobj(1)
    packed = packer.compress(struct.pack("<II", 14, len(inside) + count) + inside)
    packed += b"".join(packer.compress(bytes(10**7)) for _ in range(60)) + packer.flush()
    path = folder / "file.mat"
    header = b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + b"\x00\x01IM"
    path.write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    return path


def many_arrays(folder: Path) -> Path:
    path = folder / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(20_000):
            file.create_dataset(f"a{number}", (), "f4")
    return path


def many_groups(folder: Path) -> Path:
    path = folder / "file.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(2000):
            file.create_dataset(f"g{number}/wavelength", data=[400.0, 500.0])
    return path


def many_members(folder: Path) -> Path:
    path = folder / "file.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"a{number}.npy", _npy((1,)) + bytes(8))
    return path


def open_brace(folder: Path) -> Path:
    path = folder / "file.hdr"
    path.write_text("ENVI\nwavelength = {\n" + "400,\n" * 3_000_000)
    (folder / "file.img").write_bytes(bytes(60))
    return path


BOMBS: list[Make] = [
    long_wavelengths, long_npz_wavelengths, npz_header, large_chunk, large_tile, packed_v5,
    many_arrays, many_groups, many_members, open_brace,
]  # fmt: skip


# --- odd types, texts and numbers ----------------------------------------------------------------

DIGITS = "9" * 400


def _tiff(about: str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / "file.tif"
        cube = np.full((3, 4, 5), 0.5, np.float32)
        tifffile.imwrite(path, cube, photometric="minisblack", metadata=None, description=about)
        return path

    return make


def _envi(**changes: str) -> Make:
    def make(folder: Path) -> Path:
        fields = {
            "samples": "4", "lines": "5", "bands": "3", "data type": "4", "interleave": "bsq",
            "byte order": "0", **{key.replace("_", " "): value for key, value in changes.items()},
        }  # fmt: skip
        path = folder / "file.hdr"
        path.write_text("\n".join(["ENVI", *(f"{key} = {v}" for key, v in fields.items())]))
        (folder / "file.img").write_bytes(np.full(60, 0.5, "<f4").tobytes())
        return path

    return make


def _npz(**arrays: Any) -> Make:
    def make(folder: Path) -> Path:
        np.savez(folder / "file.npz", **arrays)
        return folder / "file.npz"

    return make


def _netcdf(**attrs: Any) -> Make:
    def make(folder: Path) -> Path:
        path = _hdf5(folder, cube=np.full((3, 4, 5), 0.5))
        with h5py.File(path, "a") as file:
            file.attrs.update(attrs)
        return path

    return make


CUBE = np.full((3, 4, 5), 0.5, np.float32)
ODD: dict[str, Make] = {
    "tiff provenance is a list": _tiff('{"prismask": 1, "provenance": [1]}'),
    "tiff wavelengths are a text": _tiff('{"prismask": 1, "wavelengths_nm": "blue"}'),
    "tiff wavelengths are objects": _tiff('{"prismask": 1, "wavelengths_nm": [{}, {}, {}]}'),
    "tiff wavelengths of 400 digits": _tiff(
        f'{{"prismask": 1, "wavelengths_nm": [1, 2, {DIGITS}]}}'
    ),
    "tiff pages are a list": _tiff('{"prismask": 1, "pages": [3]}'),
    "tiff kind is a list": _tiff('{"prismask": 1, "kind": ["cube"]}'),
    "tiff description nested": _tiff("[" * 100_000),
    "tiff number of 5000 digits": _tiff(f'{{"prismask": {"9" * 5000}}}'),
    "envi lines of 400 digits": _envi(lines=DIGITS),
    "envi offset of 400 digits": _envi(header_offset=DIGITS),
    "envi wavelength of 400 digits": _envi(wavelength=f"{{400, 500, {DIGITS}}}"),
    "envi scale of 400 digits": _envi(reflectance_scale_factor=DIGITS),
    "envi scale of nothing": _envi(reflectance_scale_factor="{}"),
    "envi provenance missing": _envi(prismask_kind="cube"),
    "envi provenance is a number": _envi(prismask_kind="cube", prismask_provenance="{3}"),
    "envi data file is a folder": _envi(prismask_data_file=".."),
    "npz provenance is a number": _npz(cube=CUBE, kind="cube", provenance="3"),
    "npz provenance with a lone surrogate": _npz(
        cube=CUBE, kind="cube", provenance='{"a": "\\ud800"}'
    ),
    "npz provenance is deep": _npz(cube=CUBE, kind="cube", provenance='{"a":' * 5000),
    "npz kind is an array": _npz(cube=CUBE, kind=np.array(["cube", "mask"])),
    "npz wavelengths are not finite": _npz(cube=CUBE, wavelengths=[np.nan, np.inf, 1.0]),
    "netcdf kind is a number": _netcdf(prismask_kind=3),
    "netcdf kind is an array": _netcdf(prismask_kind=np.arange(3)),
    "netcdf provenance is a number": _netcdf(prismask_kind="cube", provenance=3),
    "netcdf attribute is empty": _netcdf(nothing=h5py.Empty("f4")),
    "netcdf attribute is no text": _netcdf(raw=np.void(b"\xff\xfe")),
}


def not_utf8(folder: Path) -> Path:
    """A file of which neither the name nor the names inside are text."""
    path = Path(os.fsdecode(os.fsencode(folder) + b"/sc\xffene.h5"))
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((3, 4, 5))
        h5py.h5d.create(file.id, b"cu\xffbe", h5py.h5t.IEEE_F32LE, space)
        h5py.h5d.create(file.id, b"\xff\xfe", h5py.h5t.IEEE_F32LE, space)
    return path


ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def with_escapes(folder: Path, extension: str) -> Path:
    """A file whose names and attributes hold what a terminal would obey."""
    path = folder / f"file{extension}"
    if extension == ".h5":
        _hdf5(folder, **{f"cube{ESCAPE}": CUBE, f"other{ESCAPE}": CUBE})
        with h5py.File(path, "a") as file:
            file.attrs[f"title{ESCAPE}"] = f"a{ESCAPE}b\u202ec"
    elif extension == ".npz":
        provenance = json.dumps({"title": f"a{ESCAPE}b"})
        np.savez(path, cube=CUBE, kind="cube", provenance=provenance, **{f"x{ESCAPE}": CUBE})
    else:
        _envi(description=f"{{a{ESCAPE}b}}")(folder)
    return path
