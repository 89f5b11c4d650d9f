"""`prismask render`: a cube as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prismask.apps.cli.camera_options import parse_wavelengths
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError, ValuesError
from prismask.scenes.units import LEAST_NM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.scenes.records import Cube


def render(
    cube: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    band: str | None = None,
    illuminant: str | None = None,
    exposure: str = "auto",
    wavelengths: str | None = None,
    variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Render a cube in true colour, or a single band of it.

    Parameters
    ----------
    cube
        The cube to render, in any format that Prismask reads.
    out
        The picture to write, a .png.
    band
        Show only one band, in its own colour: the one nearest to a wavelength in nm (550), or,
        below 100, the one with that number, counted from 0 (12).
    illuminant
        The light in the scene (D65, A, FL2 …), shown as white. [default: the one noted in the file,
        otherwise equal energy]
    exposure
        A factor by which to brighten the picture, or auto: the brightest half percent may clip.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    variable
        The variable to take from a file that holds several.
    overwrite
        Replace the picture if it exists.
    """
    from prismask.scenes.atomic import check_inputs, check_output, refuse_read
    from prismask.scenes.colour import write_png
    from prismask.scenes.formats.files import load_cube

    if out.suffix.lower() != ".png":
        raise ConfigError(f"--out is {out}; pictures are written as PNG: {out.stem}.png.")
    check_inputs(cube)
    check_output(out, overwrite)
    refuse_read([out], cube, wavelengths)
    factor = _exposure(exposure)
    listed = None if wavelengths is None else parse_wavelengths(wavelengths)
    record = load_cube(cube, variable, listed)
    if band is None:
        picture = _whole(record, illuminant, factor)
    else:
        picture = _one_band(record, band, factor)
    write_png(picture, out, overwrite=overwrite)
    say(f"{out}")


def _exposure(text: str) -> float | None:
    """A number, or None for `auto`."""
    if text == "auto":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ConfigError(f"--exposure is {text!r}; it is auto or a number above 0.")
    return factor


def _whole(record: Cube, illuminant: str | None, exposure: float | None) -> NDArray[np.uint8]:
    """The whole cube in colour; in grey, as its quick look, where that cannot be."""
    from prismask.scenes.colour import grey_picture, to_srgb

    try:
        return to_srgb(record, illuminant, "auto" if exposure is None else exposure)
    except ValuesError as problem:
        if illuminant is not None or exposure is not None:
            raise
        remark(f"note: shown in grey, the mean of all bands: {problem}")
        return grey_picture(record.values.mean(axis=0))


def _one_band(record: Cube, band: str, exposure: float | None) -> NDArray[np.uint8]:
    import numpy as np

    from prismask.scenes.colour import band_image, grey_picture

    number = _band_number(record, band)
    if record.wavelengths is None:
        remark(f"band {number}, of unknown wavelength: in grey")
        return grey_picture(record.values[number])
    at = float(record.wavelengths[number])
    remark(f"band {number} at {at:g} nm")
    white = None if exposure is None else 1 / exposure
    picture = band_image(record.values[number], at, white)
    return np.asarray(np.round(255 * picture), dtype=np.uint8)


def _band_number(record: Cube, text: str) -> int:
    """Which band is meant, counted from 0."""
    import numpy as np

    try:
        asked = float(text.lower().removesuffix("nm"))
    except ValueError:
        asked = math.nan
    if text.isdigit() and asked < LEAST_NM:
        if asked >= record.bands:
            raise ConfigError(f"--band is {text}; this cube has bands 0 to {record.bands - 1}.")
        return int(text)
    at = record.wavelengths
    if not LEAST_NM <= asked < math.inf:
        raise ConfigError(
            f"--band is {text!r}; give a wavelength in nm, such as 550, or the number of a band, 0 "
            f"to {record.bands - 1}."
        )
    if at is None:
        raise ValuesError(
            f"the wavelengths of this cube are unknown; give them (--wavelengths), or --band the "
            f"number of a band, 0 to {record.bands - 1}."
        )
    if not at[0] - 20 <= asked <= at[-1] + 20:
        raise ConfigError(
            f"--band is {asked:g} nm; this cube runs from {at[0]:g} to {at[-1]:g} nm."
        )
    return int(np.abs(at - asked).argmin())
