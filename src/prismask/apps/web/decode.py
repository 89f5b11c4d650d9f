"""Reading what a stranger sent: runs in a cage, never in the server.

The header is judged before anything is decoded. What passes is written again as a file of our
own, and only that is read by the reconstruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from prismask.apps.web.limits import Limits
from prismask.checks import size_text
from prismask.errors import FormatError, PrismaskError
from prismask.parallel.cage import Limits as CageLimits
from prismask.parallel.cage import is_supported, run_caged
from prismask.scenes.formats.contents import how_to_raise
from prismask.scenes.formats.files import save
from prismask.scenes.formats.registry import FORMATS, identify
from prismask.scenes.formats.selection import decide, make_record, read_pages
from prismask.scenes.records import Record

Part = Literal["measurement", "exposures", "mask"]

ACCEPTED = ("netcdf", "matlab", "matlab7.3", "npy", "npz", "tiff", "png")
"""Formats that are one file with one array; ENVI is two files, packs hold many scenes."""
INSTEAD = "Crop it, or use `prismask reconstruct` on your own machine."
PARSERS = {name for form in FORMATS if form.name in ACCEPTED for name in form.modules}


def decode_caged(
    source: Path,
    shown_name: str,
    kind: Part,
    out: Path,
    limits: Limits,
    is_cancelled: Callable[[], bool],
) -> list[int]:
    """Check an upload and write it to `out` as NetCDF, in a process of its own; gives its size.

    `shown_name` replaces the path in messages: it is what the person knows the file by, and
    where we keep it is nobody's business.
    """
    arguments = (str(source), kind, str(out), limits.values)
    allowed = CageLimits(limits.check_seconds, limits.memory)
    modules = sorted({__name__, *PARSERS})
    try:
        if is_supported():
            name = f"{__name__}:{decode.__name__}"
            size, _ = run_caged(name, arguments, allowed, modules, is_cancelled)
        else:
            size, _ = decode(*arguments)
        return [int(n) for n in size]
    except FormatError as problem:
        text = str(problem).replace(str(source), shown_name).replace(str(source.parent), "")
        raise FormatError(text) from problem
    finally:
        source.unlink(missing_ok=True)


def decode(source: str, kind: Part, out: str, most_values: int) -> tuple[list[int], list[Any]]:
    """The task: what was sent, as a file of ours."""
    path = Path(source)
    try:
        form = identify(path)
        if form.name not in ACCEPTED:
            raise FormatError(
                f"{path} is {form.title}, which cannot be uploaded. Send NetCDF, MATLAB, NPY, NPZ, "
                "TIFF or PNG; `prismask convert` writes them."
            )
        contents = form.read_here(path)
        chosen, _ = decide(contents, "cube" if kind == "exposures" else kind)
        if math.prod(chosen.shape) > most_values:
            raise FormatError(
                f"{path} holds {size_text(chosen.shape)} values; at most {most_values:,} are "
                f"accepted here. {INSTEAD}"
            )
        record: Record
        if kind == "exposures":
            from prismask.inference.raw_frames import average_frames

            record = average_frames(read_pages(contents, None))
        else:
            record = make_record(contents, kind)
        save(record, Path(out), overwrite=True)
    except PrismaskError as problem:
        # Limits are the server's, and none of a visitor's to raise.
        raise FormatError(str(problem).replace(how_to_raise(), INSTEAD)) from problem
    return list(record.values.shape), []
