"""What records look like: their colour in sRGB, and pictures, cards and plots of them.

A pixel's spectrum is weighted with the CIE 1931 2° observer by the trapezoid rule on the cube's own
wavelengths. The XYZ of the light that lit the scene is found through the same bands and moved to
the white of sRGB (Bradford adaptation): a white object looks white under any light, and a camera
that sees only 450–650 nm does not paint everything yellow for the violet it never saw.

The observer and lamps with lines (the CIE's fluorescent, discharge and LED illuminants) lie beside
this file. More lights and the ColorChecker come from colour-science, which takes seconds to import,
warns and changes how NumPy prints; so it is imported on first use, and here alone. A lamp's line is
narrower than a camera's band: lamps are averaged over each band, between its neighbours' centres.
"""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prismask.checks import check_finite, check_shape, choose, size_text
from prismask.errors import ConfigError, MissingPartError, PrismaskError, ValuesError
from prismask.scenes.atomic import write_beside
from prismask.scenes.records import Cube, Mask, Measurement, Record, check_wavelengths
from prismask.scenes.spectra import axes_for
from prismask.wording import told_in_python

OBSERVER = Path(__file__).with_name("cie_1931.csv")
EQUAL_ENERGY = "E"
"""The light with the same power at every wavelength."""


@cache
def observer() -> tuple[Values, Values]:
    """CIE 1931 2° observer: wavelengths `(N,)` in nm and x̄, ȳ, z̄ as `(3, N)`."""
    table = np.loadtxt(OBSERVER, delimiter=",", comments="#")
    return _kept(table[:, 0]), _kept(table[:, 1:].T)


def observer_at(wavelengths: ArrayLike) -> Values:
    """x̄, ȳ, z̄ at `wavelengths (C,)` in nm, `(3, C)`; zero outside the table."""
    at = np.asarray(wavelengths, dtype=np.float64)
    known, functions = observer()
    return np.stack([np.interp(at, known, row, left=0.0, right=0.0) for row in functions])


@cache
def illuminant_names() -> tuple[str, ...]:
    """Names that `illuminant_at` accepts, such as `D65`, `A`, `FL2` or `LED-B3`."""
    return tuple(str(name) for name in _colour().SDS_ILLUMINANTS)


def illuminant_at(name: str, wavelengths: ArrayLike) -> Values:
    """Relative power of a CIE illuminant at `wavelengths (C,)` in nm, largest value 1."""
    at = np.asarray(wavelengths, dtype=np.float64)
    if name == EQUAL_ENERGY:
        return np.ones_like(at)
    known, power = _illuminant(choose(name, illuminant_names(), "illuminant"))
    values = np.interp(at, known, power)
    return np.asarray(values / values.max())


@cache
def _illuminant(name: str) -> tuple[Values, Values]:
    table = _colour().SDS_ILLUMINANTS[name]
    return _kept(table.wavelengths), _kept(table.values)


@cache
def _colour_checker() -> tuple[tuple[str, ...], Values, Values]:
    chart = _colour().SDS_COLOURCHECKERS["ISO 17321-1"]
    names = tuple(str(name) for name in chart)
    wavelengths = _kept(chart[names[0]].wavelengths)
    return names, wavelengths, _kept(np.stack([chart[name].values for name in names]))


def colour_checker_names() -> tuple[str, ...]:
    """Names of the 24 patches, row by row from "dark skin" to "black 2 (1.5 D)"."""
    return _colour_checker()[0]


def colour_checker_at(wavelengths: ArrayLike) -> Values:
    """Measured reflectance of the 24 ColorChecker patches (ISO 17321-1), `(24, C)`."""
    at = np.asarray(wavelengths, dtype=np.float64)
    _, known, reflectances = _colour_checker()
    return np.stack([np.interp(at, known, row) for row in reflectances])


@cache
def _colour() -> ModuleType:
    import warnings

    try:
        with warnings.catch_warnings(), np.printoptions():
            warnings.simplefilter("ignore")
            import colour
    except ImportError as error:
        raise MissingPartError(
            "colour-science is needed for colour and standard spectra; install it with "
            "`pip install colour-science`."
        ) from error
    module: ModuleType = colour
    return module


