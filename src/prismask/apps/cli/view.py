"""`prismask view`: look at a cube in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from prismask.apps.cli.camera_options import parse_numbers
from prismask.apps.cli.spectra import library_for
from prismask.errors import MissingPartError

if TYPE_CHECKING:
    from prismask.apps.web.site import Site
    from prismask.scenes.records import Cube

SERVER = Group("Server", sort_key=20)


def view(
    file: Path,
    /,
    *,
    reference: Path | None = None,
    compare: Annotated[list[Path] | None, Parameter(negative="")] = None,
    library: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    snapshot: Path | None = None,
    mask: Path | None = None,
    wavelengths: str | None = None,
    variable: str | None = None,
    host: Annotated[str, Parameter(group=SERVER)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=SERVER)] = 0,
    browser: Annotated[bool, Parameter(group=SERVER)] = True,
) -> None:
    """View a cube in the browser: true colour, bands, spectra with error bars.

    Parameters
    ----------
    file
        A cube in any format that Prismask reads; masks and measurements can be viewed, too.
    reference
        The true cube, to show errors.
    compare
        Another cube of the same scene to compare with; may be repeated.
    library
        Spectral libraries (ENVI .sli, CSV or ECOSTRESS text) or a folder of them: the nearest
        material is plotted with each spectrum.
    snapshot
        The measurement that the cube was made from.
    mask
        The mask that it was taken through.
    wavelengths
        Centre wavelength of each band in nm, as a,b,c or a text file.
    variable
        The variable to take from a file that holds several.
    host
        Address to listen on. With any other than 127.0.0.1, other computers have access, too, if
        they have the link that is printed.
    port
        Port to listen on; 0 chooses a free one.
    browser
        Open the page in the browser.
    """
    need_web()
    from prismask.apps.web.server import run_site

    listed = None if wavelengths is None else parse_numbers(wavelengths, "--wavelengths")
    site = view_site(
        file, reference, tuple(compare or ()), snapshot, mask, listed, variable, library
    )  # fmt: skip
    run_site(site, host, port, browser)


def view_site(
    file: Path,
    reference: Path | None = None,
    compare: tuple[Path, ...] = (),
    snapshot: Path | None = None,
    mask: Path | None = None,
    wavelengths: tuple[float, ...] | None = None,
    variable: str | None = None,
    library: list[Path] | None = None,
) -> Site:
    """A site that shows one file; the caller closes it."""
    from prismask.apps.web.results import Result
    from prismask.apps.web.site import Site
    from prismask.scenes.formats.files import load_cube, load_mask, load_measurement

    own, *names = _names([file, *compare])
    others = [Result(name, load_cube(path)) for name, path in zip(names, compare, strict=True)]
    cube = _as_cube(file, variable, wavelengths)
    result = Result(
        own,
        cube,
        None if reference is None else load_cube(reference),
        None if snapshot is None else load_measurement(snapshot),
        None if mask is None else load_mask(mask),
        tuple((other.id, other.name) for other in others),
        library_for(cube, library),
    )
    # The person's own files; the bound on memory is for what strangers send.
    site = Site()
    for one in (*others, result):
        site.results.add(one)
    site.first = result.id
    return site


def _names(paths: list[Path]) -> list[str]:
    """What the page calls each file: its name, and its folder too where another is called alike."""
    plain = [path.name for path in paths]
    if len(set(plain)) == len(plain):
        return plain
    return [f"{path.resolve().parent.name}/{path.name}" for path in paths]


def need_web() -> None:
    """Raise where the extra `web` is not installed."""
    from importlib.util import find_spec

    if any(find_spec(part) is None for part in ("fastapi", "uvicorn", "plotly")):
        raise MissingPartError("the web page needs more parts: pip install 'prismask[web]'.")


def _as_cube(file: Path, variable: str | None, wavelengths: tuple[float, ...] | None) -> Cube:
    """The cube in a file; a mask or a measurement becomes one with a band for each plane."""
    from prismask.scenes.formats.files import load, load_cube
    from prismask.scenes.records import Cube, Mask

    if wavelengths is not None:
        return load_cube(file, variable, wavelengths)
    record = load(file, variable=variable)
    if isinstance(record, Cube):
        return record
    at = record.wavelengths if isinstance(record, Mask) else None
    values = record.values if record.values.ndim == 3 else record.values[None]
    return Cube(values, at, attrs=record.attrs)
