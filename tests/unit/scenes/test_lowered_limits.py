"""A lowered limit holds for arrays that are not packed too, and for scenes in several files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prismask.errors import FormatError
from prismask.scenes.formats.contents import ReadLimits, using
from prismask.scenes.formats.files import describe, load, save
from prismask.scenes.libraries import load_library
from prismask.scenes.records import Cube

VALUES = np.random.default_rng(0).random((3, 200, 300), dtype=np.float32)
"""720 kB as float32."""
LOW, ENOUGH = ReadLimits(memory_bytes=2 * 10**6), ReadLimits(memory_bytes=10**9)
TOLD = r"would take \S+ [kM]B; arrays of this file may take 500 kB.*PRISMASK_READ_MEMORY"


def _written(folder: Path, name: str) -> Path:
    save(Cube(VALUES, [450.0, 500.0, 550.0]), folder / name)
    return folder / name


def _counts(folder: Path) -> Path:
    """A quarter of the size in the file: as a record it takes as much as any other."""
    np.save(folder / "counts.npy", (255 * VALUES).astype(np.uint8))
    return folder / "counts.npy"


def _kaist(folder: Path) -> Path:
    packed = (255 * VALUES).astype(np.uint8)
    np.savez(folder / "k.npz", scene01=packed, scene01_max=1.0, wavelengths_nm=[450.0, 500, 550])
    return folder / "k.npz"


def _cave(folder: Path) -> Path:
    pixels = (255 * VALUES[0]).astype(np.uint8)
    for band in range(1, 32):
        Image.fromarray(pixels).save(folder / f"one_ms_{band:02d}.png")
    return folder


MADE: dict[str, Callable[[Path], Path]] = {
    "npy": lambda folder: _written(folder, "x.npy"),
    "envi": lambda folder: _written(folder, "x.hdr"),
    "netcdf": lambda folder: _written(folder, "x.nc"),
    "counts": _counts,
    "kaist": _kaist,
    "cave": _cave,
}


@pytest.mark.parametrize("kind", MADE)
def test_no_array_takes_more_than_was_allowed(tmp_path: Path, kind: str) -> None:
    path = MADE[kind](tmp_path)
    with pytest.raises(FormatError, match=TOLD):
        load(path, "cube", limits=LOW)
    assert load(path, "cube", limits=ENOUGH).values.shape[1:] == VALUES.shape[1:]
    assert load(path, "cube").values.shape[1:] == VALUES.shape[1:], "by its size it may be read"


@pytest.mark.parametrize("extension", [".npy", ".hdr"])
def test_the_environment_lowers_it_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str
) -> None:
    path = _written(tmp_path, f"x{extension}")
    monkeypatch.setenv("PRISMASK_READ_MEMORY", "2MB")
    for look in (load, describe):
        with pytest.raises(FormatError, match=TOLD):
            look(path)


def test_spectral_libraries_are_bound_by_it(tmp_path: Path) -> None:
    at = np.linspace(400, 700, 3000)
    np.random.default_rng(0).random((60, 3000), dtype=np.float32).tofile(tmp_path / "lib.sli")
    (tmp_path / "lib.hdr").write_text(
        "ENVI\nsamples = 3000\nlines = 60\nbands = 1\ndata type = 4\ninterleave = bsq\n"
        "file type = ENVI Spectral Library\nbyte order = 0\nwavelength units = Nanometers\n"
        f"wavelength = {{{', '.join(map(str, at))}}}\n"
    )
    with using(LOW), pytest.raises(FormatError, match=TOLD):
        load_library(tmp_path / "lib.sli")
    assert len(load_library(tmp_path / "lib.sli")) == 60
