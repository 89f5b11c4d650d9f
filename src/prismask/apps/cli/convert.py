"""`prismask convert`: the same record in another file format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from prismask.apps.cli.camera_options import parse_numbers
from prismask.apps.cli.terminal import say
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.scenes.records import Record


def convert(
    source: Path,
    target: Path,
    /,
    *,
    kind: Literal["cube", "mask", "measurement"] | None = None,
    variable: str | None = None,
    wavelengths: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write a cube, mask or measurement in the format of another file extension.

    Parameters
    ----------
    source
        The file to read; its format is found from its content.
    target
        The file to write: .nc, .mat, .npz, .npy, .tif, .hdr …
    kind
        What the file holds, where the names in it do not say.
    variable
        The variable to take from a file that holds several.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    overwrite
        Replace the target if it exists.
    """
    from prismask.scenes.atomic import check_inputs, check_record
    from prismask.scenes.formats.files import load, load_cube, load_mask, save

    check_inputs(source)
    check_record(target, overwrite, source)
    record: Record
    if wavelengths is None:
        record = load(source, kind, variable)
    elif kind == "measurement":
        raise ConfigError("a measurement has no wavelengths: leave --wavelengths out.")
    else:
        listed = parse_numbers(wavelengths, "--wavelengths")
        record = (load_mask if kind == "mask" else load_cube)(source, variable, listed)
    save(record, target, overwrite=overwrite)
    say(f"{target}")