def _kept(values: Any) -> Values:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


LAMPS = Path(__file__).with_name("cie_lamps.csv")
LAMP_SAMPLES = 64
"""Points at which a band is averaged: much closer than the table's 5 nm."""


@cache
def lamp_names() -> tuple[str, ...]:
    """Names of the lamps, such as `FL11`, `HP3` or `LED-RGB1`."""
    return _lamp_table()[0]


def lamp_in_bands(name: str, wavelengths: ArrayLike) -> Values:
    """Mean relative power of a lamp in bands with these centres `(C,)` in nm, largest value 1.

    Beyond the table (380 to 780 nm) its last value goes on.
    """
    names, known, powers = _lamp_table()
    row = powers[names.index(choose(name, names, "lamp"))]
    low, high = band_edges(wavelengths)
    inside = (np.arange(LAMP_SAMPLES) + 0.5) / LAMP_SAMPLES
    at = low[:, None] + (high - low)[:, None] * inside
    values = np.interp(at, known, row).mean(1)
    return np.asarray(values / values.max())


def band_edges(wavelengths: ArrayLike) -> tuple[Values, Values]:
    """Lower and upper edge `(C,)` of each band, halfway to its neighbours; a lone one has 10 nm."""
    given = np.asarray(wavelengths, dtype=np.float64)
    centres = check_wavelengths(given, given.size)
    if centres.size == 1:
        return centres - 5.0, centres + 5.0
    middles = (centres[1:] + centres[:-1]) / 2
    first, last = 2 * centres[0] - middles[0], 2 * centres[-1] - middles[-1]
    edges = np.concatenate([[first], middles, [last]])
    return edges[:-1], edges[1:]


@cache
def _lamp_table() -> tuple[tuple[str, ...], Values, Values]:
    """Names, wavelengths `(N,)` and power `(lamps, N)`."""
    lines = LAMPS.read_text(encoding="utf-8").splitlines()
    header, *rows = [line for line in lines if not line.startswith("#")]
    table = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    table.flags.writeable = False
    return tuple(header.split(",")[1:]), table[:, 0], table[:, 1:].T


Values = NDArray[np.float64]
Illuminant = str | ArrayLike
Exposure = float | Literal["auto"]

XYZ_TO_LINEAR_SRGB = np.array(
    [
        [3.2406255, -1.5372080, -0.4986286],
        [-0.9689307, 1.8757561, 0.0415175],
        [0.0557101, -0.2040211, 1.0569959],
    ]
)
"""IEC 61966-2-1 (amendment 1), for XYZ relative to D65 with Y = 1 for white."""

SRGB_WHITE_XYZ = np.array([0.9505, 1.0, 1.0890])
"""D65 as sRGB defines it."""

BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)
"""XYZ to the sharpened cone space in which the white is moved."""

AUTO_PERCENTILE = 99.5
AUTO_LEVEL = 0.9
LEAST_CONE_SHARE = 0.05
VISIBLE_NM = (380.0, 780.0)

_log = logging.getLogger(__name__)


@told_in_python
def to_srgb(
    cube: Cube, illuminant: Illuminant | None = None, exposure: Exposure = "auto"
) -> NDArray[np.uint8]:
    """The cube `(C, H, W)` as an sRGB picture `(H, W, 3)`, 8 bits a channel.

    `illuminant` is the light in the scene, whose white is shown neutral: a CIE name such as
    `"D65"`, an array with one value per band, or None for `cube.attrs["illuminant"]` and, where
    that is missing, equal energy (right for reflectances).

    `exposure` multiplies the linear light: 1 shows a perfect white reflector under a light of
    value 1 as full white. `"auto"` is `auto_exposure`; give two pictures the same number when
    they are to be compared. Colours outside sRGB are clipped channel by channel.
    """
    linear = to_linear_srgb(cube, illuminant)
    factor = _exposure_of(linear) if exposure == "auto" else float(exposure)
    if not np.isfinite(factor) or factor <= 0:
        raise ConfigError(f"exposure is {exposure!r}; it is 'auto' or a number above 0.")
    return np.asarray(np.round(255 * encode_srgb(linear * factor)), dtype=np.uint8)


