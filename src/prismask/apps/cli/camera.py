"""`prismask camera`: a camera and its mask from pictures in light of single wavelengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from prismask.apps.cli.camera_options import number_or_file, parse_wavelengths
from prismask.apps.cli.terminal import remark, say
from prismask.errors import ConfigError, DataMissingError, MissingPartError

if TYPE_CHECKING:
    from prismask.optics.measured import MeasuredCamera, Picture

Named = tuple[float | None, Path]
"""Wavelength in nm, where one was given, and file."""
CLIPPED_SHARE = 0.01
"""Share of a picture's pixels at its largest value from which it counts as overexposed; open cells
are alike, so that a few are in any picture."""


def camera(
    pictures: list[str],
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    flat: list[str] | None = None,
    dark: str | None = None,
    step: float | None = None,
    bands: int | None = None,
    wavelengths: str | None = None,
    axis: Literal["width", "height"] | None = None,
    degree: int | None = None,
    figure: bool = True,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a camera from pictures of its mask, each in light of one wavelength.

    For cameras with one disperser. A prism needs four or five wavelengths, because its dispersion
    is curved.

    Parameters
    ----------
    pictures
        NM=FILE: the wavelength in nm and the sensor's picture of the mask, uniformly lit at that
        wavelength, as in 450=blue.tif 550=green.tif 650=red.tif. All are as large as a snapshot.
    out
        The mask file to write. It includes the camera, so reconstruct needs no other description.
    flat
        Picture of the same light without the mask: one FILE for all, or NM=FILE for each.
        Without one, the brightest cells are taken to be fully open.
    dark
        Dark frame, a picture with the shutter closed (a file); or dark level (a number).
    step
        Approximate pixels per band, for bands from the first wavelength to the last. [default: 2,
        as in the training of the networks]
    bands
        Number of bands, evenly spaced in pixels, instead of --step.
    wavelengths
        Centres of the bands in nm, as a,b,c or a text file, instead of --step.
    axis
        The axis of the dispersion. [default: the one along which the pictures move]
    degree
        Degree of the polynomial in nm or, for a prism, in 1/nm². [default: the one that best
        predicts pictures left out of the fit]
    figure
        Draw the result as a PNG next to the output.
    overwrite
        Replace the outputs if they exist.
    """
    from prismask.optics.measured import measure_camera
    from prismask.scenes.atomic import check_output, check_record, refuse_read
    from prismask.scenes.formats.files import save

    if out.suffix.lower() == ".npy":
        raise ConfigError(f"{out}: .npy files cannot store the camera; write .nc or .mat.")
    lit, even = [_named(text) for text in pictures], [_named(text) for text in flat or []]
    read = [*(path for _, path in (*lit, *even)), dark, wavelengths]
    check_record(out, overwrite, *read)
    drawn = out.with_suffix(".png")
    if figure:
        check_output(drawn, overwrite)
        refuse_read([drawn], *read)
    closed = None if dark is None else number_or_file(dark, "--dark")
    given = [name for name, value in
             (("--step", step), ("--bands", bands), ("--wavelengths", wavelengths))
             if value is not None]  # fmt: skip
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both say where bands lie: give one of them.")
    found = measure_camera(
        _loaded(lit, even, closed),
        **({} if step is None else {"step": step}),
        bands=bands,
        wavelengths=None if wavelengths is None else parse_wavelengths(wavelengths),
        axis=axis,
        degree=degree,
    )
    save(found.mask, out, overwrite=overwrite)
    say(_text(found))
    if not flat:
        remark("note: without --flat, uneven light cannot be told from a less transparent mask.")
    for text in found.findings:
        remark(f"note: {text}")
    if figure:
        _draw(found, drawn, overwrite)
    say(f"\n{out}: {found.mask.size[0]}×{found.mask.size[1]}. Now:\n"
        f"  prismask reconstruct SNAPSHOT --mask {out} -o cube.nc")  # fmt: skip


