"""Synthetic scenes: one to look at (`demo_scene`) and endless cheap ones (`random_scene`).

The demo scene has what makes real scenes hard: patches whose spectra are measured and known (a
ColorChecker), fabric and wood, shaded balls with highlights, thin lines and small print. Its
surfaces are large and its background dim because reconstructions without training do better on
such scenes: scores on it say how the demo came out, not how good a method is.

Random scenes are for training and tests where no real ones are at hand. They are not meant to look
like anything: they have smooth spectra, sharp edges at all scales, textures and shading, in ever
new combinations, so a network cannot learn them by heart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError
from prismask.scenes.colour import colour_checker_at, colour_checker_names, illuminant_at
from prismask.scenes.defaults import SIZE, WAVELENGTHS_NM
from prismask.scenes.records import Cube, check_wavelengths
from prismask.scenes.synthetic.canvas import (
    Canvas,
    bump_spectrum,
    edge_spectrum,
    layered_noise,
    planck_light,
    smooth_noise,
    stripes,
    weave,
)

Values = NDArray[np.float64]
Box = tuple[float, float, float, float]

WHITE_LEVEL = 0.8
"""Radiance of a perfect white reflector facing the lamp; what is left is for highlights."""

CHART: Box = (0.035, 0.035, 0.485, 0.665)
"""Top, left, bottom and right of the ColorChecker, in units of the shorter side."""

CLOTH: Box = (0.035, 0.715, 0.300, 0.965)
CARD: Box = (0.350, 0.715, 0.485, 0.965)
TABLE_TOP = 0.565

# Five rows of three dots a letter, enough for what the card says.
GLYPHS = {
    "P": "110101110100100", "R": "110101110101101", "I": "111010010010111",
    "S": "011100010001110", "M": "101111111101101", "A": "010101111101101",
    "K": "101101110101101", "N": "110101101101101", "B": "110101110101110",
    "D": "110101101101110", " ": "000000000000000", "0": "010101101101010",
    "1": "010110010010111", "2": "110001010100111", "3": "110001010001110",
    "4": "101101111001001", "5": "111100110001110", "6": "011100110101010",
    "7": "111001010010010", "8": "010101010101010", "9": "010101011001110",
}  # fmt: skip


def demo_scene(
    size: int | tuple[int, int] = SIZE,
    wavelengths: Sequence[float] = WAVELENGTHS_NM,
    seed: int = 0,
    illuminant: str = "D65",
) -> Cube:
    """A still life with a ColorChecker, `(C, H, W)` radiance in [0, 1].

    `size` is height and width, or one number for both; `illuminant` the CIE name of the lamp.
    `seed` changes grain and texture, not the layout; `colour_checker_boxes` says where the patches
    are.
    """
    size = (size, size) if isinstance(size, int) else size
    if min(size) < 32:
        raise ConfigError(
            f"a demo scene of {size_text(size)} is too small to draw; use 32 or more."
        )
    at = check_wavelengths(wavelengths, len(wavelengths))
    generator = np.random.default_rng(seed)
    canvas = Canvas(size, len(at))
    _room(canvas, at, generator)
    _chart(canvas, at)
    _cloth(canvas, at, generator)
    _card(canvas, at)
    _balls(canvas, at, generator)
    _pencils(canvas, at)
    fall_off = 1.04 - 0.22 * np.hypot(canvas.y - 0.2, canvas.x - 0.25)
    canvas.shading *= np.clip(fall_off, 0.5, 1.0)
    light = WHITE_LEVEL * illuminant_at(illuminant, at)
    attrs = {
        "title": "Synthetic still life with a ColorChecker",
        "source": f"prismask.scenes.synthetic.demo_scene(seed={seed})",
        "illuminant": illuminant,
        "quantity": "radiance",
    }
    return Cube(canvas.finish(light), at, attrs=attrs)


def colour_checker_boxes(size: tuple[int, int] = (SIZE, SIZE)) -> dict[str, tuple[slice, slice]]:
    """Rows and columns well inside each ColorChecker patch of a demo scene of `size`."""
    unit = min(size)
    down, right = (size[0] - unit) / 2, (size[1] - unit) / 2
    boxes = {}
    for name, (top, left, bottom, far) in zip(colour_checker_names(), _patches(), strict=True):
        trim = 0.22 * (bottom - top)
        rows = slice(round(down + unit * (top + trim)), round(down + unit * (bottom - trim)))
        columns = slice(round(right + unit * (left + trim)), round(right + unit * (far - trim)))
        boxes[name] = (rows, columns)
    return boxes


def _patches() -> list[Box]:
    """The 24 patch rectangles: six columns and four rows inside the frame."""
    top, left, bottom, right = CHART
    margin = 0.014
    pitch_y = (bottom - top - margin) / 4
    pitch_x = (right - left - margin) / 6
    return [
        (
            top + margin + row * pitch_y,
            left + margin + column * pitch_x,
            top + (row + 1) * pitch_y,
            left + (column + 1) * pitch_x,
        )
        for row in range(4)
        for column in range(6)
    ]


def _room(canvas: Canvas, at: Values, generator: np.random.Generator) -> None:
    """A plastered wall above a wooden table."""
    everywhere = np.ones(canvas.shape)
    plaster = 0.17 + 0.012 * edge_spectrum(at, 560, 60, -1, 1)
    grain = 1 + 0.035 * layered_noise(generator, canvas.shape, 0.03 * canvas.unit)
    canvas.paint(everywhere, plaster, grain, shading=1.0)
    wood = edge_spectrum(at, 575, 42, 0.045, 0.22)
    growth = smooth_noise(generator, canvas.shape, (0.035 * canvas.unit, 0.6 * canvas.unit))
    rings = np.sin(2 * np.pi * (canvas.y * 9 + 0.5 * growth))
    fibre = smooth_noise(generator, canvas.shape, (0.0025 * canvas.unit, 0.06 * canvas.unit))
    table = canvas.soften(canvas.y - TABLE_TOP)
    depth = np.clip((canvas.y - TABLE_TOP) / (1 - TABLE_TOP), 0, 1)
    canvas.paint(table, wood, 0.86 + 0.14 * rings + 0.07 * fibre, shading=0.72 + 0.28 * depth)
    canvas.darken(0.35 * np.exp(-(((canvas.y - TABLE_TOP) / 0.012) ** 2)))


def _chart(canvas: Canvas, at: Values) -> None:
    _drop_shadow(canvas, CHART)
    canvas.paint(canvas.rectangle(*CHART), np.full(len(at), 0.035), shading=1.0)
    for box, spectrum in zip(_patches(), colour_checker_at(at), strict=True):
        canvas.paint(canvas.rectangle(*box), spectrum, shading=1.0)


def _cloth(canvas: Canvas, at: Values, generator: np.random.Generator) -> None:
    """Plain weave of a red warp and a blue weft, hanging in soft folds."""
    _drop_shadow(canvas, CLOTH)
    red = edge_spectrum(at, 598, 12, 0.07, 0.62)
    blue = edge_spectrum(at, 505, 16, 0.44, 0.06)
    folds = 0.80 + 0.20 * np.sin(2 * np.pi * (3.1 * canvas.x + 0.25 * np.sin(5 * canvas.y)) + 0.6)
    sway = 0.006 * np.sin(9 * canvas.y) + 0.004 * np.sin(14 * canvas.x)
    warp, roundness = weave(canvas.y + sway, canvas.x + sway, 0.0355)
    fuzz = 1 + 0.06 * smooth_noise(generator, canvas.shape, 1.2)
    cover = canvas.rectangle(*CLOTH)
    canvas.paint(cover, red, (0.12 + 0.88 * roundness) * fuzz, shading=folds)
    canvas.paint(cover * (1 - warp), blue, (0.12 + 0.88 * roundness) * fuzz)


def _card(canvas: Canvas, at: Values) -> None:
    """White card with bars that get finer and small coloured print."""
    _drop_shadow(canvas, CARD)
    top, left, bottom, right = CARD
    canvas.paint(canvas.rectangle(*CARD), np.full(len(at), 0.86), shading=1.0)
    black = np.full(len(at), 0.05)
    start = left + 0.014
    for period in (0.030, 0.020, 0.013, 0.0085):
        # Two and a half periods or more: the group ends with the end of a bar.
        end = start + (max(3, round(0.03 / period)) - 0.5) * period
        bars = stripes(canvas.x - start - period / 4, period, softness=1 / (period * canvas.unit))
        canvas.paint(canvas.rectangle(top + 0.012, start, top + 0.050, end) * bars, black)
        start = end + 0.012
    cyan = bump_spectrum(at, 480, 38, 0.06, 0.62)
    red = edge_spectrum(at, 592, 10, 0.06, 0.70)
    _print(canvas, "PRISMASK", (top + 0.061, left + 0.014), 0.0071, red)
    _print(canvas, f"{len(at)} BANDS", (bottom - 0.028, left + 0.014), 0.0040, black)
    for index, ink in enumerate((cyan, edge_spectrum(at, 515, 12, 0.06, 0.74), red)):
        line = bottom - 0.028 + 0.0078 * index
        canvas.paint(canvas.rectangle(line, left + 0.155, line + 0.0042, right - 0.014), ink)


def _print(canvas: Canvas, text: str, corner: tuple[float, float], dot: float, ink: Values) -> None:
    """Write `text` in dots `dot` wide, from its upper left `corner`."""
    for place, letter in enumerate(text):
        for index, bit in enumerate(GLYPHS[letter]):
            if bit == "1":
                y = corner[0] + dot * (index // 3)
                x = corner[1] + dot * (index % 3) + 4 * dot * place
                canvas.paint(canvas.rectangle(y, x, y + dot, x + dot), ink)


def _balls(canvas: Canvas, at: Values, generator: np.random.Generator) -> None:
    """Four balls on the table: a mottled red, a glossy blue, a pitted green, a neutral grey."""
    red = edge_spectrum(at, 600, 11, 0.045, 0.64)
    yellow = edge_spectrum(at, 520, 18, 0.08, 0.66)
    blue = edge_spectrum(at, 492, 15, 0.58, 0.05)
    green = bump_spectrum(at, 545, 34, 0.06, 0.52)
    grey = np.full(len(at), 0.48)
    places = (
        (0.735, 0.205, 0.155),
        (0.745, 0.705, 0.135),
        (0.860, 0.465, 0.100),
        (0.885, 0.905, 0.064),
    )
    for y, x, radius in places:
        _contact_shadow(canvas, y, x, radius)
    speckle = layered_noise(generator, canvas.shape, 0.012 * canvas.unit)
    blush = smooth_noise(generator, canvas.shape, (0.07 * canvas.unit, 0.02 * canvas.unit))
    flecks = np.clip(0.9 * speckle - 1.1, 0, 1) + np.clip(0.45 * blush - 0.15, 0, 0.5)
    pits = 1 - 0.30 * np.clip(smooth_noise(generator, canvas.shape, 0.0045 * canvas.unit), 0, 1.5)
    _ball(canvas, places[0], red, np.ones(canvas.shape), shine=0.35, sharpness=60)
    canvas.paint(np.clip(0.8 * flecks, 0, 1) * canvas.disc(*places[0]), yellow)
    _ball(canvas, places[1], green, pits, shine=0.15, sharpness=25)
    _ball(canvas, places[2], blue, np.ones(canvas.shape), shine=0.8, sharpness=160)
    _ball(canvas, places[3], grey, np.ones(canvas.shape), shine=0.0, sharpness=1)


def _ball(
    canvas: Canvas,
    place: tuple[float, float, float],
    spectrum: Values,
    texture: Values,
    shine: float,
    sharpness: float,
) -> None:
    cover, shading, mirror = canvas.sphere(*place)
    canvas.paint(cover, spectrum, texture, shading, shine * mirror**sharpness)


def _pencils(canvas: Canvas, at: Values) -> None:
    """Three thin pencils in front, with round shading across."""
    magenta = edge_spectrum(at, 602, 14, 0.08, 0.66) + bump_spectrum(at, 450, 24, 0.0, 0.32)
    yellow = edge_spectrum(at, 512, 12, 0.06, 0.80)
    cyan = edge_spectrum(at, 545, 18, 0.56, 0.07)
    lines = (
        ((0.945, 0.04), (0.915, 0.29)),
        ((0.978, 0.06), (0.960, 0.36)),
        ((0.940, 0.60), (0.975, 0.84)),
    )
    for spectrum, (start, end) in zip((magenta, yellow, cyan), lines, strict=True):
        depth = canvas.rod(start, end, 0.0085)
        below = canvas.rod(
            (start[0] + 0.009, start[1] + 0.004), (end[0] + 0.009, end[1] + 0.004), 0.0085
        )
        canvas.darken(0.5 * canvas.soften(below))
        roundness = np.clip(depth / 0.0085, 0, 1)
        canvas.paint(canvas.soften(depth), spectrum, shading=0.45 + 0.55 * roundness)


def _drop_shadow(canvas: Canvas, box: Box) -> None:
    """The soft shadow of a thin thing a little off the wall, below and to the right of it."""
    top, left, bottom, right = (edge + 0.010 for edge in box)
    outside = np.hypot(
        np.clip(np.maximum(top - canvas.y, canvas.y - bottom), 0, None),
        np.clip(np.maximum(left - canvas.x, canvas.x - right), 0, None),
    )
    canvas.darken(0.45 * np.exp(-((outside / 0.010) ** 2)))


def _contact_shadow(canvas: Canvas, y: float, x: float, radius: float) -> None:
    """The soft ellipse that a ball throws on the table, away from the lamp."""
    down = (canvas.y - (y + 0.90 * radius)) / (0.30 * radius)
    across = (canvas.x - (x + 0.45 * radius)) / (1.15 * radius)
    on_table = canvas.y > TABLE_TOP
    canvas.darken(0.62 * np.exp(-((down**2 + across**2) ** 1.5)) * on_table)


MATERIALS = (5, 12)
"""Fewest and most different spectra in a scene."""


def random_scene(
    generator: np.random.Generator | int = 0,
    size: tuple[int, int] = (SIZE, SIZE),
    wavelengths: Sequence[float] | None = None,
) -> Cube:
    """A random cube `(C, H, W)` in [0, 1] from a NumPy generator or a seed.

    Regions of different materials meet at sharp edges; each material has a smooth random
    reflectance and a texture; one shading field and one black-body lamp light the whole.
    """
    if min(size) < 1:
        raise ConfigError(f"a scene of {size_text(size)} has no pixels.")
    asked = WAVELENGTHS_NM if wavelengths is None else wavelengths
    at = check_wavelengths(asked, len(asked))
    draw = np.random.default_rng(generator)
    count = int(draw.integers(*MATERIALS, endpoint=True))
    spectra = np.stack([random_reflectance(draw, at) for _ in range(count)])
    amounts = _regions(draw, size, count) * np.stack([_texture(draw, size) for _ in range(count)])
    shading = np.clip(0.75 + 0.2 * smooth_noise(draw, size, min(size) / 5), 0.15, 1.0)
    lamp = planck_light(at, float(draw.uniform(2800, 8000)))
    exposure = draw.uniform(0.6, 1.0)
    flat = (amounts * shading).reshape(count, -1)
    cube = (exposure * lamp[:, None] * spectra.T) @ flat
    values = np.clip(cube.reshape(len(at), *size), 0.0, 1.0)
    return Cube(values.astype(np.float32), at, attrs={"title": "Random synthetic scene"})


def random_reflectance(generator: np.random.Generator, wavelengths: Values) -> Values:
    """A smooth reflectance `(C,)` in [0.02, 0.95]: a grey, an edge or a hill, gently tilted."""
    at = np.asarray(wavelengths, dtype=np.float64)
    check_shape(at, ("C",), "wavelengths")
    low, high = np.sort(generator.uniform(0.02, 0.95, 2))
    centre = generator.uniform(at[0] - 20, at[-1] + 20)
    kind = generator.choice(["grey", "edge", "hill"], p=[0.2, 0.45, 0.35])
    if kind == "grey":
        values = np.full(at.shape, high)
    elif kind == "edge":
        ends = (low, high) if generator.random() < 0.65 else (high, low)
        values = edge_spectrum(at, centre, generator.uniform(8, 40), *ends)
    else:
        values = bump_spectrum(at, centre, generator.uniform(15, 60), low, high)
    span = max(float(at[-1] - at[0]), 1.0)
    tilt = 1 + generator.uniform(-0.25, 0.25) * (at - at.mean()) / span
    return np.asarray(np.clip(values * tilt, 0.02, 0.95))


def _regions(draw: np.random.Generator, size: tuple[int, int], count: int) -> Values:
    """One-hot regions `(K, H, W)`: the largest of K noise fields wins, then shapes are stamped."""
    scale = min(size) * draw.uniform(0.04, 0.25)
    fields = np.stack([layered_noise(draw, size, scale, 3) for _ in range(count)])
    label = fields.argmax(axis=0)
    y, x = np.mgrid[: size[0], : size[1]]
    for _ in range(int(draw.integers(4, 20))):
        label[_shape(draw, y, x, size)] = draw.integers(count)
    return np.asarray(label[None] == np.arange(count)[:, None, None], dtype=np.float64)


def _shape(
    draw: np.random.Generator, y: NDArray[np.intp], x: NDArray[np.intp], size: tuple[int, int]
) -> NDArray[np.bool_]:
    """Where a turned rectangle, thin bar or ellipse lies."""
    angle = draw.uniform(0, np.pi)
    down, right = y - draw.uniform(0, size[0]), x - draw.uniform(0, size[1])
    along = down * np.sin(angle) + right * np.cos(angle)
    across = down * np.cos(angle) - right * np.sin(angle)
    long, short = min(size) * draw.uniform(0.03, 0.25), min(size) * draw.uniform(0.005, 0.12)
    if draw.random() < 0.5:
        return np.asarray((np.abs(along) < long) & (np.abs(across) < short))
    return np.asarray((along / long) ** 2 + (across / short) ** 2 < 1)


def _texture(draw: np.random.Generator, size: tuple[int, int]) -> Values:
    """A brightness pattern `(H, W)` around 1: plain, mottled, striped or woven."""
    kind = draw.choice(["plain", "mottled", "striped", "woven"], p=[0.35, 0.35, 0.15, 0.15])
    if kind == "plain":
        return np.ones(size)
    strength = draw.uniform(0.05, 0.3)
    if kind == "mottled":
        return 1 + strength * layered_noise(draw, size, draw.uniform(1, 12), 3)
    y, x = np.mgrid[: size[0], : size[1]]
    angle, period = draw.uniform(0, np.pi), draw.uniform(3, 16)
    turned = x * np.cos(angle) + y * np.sin(angle)
    if kind == "striped":
        return 1 - 2 * strength * stripes(turned, period)
    _, roundness = weave(y * np.cos(angle) - x * np.sin(angle), turned, period)
    return 1 - 2 * strength * (1 - roundness)