@told_in_python
def auto_exposure(cube: Cube, illuminant: Illuminant | None = None) -> float:
    """The exposure that puts the 99.5th percentile of the brightest channel at 0.9 (linear).

    The half percent above it (highlights, hot pixels) may clip; a black cube gets 1.
    """
    return _exposure_of(to_linear_srgb(cube, illuminant))


def to_linear_srgb(cube: Cube, illuminant: Illuminant | None = None) -> Values:
    """The cube as linear sRGB `(H, W, 3)`, not exposed and not clipped."""
    matrix = srgb_matrix(_wavelengths_of(cube), _light_of(cube, illuminant))
    return np.asarray(np.tensordot(cube.values, matrix, axes=([0], [1])), dtype=np.float64)


def srgb_matrix(wavelengths: ArrayLike, illuminant: Illuminant = EQUAL_ENERGY) -> Values:
    """`(3, C)`: a spectrum `(C,)` times this is linear sRGB, with the light itself at (1, 1, 1).

    Where the bands miss a whole region of the spectrum (a camera for red light only) no white
    can be made of them; then only the brightness is fitted and the colours are left alone.
    """
    at = np.asarray(wavelengths, dtype=np.float64)
    weights = observer_at(at) * trapezoid_widths(at)
    light = _light_values(illuminant, at)
    white = weights @ light
    if white[1] <= 0:
        raise ValuesError(
            f"wavelengths run from {at[0]:g} to {at[-1]:g} nm: the eye sees only "
            f"{VISIBLE_NM[0]:g} to {VISIBLE_NM[1]:g} nm. Render a single band instead."
        )
    weights, white = weights / white[1], white / white[1]
    cones, wanted = BRADFORD @ white, BRADFORD @ SRGB_WHITE_XYZ
    if np.any(cones < LEAST_CONE_SHARE * wanted):
        _log.info("bands from %g to %g nm make no white; colours are not adapted", at[0], at[-1])
        return np.asarray(XYZ_TO_LINEAR_SRGB @ weights)
    adaptation = np.linalg.inv(BRADFORD) @ np.diag(wanted / cones) @ BRADFORD
    return np.asarray(XYZ_TO_LINEAR_SRGB @ adaptation @ weights)


def wavelength_to_rgb(wavelengths: ArrayLike) -> Values:
    """A display colour in [0, 1] for each wavelength `(...)` in nm, `(..., 3)`.

    No screen can show a pure spectral colour; this is the nearest it has, channel by channel, at
    full brightness, fading towards the ends of the visible range. Beyond it the colour is grey.
    """
    at = np.asarray(wavelengths, dtype=np.float64)
    linear = np.clip(XYZ_TO_LINEAR_SRGB @ observer_at(at.ravel()), 0.0, None)
    brightest = linear.max(axis=0)
    fade = np.interp(at.ravel(), [380, 430, 660, 780], [0.25, 1.0, 1.0, 0.25])
    seen = (brightest > 0) & (at.ravel() >= VISIBLE_NM[0]) & (at.ravel() <= VISIBLE_NM[1])
    hue = np.where(seen, linear * fade / np.where(brightest > 0, brightest, 1.0), 0.2)
    return encode_srgb(hue).T.reshape(*at.shape, 3)


def band_image(values: ArrayLike, wavelength: float, white: float | None = None) -> Values:
    """One band `(H, W)` as a picture in its own colour, `(H, W, 3)` in [0, 1].

    `white` is the value shown at full brightness; None takes the band's 99.5th percentile.
    """
    band = np.asarray(values, dtype=np.float64)
    check_shape(band, ("H", "W"), "band")
    check_finite(band, "band")
    top = float(np.percentile(band, AUTO_PERCENTILE)) if white is None else float(white)
    level = encode_srgb(band / top) if top > 0 else np.zeros_like(band)
    return np.asarray(level[..., None] * wavelength_to_rgb(wavelength))


