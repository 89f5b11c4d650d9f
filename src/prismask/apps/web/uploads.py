"""What becomes of a file that somebody sends: a name of ours, in a folder of ours.

A dark frame and a flat field that come with a snapshot are corrections made once, when it is taken
in, and so are turns and crops. What is kept is the corrected snapshot with a fitting mask, so
that reconstructing it again needs nothing else.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Literal

from prismask.apps.cli.camera_options import RawFrameOptions
from prismask.apps.web.work import MASK, SNAPSHOT, Order
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import UploadFile

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


DARK, FLAT = "dark.nc", "flat.nc"
"""Names in the folder of a job."""


@dataclass(frozen=True)
class Frames:
    """What somebody sent beside a snapshot."""

    dark: UploadFile | None = None
    flat: UploadFile | None = None
    raw: RawFrameOptions = field(default_factory=RawFrameOptions)
    """How snapshot and mask are turned and cropped, and whether pages are averaged."""

    def check(self, order: Order) -> None:
        """Raise where a dark frame and a dark level contradict each other."""
        if self.dark is not None and order.dark is not None:
            raise ConfigError(
                "a dark frame and a dark level both say what to subtract: give one of them."
            )

    def parts(self) -> Iterator[tuple[UploadFile, Literal["measurement"], str]]:
        """What has to be read, and where it goes."""
        for upload, out in ((self.dark, DARK), (self.flat, FLAT)):
            if upload is not None:
                yield upload, "measurement", out

    def apply(self, folder: Path, order: Order) -> Order:
        """Correct snapshot and mask of a job that have been read; gives the order that then fits.

        Frames of the sensor come first: they are as large as the snapshot before it is turned.
        """
        order = self._correct(folder, order)
        self._turn(folder)
        return order

    def mask_size(self, folder: Path) -> tuple[int, int] | None:
        """Size of the mask after a crop; None where it is as it was sent."""
        from prismask.scenes.formats.files import load_mask

        return None if self.raw.crop_mask is None else load_mask(folder / MASK).size

    def _turn(self, folder: Path) -> None:
        from prismask.scenes.formats.files import load_mask, save

        if self.raw.turn_snapshot is not None:
            turn = RawFrameOptions(turn_snapshot=self.raw.turn_snapshot)
            save(turn.measurement([folder / SNAPSHOT], None), folder / SNAPSHOT, overwrite=True)
        if self.raw.turn_mask is not None or self.raw.crop_mask is not None:
            save(self.raw.mask(load_mask(folder / MASK)), folder / MASK, overwrite=True)

    def _correct(self, folder: Path, order: Order) -> Order:
        if self.dark is None and self.flat is None:
            return order
        import numpy as np

        from prismask.inference.options import Frame, Options
        from prismask.inference.raw_frames import correct
        from prismask.scenes.formats.files import load_measurement, save
        from prismask.scenes.records import Measurement
        from prismask.scenes.units import noted_counts

        shot = load_measurement(folder / SNAPSHOT)
        given = {}
        for name, upload, out in (("dark", self.dark, DARK), ("flat", self.flat, FLAT)):
            if upload is not None:
                frame, called = load_measurement(folder / out), safe_name(upload.filename)
                given[name] = Frame(frame.values, called, noted_counts(frame.attrs))
        # Bad pixels are looked for when the snapshot is reconstructed, where the mask is known.
        options = Options(
            dark=given.get("dark", order.dark), flat=given.get("flat"), bad_pixels="none"
        )
        made = correct(shot, np.ones_like(shot.values), options)
        corrections = [finding.text for finding in made.findings]
        attrs = {**shot.attrs, "corrections": corrections}
        save(Measurement(made.values, attrs), folder / SNAPSHOT, overwrite=True)
        return replace(order, dark=0.0) if self.dark is not None else order
