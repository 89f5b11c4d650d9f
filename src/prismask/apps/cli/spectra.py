"""`prismask spectra`: spectra of pixels and regions as a table and a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prismask.apps.cli.camera_options import parse_numbers
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError

if TYPE_CHECKING:
    from prismask.scenes.libraries import SpectralLibrary
    from prismask.scenes.records import Cube
    from prismask.scenes.spectra import Spectrum

NEAREST = 3
"""Materials that are listed for each spectrum."""


MANY = Parameter(negative="", consume_multiple=True)
"""Several values after one option, or the option again."""


def spectra(
    cube: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    points: Annotated[list[str] | None, MANY] = None,
    regions: Annotated[list[str] | None, MANY] = None,
    library: Annotated[list[Path] | None, MANY] = None,
    material_map: Path | None = None,
    wavelengths: str | None = None,
    variable: str | None = None,
    picture: bool = True,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write the spectra of pixels and regions, with error bars, as a table and a plot.

    Parameters
    ----------
    cube
        The cube to read, in any format that Prismask knows.
    out
        The table to write, a .csv; the plot is a .png of the same name.
    points
        Pixels as x,y, such as 5,7 9,9, counted from 0 at the top left.
    regions
        Rectangles as left,top,right,bottom in whole pixels, or polygons as the x,y,x,y,x,y … of
        their corners.
    library
        Spectral libraries (ENVI .sli, CSV or ECOSTRESS text) or a folder of them: the nearest
        materials are listed, and the nearest one is added to table and plot.
    material_map
        Also write a map of the nearest material at each pixel, a .png.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    variable
        The variable to take from a file that holds several.
    picture
        Draw the plot; needs matplotlib.
    overwrite
        Replace files that exist.
    """
    from prismask.scenes.atomic import check_inputs, check_output, refuse_read
    from prismask.scenes.formats.files import load_cube

    _check(out, points or regions, library, material_map, picture)
    drawn = out.with_suffix(".png") if picture else None
    check_inputs(cube)
    outputs = [path for path in (out, drawn, material_map) if path is not None]
    for path in outputs:
        check_output(path, overwrite)
    refuse_read(outputs, cube, *(library or ()))
    listed = None if wavelengths is None else parse_numbers(wavelengths, "--wavelengths")
    record = load_cube(cube, variable, listed)
    found = _spectra(record, points or [], regions or [])
    known = library_for(record, library)
    beside = [] if known is None else _nearest(found, known)
    _write(found, beside, out, drawn, overwrite)
    if material_map is not None and known is not None:
        _write_map(record, known, material_map, overwrite)
    for path in outputs:
        say(f"{path}")


def _check(
    out: Path,
    asked: list[str] | None,
    library: list[Path] | None,
    material_map: Path | None,
    picture: bool,
) -> None:
    """Refuse what cannot work before anything is read."""
    from prismask.scenes.spectra import check_matplotlib

    if out.suffix.lower() != ".csv":
        raise ConfigError(f"--out is {out}; tables are written as CSV: {out.stem}.csv.")
    if not asked:
        raise ConfigError("there is nothing to do: give --points x,y or --regions a,b,c,d.")
    if material_map is not None and library is None:
        raise ConfigError("--material-map needs materials to choose from: give --library.")
    if material_map is not None and material_map.suffix.lower() != ".png":
        raise ConfigError(f"--material-map is {material_map}; pictures are written as PNG.")
    if picture or material_map is not None:
        check_matplotlib("give --no-picture for the table alone")


def _spectra(record: Cube, points: list[str], regions: list[str]) -> list[Spectrum]:
    from prismask.scenes.regions import parse_region

    found = []
    for text in points:
        numbers = parse_numbers(text, "--points")
        if len(numbers) != 2 or any(number != int(number) for number in numbers):
            raise ConfigError(f"--points is {text!r}; a pixel is x,y in whole numbers: 120,80.")
        found.append(record.spectrum(int(numbers[0]), int(numbers[1])))
    return found + [record.spectrum(parse_region(text)) for text in regions]


def _nearest(found: list[Spectrum], library: SpectralLibrary) -> list[Spectrum]:
    """Tell the nearest materials; give the nearest of each, scaled to the spectrum's length."""
    from dataclasses import replace

    from prismask.scenes.libraries import ranked, scaled_to

    scaled = []
    for one in found:
        order = ranked(one, library)[:NEAREST]
        remark(f"{one.name}: " + ", ".join(f"{name} ({angle:.1f}°)" for name, angle in order))
        material, factor = scaled_to(library[order[0][0]], one)
        scaled.append(replace(material, name=f"{material.name} × {factor:.3g} for {one.name}"))
    return scaled


def _write(
    found: list[Spectrum], beside: list[Spectrum], out: Path, drawn: Path | None, overwrite: bool
) -> None:
    from prismask.scenes.colour import write_bytes
    from prismask.scenes.spectra import draw_spectra, spectra_csv

    if drawn is not None:
        write_bytes(_png(lambda axes: draw_spectra(found, axes, beside)), drawn, overwrite)
    # The table comes last: where it is, the picture is there too.
    write_bytes(spectra_csv([*found, *beside]).encode(), out, overwrite)


def _write_map(record: Cube, library: SpectralLibrary, path: Path, overwrite: bool) -> None:
    from prismask.scenes.colour import write_bytes

    found = record.nearest_material(library)
    write_bytes(_png(found.plot), path, overwrite)
    for name, share in list(found.shares().items())[:10]:
        remark(f"{100 * share:.1f} % {name}")


def _png(draw: Callable[[Any], Any]) -> bytes:
    from prismask.evaluation.figures.style import figure_png, styled

    with styled() as figure_class:
        figure = figure_class(figsize=(7.0, 4.2), layout="constrained")
        draw(figure.subplots())
        return figure_png(figure)


def library_for(record: Cube, files: list[Path] | None) -> SpectralLibrary | None:
    """The materials at the cube's bands; a remark names those that do not reach them."""
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