def trapezoid_widths(wavelengths: ArrayLike) -> Values:
    """The width in nm that each sample stands for: half the way to both of its neighbours."""
    at = np.asarray(wavelengths, dtype=np.float64)
    if at.size == 1:
        return np.ones(1)
    gaps = np.diff(at)
    return np.asarray(0.5 * (np.concatenate([gaps, [0.0]]) + np.concatenate([[0.0], gaps])))


def encode_srgb(linear: ArrayLike) -> Values:
    """Linear light to sRGB code values in [0, 1], clipped (IEC 61966-2-1)."""
    light = np.clip(np.asarray(linear, dtype=np.float64), 0.0, 1.0)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def _exposure_of(linear: Values) -> float:
    level = float(np.percentile(linear.max(axis=-1), AUTO_PERCENTILE))
    return AUTO_LEVEL / level if level > 0 else 1.0


def _wavelengths_of(cube: Cube) -> Values:
    if cube.wavelengths is None:
        raise ValuesError(
            f"the wavelengths of this cube's {cube.bands} bands are unknown, so its colours are "
            "too. Give --wavelengths in nm."
        )
    return cube.wavelengths


def _light_of(cube: Cube, illuminant: Illuminant | None) -> Illuminant:
    if illuminant is not None:
        return illuminant
    noted = cube.attrs.get("illuminant")
    return noted if isinstance(noted, str) and noted else EQUAL_ENERGY


def _light_values(illuminant: Illuminant, wavelengths: Values) -> Values:
    if isinstance(illuminant, str):
        return illuminant_at(illuminant, wavelengths)
    light = np.asarray(illuminant, dtype=np.float64)
    check_shape(light, (wavelengths.size,), "illuminant")
    check_finite(light, "illuminant")
    if light.min() < 0 or light.max() <= 0:
        raise ValuesError("illuminant holds negative values or no light at all.")
    return light


BRIGHT_PERCENTILE = 99.5
"""What is shown as white: the half percent above it (highlights, hot pixels) may clip."""


def png_bytes(picture: NDArray[np.uint8], enlarge: int = 1) -> bytes:
    """A picture `(H, W)` or `(H, W, 3)` as PNG, every pixel `enlarge` times as large."""
    from PIL import Image

    if enlarge != 1:
        picture = picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
    held = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(held, format="PNG")
    return held.getvalue()


def grey_picture(values: NDArray[Any]) -> NDArray[np.uint8]:
    """An image `(H, W)` as 8-bit grey for the eye: 99.5th percentile white, sRGB curve."""

    top = float(np.percentile(values, BRIGHT_PERCENTILE))
    scaled = np.asarray(values, dtype=np.float64) / top if top > 0 else np.zeros(values.shape)
    return np.asarray(np.round(255 * encode_srgb(scaled)), dtype=np.uint8)


def write_png(picture: NDArray[np.uint8], path: Path, overwrite: bool = False) -> None:
    """Write a picture as PNG."""
    write_bytes(png_bytes(picture), path, overwrite)


def write_bytes(content: bytes, path: Path, overwrite: bool = False) -> None:
    """Write a whole file, or leave what was there."""
    with write_beside(path, overwrite=overwrite) as part:
        part.write_bytes(content)


THUMBNAIL_SIDE = 160
"""Largest side of a thumbnail in pixels."""
MOST_FINDINGS = 5
_CARD = "display:flex;gap:1em;align-items:flex-start"


def summary(record: Record) -> str:
    """A record in one line."""
    kind, size = type(record).__name__, size_text(record.size)
    if isinstance(record, Cube):
        return ", ".join([f"{kind} {record.bands} bands × {size}", *_cube_facts(record)])
    low, high = float(record.values.min()), float(record.values.max())
    if isinstance(record, Mask):
        planes = f"{len(record.values)} planes × " if record.values.ndim == 3 else ""
        spread = "" if record.std is None else ", with spread"
        return f"{kind} {planes}{size}, {100 * float(record.values.mean()):.0f} % open{spread}"
    return f"{kind} {size}, {low:.3g} to {high:.3g}"


