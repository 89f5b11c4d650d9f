"""Results that can be looked at, each behind an id that cannot be guessed."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text
from prismask.errors import DataMissingError, ShapeError
from prismask.scenes.libraries import SpectralLibrary
from prismask.scenes.records import Cube, Mask, Measurement
from prismask.scenes.resample import check_same_bands

PERCENTILE = 99.5
Stretch = Literal["top", "percent1", "percent2", "full"]
CLIPPED: dict[Stretch, float] = {"percent1": 1.0, "percent2": 2.0, "full": 0.0}
"""Percent of the values left out at either end; `top` runs from zero to the 99.5th percentile."""
SAMPLED = 2_000_000
"""Percentiles of larger arrays are taken from about this many of their values."""


@dataclass(eq=False)
class Result:
    """A cube and what is shown beside it; never changed once it is in a store."""

    name: str
    cube: Cube
    reference: Cube | None = None
    """The truth, of the cube's shape and at its wavelengths."""
    snapshot: Measurement | None = None
    mask: Mask | None = None
    others: tuple[tuple[str, str], ...] = ()
    """Id and name of results whose spectra are drawn beside this one's."""
    library: SpectralLibrary | None = None
    """Materials at the cube's bands, whose spectra are drawn beside."""
    order: Any = None
    """How it was made here (`work.Order`); None: it came from a file."""
    seconds: float | None = None
    """How long that took."""
    made: float = field(default_factory=time.time)
    """Seconds since 1970."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    _limits: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.reference is not None and self.reference.values.shape != self.cube.values.shape:
            raise ShapeError(
                f"the reference is {size_text(self.reference.values.shape)} and the cube "
                f"{size_text(self.cube.values.shape)}: an error needs the same bands and size."
            )
        if self.reference is not None:
            check_same_bands(self.cube, self.reference)

    @property
    def has_uncertainty(self) -> bool:
        """Whether the cube has an error bar of either kind."""
        return self.cube.std is not None or self.has_interval

    @property
    def has_interval(self) -> bool:
        """Whether both ends of an interval are known."""
        return self.cube.lower is not None and self.cube.upper is not None

    def uncertainty(self, band: int) -> NDArray[np.float32]:
        """The standard deviation of a band, else half the width of its interval, `(H, W)`."""
        cube = self.cube
        if cube.std is not None:
            return np.asarray(cube.std[band])
        if cube.lower is None or cube.upper is None:
            raise DataMissingError("this cube has no error bars.")
        return np.asarray((cube.upper[band] - cube.lower[band]) / 2)

    def error(self, band: int) -> NDArray[np.float32]:
        """Cube less reference in a band, `(H, W)`."""
        if self.reference is None:
            raise DataMissingError("there is no reference to compare this cube with.")
        return np.asarray(self.cube.values[band] - self.reference.values[band])

    def limits(self, band: int | None, stretch: Stretch) -> tuple[float, float]:
        """The values shown black and white in a band; None: the same in all bands."""
        values = self.cube.values if band is None else self.cube.values[band]
        return self.plane_limits(f"band {band}", values, stretch)

    def plane_limits(
        self, name: str, values: NDArray[Any], stretch: Stretch
    ) -> tuple[float, float]:
        """The same for anything, computed once under its `name`."""
        return self.remembered(f"{name} {stretch}", lambda: limits_of(values, stretch))

    def remembered(
        self, name: str, compute: Callable[[], tuple[float, float]]
    ) -> tuple[float, float]:
        """Two numbers, computed when first asked for."""
        held = self._limits.get(name)
        if held is None:
            held = self._limits[name] = compute()
        return held

    @cached_property
    def uncertainty_top(self) -> float:
        """The largest uncertainty on the colour scale, the same for all bands."""
        return max(top_of(self.uncertainty(band)) for band in range(self.cube.bands))

    @cached_property
    def error_top(self) -> float:
        """The largest error on the colour scale, the same for all bands."""
        return max(top_of(np.abs(self.error(band))) for band in range(self.cube.bands))

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        cubes = [self.cube] if self.reference is None else [self.cube, self.reference]
        parts: list[Any] = [p for c in cubes for p in (c.values, c.std, c.lower, c.upper)]
        parts += [record.values for record in (self.snapshot, self.mask) if record is not None]
        return sum(int(part.nbytes) for part in parts if part is not None)


class ResultStore:
    """Results by id, within a bound of memory, and the folder for files made of them."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._results: dict[str, Result] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def add(self, result: Result) -> Result:
        """Keep a result; the oldest ones go where memory would run out."""
        gone = []
        with self._lock:
            self._results[result.id] = result
            while self._bytes() > self._most_bytes and len(self._results) > 1:
                oldest = next(iter(self._results))
                gone.append(oldest)
                del self._results[oldest]
        for old in gone:
            self._path(old).unlink(missing_ok=True)
        return result

    def get(self, key: str) -> Result:
        """The result with this id; `DataMissingError` where there is none (any more)."""
        found = self._results.get(key)
        if found is None:
            raise DataMissingError("there is no such result, or it has been removed since.")
        return found

    def listed(self) -> list[Result]:
        """All of them, the newest first."""
        with self._lock:
            return list(reversed(self._results.values()))

    def remove(self, key: str) -> None:
        """Forget a result and its file."""
        with self._lock:
            self._results.pop(key, None)
        with self._writing:
            self._path(key).unlink(missing_ok=True)

    def netcdf(self, key: str) -> Path:
        """The result as a NetCDF file, written when first asked for."""
        from prismask.scenes.formats.files import save

        with self._writing:
            result = self.get(key)
            path = self._path(result.id)
            if not path.exists():
                save(result.cube, path)
            return path

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.nc"

    def _bytes(self) -> int:
        return sum(result.nbytes for result in self._results.values())


def limits_of(values: NDArray[Any], stretch: Stretch) -> tuple[float, float]:
    """The values shown black and white."""
    if stretch == "top":
        return 0.0, top_of(values)
    clipped = CLIPPED[stretch]
    if clipped == 0:
        low, high = float(values.min()), float(values.max())
    else:
        low, high = (float(v) for v in np.percentile(_some(values), (clipped, 100 - clipped)))
    return (low, high) if low < high else (low, low + 1.0)


def top_of(values: NDArray[Any]) -> float:
    """The 99.5th percentile, or 1 where that is not above zero."""
    top = float(np.percentile(_some(values), PERCENTILE))
    return top if top > 0 else 1.0


def _some(values: NDArray[Any]) -> NDArray[Any]:
    flat = values.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLED)]
