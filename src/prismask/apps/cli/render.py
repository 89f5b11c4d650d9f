"""`prismask render`: a cube as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prismask.apps.cli.numbers import parse_wavelengths
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError, ValuesError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prismask.scenes.records import Cube


def render(
    cube: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    band: float | None = None,
    illuminant: str | None = None,
    exposure: str = "auto",
    wavelengths: str | None = None,
    variable: str | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Render a cube as the eye would see it, or a single band of it.

    Parameters
    ----------
    cube
        The cube to render, in any format that Prismask reads.
    out
        The picture to write, a .png.
    band
        Show only the band nearest to this wavelength in nm, in its own colour.
    illuminant
        The light in the scene (D65, A, FL2 …), shown as white. [default: the one noted in the
        file, else equal energy]
    exposure
        A factor on the light, or auto: the brightest half percent may clip.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    variable
        The variable to take from a file that holds several.
    overwrite
        Replace the picture if it exists.
    """
    from prismask.apps.cli.pictures import write_png
    from prismask.scenes.atomic import check_output, refuse_inputs
    from prismask.scenes.colour import to_srgb
    from prismask.scenes.formats.files import load_cube
    from prismask.scenes.formats.registry import stored

    if out.suffix.lower() != ".png":
        raise ConfigError(f"--out is {out}; pictures are written as PNG: {out.stem}.png.")
    check_output(out, overwrite)
    refuse_inputs([out], stored(cube))
    factor = _exposure(exposure)
    listed = None if wavelengths is None else parse_wavelengths(wavelengths)
    record = load_cube(cube, variable, listed)
    if band is None:
        picture = to_srgb(record, illuminant, "auto" if factor is None else factor)
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


def _one_band(record: Cube, band: float, exposure: float | None) -> NDArray[np.uint8]:
    import numpy as np

    from prismask.scenes.colour import band_image

    if record.wavelengths is None:
        raise ValuesError("the wavelengths of this cube are unknown; give them: --wavelengths.")
    nearest = int(np.abs(record.wavelengths - band).argmin())
    at = float(record.wavelengths[nearest])
    if not record.wavelengths[0] - 20 <= band <= record.wavelengths[-1] + 20:
        raise ConfigError(
            f"--band is {band:g} nm; this cube runs from {record.wavelengths[0]:g} to "
            f"{record.wavelengths[-1]:g} nm."
        )
    remark(f"band {nearest} at {at:g} nm")
    white = None if exposure is None else 1 / exposure
    picture = band_image(record.values[nearest], at, white)
    return np.asarray(np.round(255 * picture), dtype=np.uint8)