def as_html(record: Record) -> str:
    """A thumbnail beside the facts, with nothing loaded from elsewhere."""
    picture = base64.b64encode(png_bytes(thumbnail(record))).decode()
    lines = [f"<b>{escape(summary(record))}</b>"]
    facts = {**record.attrs, "trust": _trust(record.attrs)}
    shown = {"title": "title", "model": "model", "method": "method", "interval": "interval",
             "trust": "trust", "residual": "self-check", "source": "source"}  # fmt: skip
    lines += [
        f"{word}: {escape(str(facts[key])[:200])}" for key, word in shown.items() if facts.get(key)
    ]
    findings = record.attrs.get("findings", [])
    if isinstance(findings, list | tuple):
        lines += [escape(str(line)) for line in findings[:MOST_FINDINGS]]
    return (
        f'<div style="{_CARD}"><img alt="{type(record).__name__}" '
        f'src="data:image/png;base64,{picture}"><div>{"<br>".join(lines)}</div></div>'
    )


def _trust(attrs: Mapping[str, Any]) -> str:
    """How far to trust a cube, and why; empty where nobody knows."""
    grade, because = attrs.get("trust_grade"), str(attrs.get("trust_because", ""))
    return f"{grade}. {because[:1].upper()}{because[1:]}" if grade else ""


def thumbnail(record: Record) -> NDArray[np.uint8]:
    """A small picture `(H, W)` or `(H, W, 3)`: in colour where the wavelengths allow it."""
    values = record.values
    step = -(-max(record.size) // THUMBNAIL_SIDE)
    if isinstance(record, Cube):
        small = Cube(values[:, ::step, ::step], record.wavelengths, attrs=record.attrs)
        try:
            return small.rgb()
        except PrismaskError:  # wavelengths that are unknown, or invisible
            values = small.values
    elif step > 1:
        values = values[..., ::step, ::step]
    return grey_picture(values.mean(axis=0) if values.ndim == 3 else values)


def plot_cube(cube: Cube, wavelength: float | None, ax: Any) -> Any:
    """The cube in colour, or one band of it with its scale."""
    if wavelength is None:
        ax = axes_for(ax)
        ax.imshow(cube.rgb(), interpolation="nearest")
        return _labelled(ax, summary(cube))
    band = cube.band(wavelength)
    assert cube.wavelengths is not None  # `band` has refused the others
    return _grey(cube.values[band], f"{cube.wavelengths[band]:g} nm", ax)


def plot_plane(record: Mask | Measurement, ax: Any) -> Any:
    """A mask or a measurement in grey."""
    values = record.values
    return _grey(values.mean(axis=0) if values.ndim == 3 else values, summary(record), ax)


def _grey(values: NDArray[Any], title: str, ax: Any) -> Any:
    ax = axes_for(ax)
    top = float(np.percentile(values, BRIGHT_PERCENTILE)) or 1.0
    low = min(0.0, float(values.min()))
    shown = ax.imshow(values, cmap="gray", vmin=low, vmax=top, interpolation="nearest")
    ax.figure.colorbar(shown, ax=ax, label="fraction of full scale")
    return _labelled(ax, title)


def _labelled(ax: Any, title: str) -> Any:
    ax.set(title=title, xlabel="x in pixels", ylabel="y in pixels")
    return ax


def _cube_facts(cube: Cube) -> list[str]:
    facts = []
    if cube.wavelengths is not None:
        assumed = " (assumed)" * (cube.attrs.get("wavelengths_from") == "default")
        facts.append(f"{cube.wavelengths[0]:.0f}–{cube.wavelengths[-1]:.0f} nm{assumed}")
    if cube.lower is not None and cube.upper is not None:
        facts.append("with interval")
    if cube.std is not None:
        facts.append("with spread")
    return facts
