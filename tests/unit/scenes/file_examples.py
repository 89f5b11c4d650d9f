"""Small records and the formats that hold them, shared by the tests of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prismask.scenes.formats.files import save
from prismask.scenes.records import Cube, Mask, Measurement, Record

WRITTEN = [
    (".nc", None), (".mat", "matlab"), (".mat", "matlab7.3"), (".npz", None), (".npy", None),
    (".tif", None), (".hdr", None), (".img", None), (".dat", None),
]  # fmt: skip
"""Every way to write a record: extension and format."""
IDS = [f"{extension}-{name}" if name else extension for extension, name in WRITTEN]

ATTRS: dict[str, Any] = {
    "scene": "grün {brace} 100% = 1\nsecond line",
    "seed": 7,
    "noise": 0.25,
    "nested": {"steps": [1, 2.5, None, True]},
}


def a_cube(bands: int = 3, height: int = 5, width: int = 4, bare: bool = False) -> Cube:
    generator = np.random.default_rng(bands * 100 + height * 10 + width)
    values, std, below, above = generator.random((4, bands, height, width), dtype=np.float32)
    wavelengths = 450.0 + 10.25 * np.arange(bands)
    if bare:
        return Cube(values, wavelengths, attrs=ATTRS)
    return Cube(values, wavelengths, std, values - below, values + above, ATTRS)


def a_mask(height: int = 5, width: int = 4) -> Mask:
    values = np.random.default_rng(height).random((height, width), dtype=np.float32)
    return Mask(values, attrs=ATTRS)


def a_mask_per_band(bands: int = 3, height: int = 5, width: int = 4) -> Mask:
    values = np.random.default_rng(bands).random((bands, height, width), dtype=np.float32)
    return Mask(values, 500.0 + 7.5 * np.arange(bands), ATTRS)


def an_uncertain_mask(bands: int = 0, one_plane: bool = False) -> Mask:
    """A mask that says how far it may be wrong: like itself, or in one plane for all bands."""
    mask = a_mask_per_band(bands) if bands else a_mask()
    std = 0.1 * np.random.default_rng(9).random(mask.values.shape, dtype=np.float32)
    return replace(mask, std=std[0] if one_plane else std)


def a_measurement(height: int = 5, width: int = 9) -> Measurement:
    values = np.random.default_rng(width).random((height, width), dtype=np.float32)
    return Measurement(values * 3 - 1, ATTRS)


RECORDS = {
    "cube": a_cube(),
    "mask": a_mask(),
    "mask_per_band": a_mask_per_band(),
    "uncertain_mask": an_uncertain_mask(),
    "uncertain_mask_per_band": an_uncertain_mask(3),
    "mask_per_band_alike_uncertain": an_uncertain_mask(3, one_plane=True),
    "measurement": a_measurement(),
}


def write(record: Record, folder: Path, stem: str, extension: str, name: str | None) -> Path:
    path = folder / f"{stem}{extension}"
    save(record, path, overwrite=True, format=name)
    return path


def same(one: Record, other: Record) -> bool:
    """Whether two records agree in everything, bit for bit."""
    parts = ("values", "wavelengths", "std", "lower", "upper")
    return (
        type(one) is type(other)
        and dict(one.attrs) == dict(other.attrs)
        and all(
            (a is None and b is None) or np.array_equal(a, b)
            for a, b in ((getattr(one, p, None), getattr(other, p, None)) for p in parts)
        )
    )
