"""What other programs find in our files: names, sizes, types, notes, values in their places."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile
from file_examples import WRITTEN, a_cube, a_mask, a_measurement, an_uncertain_mask, write

from prismask import __version__

GOLDEN = Path(__file__).with_name("written_files.txt")
"""`PRISMASK_WRITE_GOLDEN=1 pytest test_written_files.py` writes it anew, after a change that is
meant to change it."""
RECORDS = {"cube": a_cube(), "mask": an_uncertain_mask(3), "measurement": a_measurement()}
ONLY_VALUES = {"cube": a_cube(bare=True), "mask": a_mask(), "measurement": a_measurement()}
INTERNAL = ("_N", "DIMENSION_", "REFERENCE_", "CLASS", "NAME", "_F")
"""How attributes of HDF5 begin that NetCDF needs for itself."""


def line(name: str, array: Any) -> str:
    values = np.asarray(array)
    told = f"{name}: {values.dtype.str} {'×'.join(map(str, values.shape))}"
    if values.dtype.kind in "fiu" and values.size:
        flat = values.astype(np.float64).ravel()
        told += f" {flat[0]:.5g} {flat[1 % flat.size]:.5g} {flat[-1]:.5g} {flat.sum():.5g}"
    return told


def of_hdf5(path: Path) -> Iterator[str]:
    listed: list[str] = []

    def look(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            listed.append(line(name, node[()]))
            listed.append(f"  chunks {node.chunks}, {node.compression}")
        for key, value in node.attrs.items():
            if not key.startswith(INTERNAL):
                plain = value.decode() if isinstance(value, bytes) else value
                listed.append(f"  {name or '/'}.{key} = {plain!r}")

    with h5py.File(path) as file:
        look("", file)
        file.visititems(look)
    yield from (one.replace("np.bytes_", "").replace("np.str_", "") for one in listed)


def of_matlab(path: Path) -> Iterator[str]:
    for name, value in sorted(scipy.io.loadmat(path).items()):
        if not name.startswith("__"):
            text = np.asarray(value).dtype.kind == "U"
            yield f"{name} = {value!r}" if text else line(name, value)


def of_tiff(path: Path) -> Iterator[str]:
    with tifffile.TiffFile(path) as file:
        for number, page in enumerate(file.pages):
            yield line(f"page {number}", page.asarray())
            tags = {tag.name: tag.value for tag in page.tags if "Offset" not in tag.name}
            about = tags.pop("ImageDescription", None)
            tags.pop("Software", None)
            yield f"  {json.dumps(tags, default=str, sort_keys=True)}"
            if about:
                yield f"  {json.dumps(json.loads(about), sort_keys=True)}"


def found_in(path: Path, name: str | None) -> Iterator[str]:
    if path.suffix == ".nc" or name == "matlab7.3":
        yield from of_hdf5(path)
    elif path.suffix == ".mat":
        yield from of_matlab(path)
    elif path.suffix == ".tif":
        yield from of_tiff(path)
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive, np.load(path) as arrays:
            for info in archive.infolist():
                array = arrays[info.filename.removesuffix(".npy")]
                text = f" = {array}" if array.dtype.kind == "U" else ""
                yield f"{line(info.filename, array)}{text} method {info.compress_type}"
    elif path.suffix == ".npy":
        yield line("array", np.load(path))
    else:
        for part in sorted(path.parent.glob(f"{path.stem}*")):
            is_text = part.suffix == ".hdr"
            yield f"{part.suffix}: {'' if is_text else line('', np.fromfile(part, '<f4'))}"
            yield from part.read_text(encoding="utf-8").splitlines() if is_text else ()


def test_they_are_as_they_were(tmp_path: Path) -> None:
    told: list[str] = []
    for extension, name in WRITTEN:
        for kind, record in (ONLY_VALUES if extension == ".npy" else RECORDS).items():
            folder = tmp_path / f"{extension[1:]}-{name}-{kind}"
            folder.mkdir()
            path = write(record, folder, kind, extension, name)
            told += [f"## {extension} {name or ''} {kind}".strip(), *found_in(path, name), ""]
    text = "\n".join(told).replace(__version__, "#")
    if os.environ.get("PRISMASK_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    kept = GOLDEN.read_text(encoding="utf-8")
    assert text.splitlines() == kept.splitlines()


def test_the_first_bytes_of_matlab_files_say_so(tmp_path: Path) -> None:
    for name, version in (("matlab", b"\x00\x01IM"), ("matlab7.3", b"\x00\x02IM")):
        start = write(a_mask(), tmp_path, f"m-{name}", ".mat", name).read_bytes()[:128]
        assert start[:7] == b"MATLAB "
        assert start[124:] == version


@pytest.mark.parametrize("text", ["grün", "a" * 300, ""])
def test_texts_of_matlab_are_16_bit_letters(tmp_path: Path, text: str) -> None:
    from dataclasses import replace

    path = write(replace(a_mask(), attrs={"note": text}), tmp_path, "m", ".mat", "matlab7.3")
    with h5py.File(path) as file:
        letters = "".join(map(chr, file["provenance"][()].ravel()))
        assert file["provenance"].attrs["MATLAB_int_decode"] == 2
    assert json.loads(letters) == {"note": text}
