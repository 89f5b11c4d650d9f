"""An analysis on the disk.

    analysis.json            what was analysed, and every number
    cubes/MODEL/GROUP/SCENE.npz   a reconstruction with its maps, matrix and spectra
    truth/SCENE.npz          the true cubes: pictures of a data set, not for publishing
    figures/*.png            the same as pictures, where matplotlib is installed

Without the folder `truth` everything but the pictures of the truth can still be drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismask.errors import FormatError, OutputExistsError
from prismask.evaluation.run.runs import RecordFile
from prismask.scenes.atomic import write_beside

RECORD = RecordFile("analysis.json", "prismask-analysis-1", "analysis")
CUBES, TRUTH, FIGURES = "cubes", "truth", "figures"

Arrays = Mapping[str, NDArray[Any]]


def refuse_used(folder: Path, overwrite: bool) -> None:
    """Raise where an analysis lies already, before anything is computed."""
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; give the name of a folder.")
    if (folder / RECORD.name).exists() and not overwrite:
        raise OutputExistsError(
            f"{folder} holds {RECORD.one} already and was kept. Choose another folder with --out, "
            "or give --overwrite."
        )


def safe_name(text: str) -> str:
    """A label as a file name."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "unnamed"


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as compressed NPZ, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_beside(path, overwrite=True) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError) as error:
        raise FormatError(f"{path} is damaged: {error}. Run the analysis again.") from error


def plain(value: Any) -> Any:
    """Only what JSON knows: tuples as lists, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
