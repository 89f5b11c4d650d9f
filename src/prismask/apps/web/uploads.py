"""What becomes of a file that somebody sends: a name of ours, in a folder of ours."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path, PurePosixPath
from typing import IO

LONGEST_NAME = 80
SUFFIXES = (".nc", ".nc4", ".mat", ".npy", ".npz", ".tif", ".tiff", ".png", ".hdr", ".h5", ".hdf5")
"""Endings that say something about the format; any other is dropped."""


def safe_name(name: str | None) -> str:
    """A client's file name as text to show: no folders, no control characters, not too long."""
    last = PurePosixPath((name or "").replace("\\", "/")).name
    shown = "".join(c for c in last if unicodedata.category(c)[0] != "C").strip()
    return shown[-LONGEST_NAME:] if shown.strip(".") else "file"


def keep_upload(file: IO[bytes], name: str | None, folder: Path, stem: str) -> Path:
    """Copy an upload into `folder`; its own name decides nothing but a known ending."""
    suffix = PurePosixPath(safe_name(name)).suffix.lower()
    # Formats without names call their array after the file, so the stem says what it is.
    path = folder / f"{stem}{suffix if suffix in SUFFIXES else ''}"
    file.seek(0)
    with path.open("xb") as out:
        shutil.copyfileobj(file, out, 2**20)
    return path