def _loaded(
    named: Sequence[Named], flats: Sequence[Named], dark: float | Path | None
) -> dict[float, Picture]:
    """Transmission at each wavelength."""
    import numpy as np

    from prismask.checks import size_text
    from prismask.errors import ShapeError
    from prismask.optics.measured import transmission
    from prismask.scenes.formats.files import load_measurement

    numbers = [nm for nm, _ in named]
    if None in numbers or not numbers:
        raise ConfigError("name each picture with its wavelength in nm, as in 450=blue.tif.")
    if len(set(numbers)) < len(numbers):
        raise ConfigError("two pictures have the same wavelength; one of each is needed.")
    without = dict(flats)
    if len(without) < len(flats) or (None in without and len(without) > 1):
        raise ConfigError("give --flat once for all pictures, or NM=FILE once for each of them.")
    missing = [nm for nm in numbers if without and None not in without and nm not in without]
    if missing:
        raise ConfigError(f"--flat names no picture for {missing[0]:g} nm.")
    closed = load_measurement(dark).values if isinstance(dark, Path) else None
    bright = {nm: load_measurement(path).values for nm, path in without.items()}
    found: dict[float, Picture] = {}
    for nm, path in named:
        if nm is None:
            continue
        lit = load_measurement(path).values
        _check_exposure(path, lit)
        even = bright.get(nm, bright.get(None))
        for what, other in (("flat", even), ("dark", closed)):
            if other is not None and other.shape != lit.shape:
                raise ShapeError(
                    f"{path} is {size_text(lit.shape)} and its {what} picture "
                    f"{size_text(other.shape)}: both are of one sensor and have its size."
                )
        level = None if dark is None else np.full_like(lit, dark) if closed is None else closed
        found[nm] = transmission(lit, even, level)
    return found


def _check_exposure(path: Path, picture: Picture) -> None:
    """Say so where a picture is clipped: the edges of its cells then seem to lie elsewhere."""
    import torch

    from prismask.inference.inspection import saturated_share

    share = saturated_share(torch.tensor(picture))
    if share > CLIPPED_SHARE:
        remark(
            f"warning: {100 * share:.2g} % of the pixels of {path} are at its largest value. "
            "Overexposure makes open cells look wider than they are: use a shorter exposure."
        )


def _named(text: str) -> Named:
    """`450=blue.tif` → 450 and the file; a bare file has no wavelength."""
    number, equals, path = text.partition("=")
    try:
        nm = float(number.lower().removesuffix("nm")) if equals else None
    except ValueError:
        nm, path = None, text
    if nm is not None and not 0 < nm < math.inf:
        raise ConfigError(f"{text}: {nm:g} nm is no wavelength.")
    file = Path(path if nm is not None else text)
    if not file.is_file():
        raise DataMissingError(f"there is no file {file}.")
    return nm, file


def _text(found: MeasuredCamera) -> str:
    """A table of places and what the bands are."""
    lines = ["wavelength    along   across  likeness"]
    for place in found.places:
        lines.append(
            f"{place.wavelength_nm:7.1f} nm {place.along:8.3f} {place.across:8.3f} "
            f"{place.likeness:9.3f}"
        )
    centres, eye = found.wavelengths, found.camera
    unseen = ""
    if not math.isnan(found.left_out_px):
        unseen = f", {found.left_out_px:.3f} px at wavelengths left out"
    return "\n".join(
        [
            *lines,
            "",
            f"px = {found.curve}  (misses {found.misfit_px:.3f} px at most{unseen})",
            f"{eye.bands} bands from {centres[0]:.1f} to {centres[-1]:.1f} nm over {eye.extent} px "
            f"along the {eye.axis}",
        ]
    )


def _draw(found: MeasuredCamera, path: Path, overwrite: bool) -> None:
    from prismask.scenes.colour import write_bytes

    try:
        from prismask.evaluation.figures.cubes import camera_figure

        write_bytes(camera_figure(found), path, overwrite)
    except MissingPartError as error:
        remark(f"note: no picture: {error}")
