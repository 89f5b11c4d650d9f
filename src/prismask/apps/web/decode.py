"""Reading what a stranger sent: runs in the reader process, never in the server.

The header is judged before anything is decoded. What passes is written again as a file of our
own, and only that is read by the reconstruction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from prismask.apps.web.limits import Limits
from prismask.apps.web.process import Report
from prismask.checks import size_text
from prismask.errors import FormatError, PrismaskError
from prismask.scenes.formats.contents import Contents, reading
from prismask.scenes.formats.files import save
from prismask.scenes.formats.registry import Format, identify
from prismask.scenes.formats.selection import decide, make_record

Part = Literal["measurement", "mask"]

ACCEPTED = ("netcdf", "matlab", "matlab7.3", "npy", "npz", "tiff", "png")
"""Formats that are one file with one array; ENVI is two files, packs hold many scenes."""
HDF5 = ("netcdf", "matlab7.3")
MOST_NODES = 10_000


def decode(
    report: Report, source: str, shown_name: str, kind: Part, out: str, limits: Limits
) -> dict[str, Any]:
    """Check the upload `source` and write it to `out` as NetCDF; says what it holds.

    `shown_name` replaces the path in messages: it is what the person knows the file by, and
    where we keep it is nobody's business.
    """
    path = Path(source)
    try:
        return _decode(path, kind, Path(out), limits)
    except PrismaskError as problem:
        text = str(problem).replace(str(path), shown_name).replace(str(path.parent), "")
        raise FormatError(text) from problem
    finally:
        path.unlink(missing_ok=True)


def _decode(path: Path, kind: Part, out: Path, limits: Limits) -> dict[str, Any]:
    form = identify(path)
    if form.name not in ACCEPTED:
        raise FormatError(
            f"{path} is {form.title}, which cannot be uploaded. Send NetCDF, MATLAB, NPY, NPZ, "
            "TIFF or PNG; `prismask convert` writes them."
        )
    if form.name in HDF5:
        with reading(path, form.title):
            refuse_links(path)
    contents = _headers(form, path)
    chosen, _ = decide(contents, kind)
    count = 1
    for size in chosen.shape:
        count *= max(int(size), 0)
    if count > limits.values:
        raise FormatError(
            f"{path} holds {size_text(chosen.shape)} values; at most {limits.values:,} are "
            "accepted here. Crop it, or use `prismask reconstruct` on your own machine."
        )
    record = make_record(contents, kind)
    save(record, out, overwrite=True)
    return {"size": list(record.values.shape)}


def _headers(form: Format, path: Path) -> Contents:
    contents = form.read(path)
    if len(contents.variables) > MOST_NODES:
        raise FormatError(f"{path} holds more than {MOST_NODES} variables.")
    return contents


def refuse_links(path: Path) -> None:
    """Raise where an HDF5 file would have other files of this computer read."""
    import h5py

    with h5py.File(path, "r") as file:
        waiting: list[Any] = [file]
        seen = 0
        while waiting:
            group = waiting.pop()
            for name in group:
                seen += 1
                if seen > MOST_NODES:
                    raise FormatError(f"{path} holds more than {MOST_NODES} objects, or a loop.")
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    raise FormatError(f"{path}: {name!r} lies in another file. Send it whole.")
                if isinstance(link, h5py.SoftLink):
                    continue  # it leads to something in this file, which is looked at by itself
                node = group[name]
                if isinstance(node, h5py.Group):
                    waiting.append(node)
                elif isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
                    raise FormatError(f"{path}: {name!r} lies in another file. Send it whole.")
