"""Spectral libraries on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prismask.apps.cli.terminal import remark

if TYPE_CHECKING:
    from prismask.scenes.libraries import SpectralLibrary
    from prismask.scenes.records import Cube


def library_for(record: Cube, files: list[Path] | None) -> SpectralLibrary | None:
    """The materials at the cube's bands; those that do not reach them are told."""
    import warnings

    from prismask.errors import PrismaskWarning, ValuesError
    from prismask.scenes.libraries import load_library

    if files is None:
        return None
    if record.wavelengths is None:
        raise ValuesError("the wavelengths of this cube are unknown; give them: --wavelengths.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrismaskWarning)
        ready = load_library(files).at(record.wavelengths)
    for one in caught:
        remark(f"note: {one.message}")
    return ready
