"""A camera from pictures of its mask, each in light of one wavelength.

In evenly spread light of wavelength λ the sensor shows the mask itself, moved by that light's
place: y[h, v] = m[h, v − o_λ]. How far the pictures have moved against each other is the
dispersion, at the wavelengths that were measured; a curve carries it to all others. The
picture at the band of offset 0 is the mask.

How far a pattern has moved from one picture to another, the cross-correlation of both pictures'
fine detail says to a pixel. Then the shift d, a gain a and a level b are fitted by least squares on
the pixels that both pictures show,

    second[v] ≈ a · first[v − d] + b

with steps of Gauss and Newton: the picture moved so far is compared with the second, and its
slopes say how much further it has to go.

The curve says where light of any wavelength lands, from places at a few. A polynomial in λ suits a
grating, one in 1/λ² suits glass, whose index follows Cauchy's series n = A + B/λ² + C/λ⁴: for BK7
over 54 px, four places then tell the others to a tenth of a pixel, and a polynomial in λ to 0.7 px.
Which of the two it is, the places themselves say: the curve counts that best predicts one it has
not seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, ndimage

from prismask.checks import size_text
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.optics.camera import CASSI, camera_attrs
from prismask.scenes.defaults import STEP
from prismask.scenes.records import Mask, check_wavelengths

Floats = NDArray[np.float64]

POWERS = (1, -2)
"""Of λ, in which a polynomial is tried: a grating's and a prism's."""
HIGHEST_DEGREE = 4
LEAST_SPREAD_PX = 0.5
"""Movement from end to end below which there is nothing to fit a curve to."""

UNSTEADY_PX = 0.2
"""How far light may seem to go back from one wavelength to the next: places are not exact."""


@dataclass(frozen=True)
class Curve:
    """px(λ) = Σ_k coefficients[k] · λ_nm^(k · power)."""

    coefficients: tuple[float, ...]
    power: int = 1
    """1: a polynomial in λ; −2: in 1/λ²."""

    def __call__(self, nm: ArrayLike) -> Floats:
        """The place of light of `nm`, in pixels."""
        at = np.asarray(nm, dtype=np.float64) ** self.power
        return np.asarray(np.polynomial.Polynomial(self.coefficients)(at))

    def __str__(self) -> str:
        """`-60 +0.2·nm^1 -0.0001·nm^2`."""
        return " ".join(
            f"{c:+.6g}·nm^{k * self.power}" if k else f"{c:.6g}"
            for k, c in enumerate(self.coefficients)
        )


def fit_curve(nm: Floats, px: Floats, degree: int | None = None) -> tuple[Curve, float]:
    """The curve, and how far off it is, at worst, for a place that it does not know.

    degree: of the polynomial; None: the one that best predicts a place it has not seen.
    """
    most = len(nm) - 1
    if degree is not None and not 1 <= degree <= most:
        raise ConfigError(
            f"a polynomial of degree {degree} needs {degree + 1} wavelengths or more, and a "
            f"degree is 1 or more; there are {len(nm)} wavelengths."
        )
    if np.ptp(px) < LEAST_SPREAD_PX:
        raise ValuesError(
            f"the pictures hardly move against each other ({np.ptp(px):.2f} px along that axis). "
            "Are they of different wavelengths, and is it the axis of the dispersion? Hot pixels "
            "and dust stay where they are and may outshine the mask: give a dark picture and a "
            "flat one."
        )
    degrees = [degree] if degree else list(range(1, min(HIGHEST_DEGREE, most - 1) + 1)) or [most]
    misses = {(one, power): _left_out(nm, px, one, power) for power in POWERS for one in degrees}
    # Where too few places are left to tell, all misses are NaN, and the first stays: the plain one.
    best = min(misses, key=lambda which: (misses[which], which[0]))
    curve = _through(nm, px, *best)
    # A line through swapped places would still rise: the places themselves are checked too.
    way = np.sign(px[-1] - px[0])
    steady = np.all(way * np.diff(curve(np.linspace(nm[0], nm[-1], 257))) > 0)
    if not steady or np.any(way * np.diff(px) < -UNSTEADY_PX):
        raise ValuesError(
            "the light does not move on steadily with its wavelength: "
            + ", ".join(f"{w:g} nm at {p:.1f} px" for w, p in zip(nm, px, strict=True))
            + ". Are two pictures swapped?"
        )
    return curve, misses[best]


def _through(nm: Floats, px: Floats, degree: int, power: int) -> Curve:
    found = np.polynomial.Polynomial.fit(nm**power, px, degree).convert().coef
    return Curve(tuple(float(c) for c in found), power)


def _left_out(nm: Floats, px: Floats, degree: int, power: int) -> float:
    """Worst miss of inner places by curves through all others; the ends would be extrapolated."""
    inner = range(1, len(nm) - 1)
    if len(nm) - 1 <= degree or not inner:
        return float("nan")
    misses = []
    for one in inner:
        others = np.arange(len(nm)) != one
        curve = _through(nm[others], px[others], degree, power)
        misses.append(abs(float(curve(nm[one])) - float(px[one])))
    return max(misses)


ALIKE = 0.5
"""Correlation of two pictures below which they do not show the same mask."""
REPORTED_FROM_PX = 0.1
"""Misfit of the curve, in pixels, above which a warning is given."""
ACROSS_PX = 0.25
"""How far the spectrum may leave its row before a warning is given."""
UNEVEN_PX = 0.25
"""How much further one quarter of a picture may move than another before a warning is given."""
POSITION_ERROR_PX = 0.05
"""How well a place is known at best."""
BEYOND = 0.02
"""Share of the measured range by which wavelengths may lie outside it."""
DARK_FIELD = 0.02
"""Share of the brightest light below which a pixel is not lit, and its transmission not known."""
OPEN = 99.5
"""Percentile of a picture that counts as fully open where no flat field says so."""


@dataclass(frozen=True)
class Place:
    """Where light of one wavelength lands, in pixels."""

    wavelength_nm: float
    along: float
    """Along the dispersion, from the first wavelength on."""
    across: float
    """Across it: 0 in a camera whose spectrum runs along its rows."""
    likeness: float
    """Correlation with the picture that all are compared with."""
    uneven: float
    """How much further one quarter of the picture has moved than another, in pixels."""


@dataclass(frozen=True, eq=False)
class MeasuredCamera:
    """What the pictures say."""

    mask: Mask
    """With the camera noted in its attributes."""
    camera: CASSI
    wavelengths: NDArray[np.float64]
    """Centre of each band in nm."""
    places: tuple[Place, ...]
    curve: Curve
    """The place of any wavelength."""
    misfit_px: float
    """Largest distance of a measured place from the curve."""
    left_out_px: float
    """The same for curves that did not know the place; NaN where too few were measured."""
    findings: tuple[str, ...]
    """Remarks and warnings, one sentence each."""


def transmission(lit: Picture, flat: Picture | None = None, dark: Picture | None = None) -> Picture:
    """m = (with − dark) / (without − dark), in [0, 1]; 0 where no light arrives without a mask.

    flat: the same light without the mask; None: what is brightest in the picture is fully open.
    """
    ground = np.zeros(()) if dark is None else np.asarray(dark, dtype=np.float64)
    light = np.asarray(lit, dtype=np.float64) - ground
    if flat is None:
        whole = np.full(light.shape, np.percentile(light, OPEN))
    else:
        whole = np.asarray(flat, dtype=np.float64) - ground
    brightest = float(np.percentile(whole, OPEN))
    if not brightest > 0:
        raise ValuesError("no light is left once the dark picture is taken off: are they swapped?")
    seen = whole > DARK_FIELD * brightest
    found: Picture = np.clip(np.where(seen, light / np.where(seen, whole, 1.0), 0.0), 0.0, 1.0)
    return found


def measure_camera(
    pictures: Mapping[float, Picture],
    *,
    step: float = STEP,
    bands: int | None = None,
    wavelengths: Sequence[float] | None = None,
    axis: Literal["width", "height"] | None = None,
    degree: int | None = None,
) -> MeasuredCamera:
    """The camera behind `pictures`, wavelength in nm → transmission `(H, W)` on the whole sensor.

    The bands are at `wavelengths`, where those are given; else `bands` of them, evenly spaced in
    pixels from the first picture's position to the last's; else as many as lie about `step` pixels
    apart, which is how the networks know them.
    axis: of the dispersion; None: along which the pictures move most.
    degree: of the polynomial; None: the one that best predicts a place it has not seen.
    """
    _check(pictures, step, bands)
    shifts = _shifts(pictures)
    axis = axis or _axis_of(shifts)
    places = _places(shifts, axis)
    nm = np.array([place.wavelength_nm for place in places])
    px = np.array([place.along for place in places])
    curve, left_out = fit_curve(nm, px, degree)
    centres = _centres(curve, nm, step, bands, wavelengths)
    # A thousandth of a pixel is below any calibration, and a whole number may be meant.
    camera = CASSI(tuple(float(v) for v in np.round(curve(centres), 3)), axis=axis)
    mask = _mask(pictures, nm, px, float(curve(centres).min()), camera)
    misfit = float(np.abs(curve(nm) - px).max())
    attrs = {**camera_attrs(camera), "wavelengths_nm": [float(w) for w in centres]}
    return MeasuredCamera(
        Mask(mask.astype(np.float32), attrs=attrs),
        camera,
        centres,
        places,
        curve,
        misfit,
        left_out,
        tuple(_findings(places, misfit, left_out, len(nm))),
    )


def _check(pictures: Mapping[float, Picture], step: float, bands: int | None) -> None:
    if len(pictures) < 2:
        raise ConfigError(
            "a dispersion needs pictures at two wavelengths or more; four or five show its curve."
        )
    shapes = {np.shape(picture) for picture in pictures.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        listed = ", ".join(sorted(size_text(shape) for shape in shapes))
        raise ShapeError(f"all pictures are of one sensor and have its size; these are {listed}.")
    if not 0 < step < np.inf:
        raise ConfigError(f"the step is {step:g}; bands lie a number of pixels above 0 apart.")
    if bands is not None and bands < 2:
        raise ConfigError(f"{bands} bands: a spectrum has two or more.")


def _shifts(pictures: Mapping[float, Picture]) -> dict[float, Shift]:
    """Every picture against the one in the middle of the spectrum, which all overlap most."""
    ordered = sorted(pictures)
    middle = ordered[len(ordered) // 2]
    found = {nm: find_shift(pictures[middle], pictures[nm]) for nm in ordered}
    for nm, shift in found.items():
        if shift.likeness < ALIKE:
            raise ValuesError(
                f"the picture at {nm:g} nm does not show the mask of the one at {middle:g} nm "
                f"(correlation {shift.likeness:.2f}). Is it of this camera, exposed well, and of "
                "one wavelength only?"
            )
    return found


def _axis_of(shifts: Mapping[float, Shift]) -> Literal["width", "height"]:
    right = np.ptp([shift.right for shift in shifts.values()])
    down = np.ptp([shift.down for shift in shifts.values()])
    return "width" if right >= down else "height"


def _places(shifts: Mapping[float, Shift], axis: str) -> tuple[Place, ...]:
    both = [(s.right, s.down) if axis == "width" else (s.down, s.right) for s in shifts.values()]
    first = both[0]
    return tuple(
        Place(float(nm), along - first[0], across - first[1], shift.likeness, shift.uneven)
        for (nm, shift), (along, across) in zip(shifts.items(), both, strict=True)
    )


def _centres(
    curve: Curve,
    nm: NDArray[np.float64],
    step: float,
    bands: int | None,
    wavelengths: Sequence[float] | None,
) -> NDArray[np.float64]:
    low, high = float(nm[0]), float(nm[-1])
    if wavelengths is not None:
        given = check_wavelengths(wavelengths, len(wavelengths))
        slack = BEYOND * (high - low)
        if given.min() < low - slack or given.max() > high + slack:
            raise ConfigError(
                f"the bands reach from {given.min():g} to {given.max():g} nm, the pictures from "
                f"{low:g} to {high:g} nm. Take pictures at both ends, or leave those bands out."
            )
        return given
    grid = np.linspace(low, high, 4097)
    reached = np.abs(curve(grid) - curve(low))
    spread = float(reached[-1])
    if spread - np.floor(spread) < POSITION_ERROR_PX < spread:
        # A few hundredths of a pixel too many would cost the scene a column.
        spread = float(np.floor(spread))
    # From end to end: light that no band stands for would be taken for light of the others.
    count = round(spread / step) + 1 if bands is None else bands
    if count < 2:
        raise ConfigError(
            f"between {low:g} and {high:g} nm light moves by {spread:.2f} px only; bands {step:g} "
            "px apart are not to be had. Measure a wider range, or give a smaller step."
        )
    places = np.linspace(0.0, spread, count)
    return np.asarray(np.interp(places, reached, grid), dtype=np.float64)


def _mask(
    pictures: Mapping[float, Picture],
    nm: NDArray[np.float64],
    px: NDArray[np.float64],
    origin: float,
    camera: CASSI,
) -> Picture:
    """The picture nearest to the band of offset 0, moved by what is left, cut to the scene."""
    nearest = int(np.abs(px - origin).argmin())
    by = origin - float(px[nearest])
    picture = np.asarray(pictures[float(nm[nearest])], dtype=np.float64)
    shift = (0.0, by) if camera.axis == "width" else (by, 0.0)
    height, width = picture.shape
    size = (height, width - camera.extent) if camera.axis == "width" else (
        height - camera.extent, width
    )  # fmt: skip
    if min(size) < 1:
        raise ShapeError(
            f"the spectrum spreads over {camera.extent} px of pictures of "
            f"{size_text(picture.shape)}: nothing is left for the scene."
        )
    # Interpolation costs sharpness, and a hundredth of a pixel is below any calibration.
    shown = picture if abs(by) < 0.01 else moved(picture, *shift)
    return np.clip(shown[: size[0], : size[1]], 0.0, 1.0)


def _findings(places: Sequence[Place], misfit: float, left_out: float, count: int) -> list[str]:
    found = []
    if count < 4:
        found.append(
            f"{count} wavelengths: between them the curve of the prism is a guess. Four or five "
            "would show how good it is."
        )
    worst = misfit if np.isnan(left_out) else max(misfit, left_out)
    if worst > REPORTED_FROM_PX:
        found.append(
            f"the curve misses a measured place by up to {worst:.2f} px: measure at more "
            "wavelengths, or narrow the light of each."
        )
    across = float(np.ptp([place.across for place in places]))
    along = float(np.ptp([place.along for place in places]))
    if across > ACROSS_PX:
        angle = np.degrees(np.arctan2(across, along))
        found.append(
            f"the spectrum leaves its row by {across:.2f} px from end to end ({angle:.2f}°), which "
            "the camera's description does not hold: turn the sensor or the prism, or the pictures "
            "and snapshots alike."
        )
    oddest = max(places, key=lambda place: place.uneven)
    if oddest.uneven > UNEVEN_PX:
        found.append(
            f"at {oddest.wavelength_nm:g} nm one quarter of the mask has moved by "
            f"{oddest.uneven:.2f} px more than another: the light is magnified by its wavelength, "
            "or lines are bent, which the camera's description does not hold. Bands are right in "
            "the middle of the field and off towards its edges."
        )
    least = min(places, key=lambda place: place.likeness)
    if least.likeness < 0.8:
        found.append(
            f"the picture at {least.wavelength_nm:g} nm resembles the others least (correlation "
            f"{least.likeness:.2f}): it may be out of focus, dark, or of a mask that transmits "
            "differently there."
        )
    return found


Picture = NDArray[np.floating[Any]]

DETAIL = 8.0
"""Width (std, px) of the blur that is taken off: uneven light is wider, a mask's cells narrower."""
GRAIN = 0.7
"""Width (std, px) of the blur below which detail is not looked at: sharp cells are finer than
pixels can tell, and what aliases stays where it is. Halves the error for cells of 1.5 px."""
LEAST_OVERLAP = 0.3
"""Share of each side that both pictures have to show."""
STEPS, STILL = 12, 1e-4
"""Most steps of the fit, and the step in pixels below which it has arrived."""
BORDER = 4
"""Pixels at the edges that a moved picture does not know."""
LEAST_QUARTER = 16
"""Side of a quarter below which it is too small to tell a shift of its own."""
LEAST_LIKENESS = 0.7
"""Likeness below which a quarter is dark or noisy, and its shift is chance. One that the pattern
only borders on is alike, but faint."""


@dataclass(frozen=True)
class Shift:
    """second[row, column] = first[row − down, column − right]."""

    down: float
    right: float
    likeness: float
    """Correlation of the two where both are seen: 1 is the same pattern, 0 is chance."""
    uneven: float
    """How far apart the shifts of the four quarters of the pictures are, in pixels: 0 where the
    pattern moves as a whole."""


def find_shift(first: Picture, second: Picture) -> Shift:
    """The shift from `first` to `second`, both `(H, W)`."""
    if first.shape != second.shape:
        raise ShapeError(
            f"the pictures are {size_text(first.shape)} and {size_text(second.shape)}; a shift is "
            "between two of the same size."
        )
    start, moving = (_detail(picture) for picture in (first, second))
    down, right = _whole_pixels(start, moving)
    for _ in range(STEPS):
        step = _step(start, moving, down, right)
        down, right = down + step[0], right + step[1]
        if max(abs(step[0]), abs(step[1])) < STILL:
            break
    ours, theirs = _common(start, moving, down, right)
    return Shift(down, right, _likeness(ours, theirs), _unevenness(ours, theirs))


def moved(picture: Picture, down: float, right: float) -> Picture:
    """The picture moved by any distance; what comes in from outside repeats its edge."""
    found: Picture = ndimage.shift(picture, (down, right), order=3, mode="nearest")
    return found


def _detail(picture: Picture) -> Picture:
    values = np.asarray(picture, dtype=np.float64)
    fine: Picture = ndimage.gaussian_filter(values, GRAIN) - ndimage.gaussian_filter(values, DETAIL)
    if not float(fine.std()) > 0:
        raise ValuesError("a picture is even everywhere: there is no pattern in it to follow.")
    return fine


def _whole_pixels(first: Picture, second: Picture) -> tuple[float, float]:
    """The shift with the highest correlation over the pixels that both show."""
    height, width = first.shape
    size = tuple(fft.next_fast_len(2 * side) for side in first.shape)
    one, other = (fft.rfft2(picture, size) for picture in (first, second))
    both = fft.irfft2(other * one.conj(), size)
    # The fewer pixels meet, the smaller the sum: divided out, within reason.
    rows, columns = (_distances(length) for length in size)
    met = (1 - np.abs(rows) / height)[:, None] * (1 - np.abs(columns) / width)[None, :]
    reach = (np.abs(rows) <= (1 - LEAST_OVERLAP) * height)[:, None] & (
        np.abs(columns) <= (1 - LEAST_OVERLAP) * width
    )[None, :]
    score = np.where(reach, both / np.maximum(met, LEAST_OVERLAP**2), -np.inf)
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    return float(rows[row]), float(columns[column])


def _distances(length: int) -> NDArray[np.int64]:
    """Signed distances of a cyclic correlation of that length."""
    places = np.arange(length)
    return np.where(places > length // 2, places - length, places)


def _common(first: Picture, second: Picture, down: float, right: float) -> tuple[Picture, Picture]:
    """`first` moved, and `second`, where the move brings nothing in from outside."""
    shifted = moved(first, down, right)
    window = tuple(
        slice(max(0, int(np.ceil(by))) + BORDER, side + min(0, int(np.floor(by))) - BORDER)
        for by, side in zip((down, right), first.shape, strict=True)
    )
    return shifted[window], second[window]


def _step(first: Picture, second: Picture, down: float, right: float) -> tuple[float, float]:
    """How much further `first` has to move."""
    return _further(*_common(first, second, down, right))


def _further(ours: Picture, theirs: Picture) -> tuple[float, float]:
    """How far `ours` has to move to be `theirs`, by its slopes, with gain and level free."""
    if min(ours.shape) < BORDER:
        return 0.0, 0.0
    rows, columns = np.gradient(ours)
    # Moved by d more, the picture changes by −d · slope; times the gain, which is fitted too.
    matrix = np.stack([ours, np.ones_like(ours), -rows, -columns], -1).reshape(-1, 4)
    gain, _, by_row, by_column = np.linalg.lstsq(matrix, theirs.ravel(), rcond=None)[0]
    if abs(gain) < 1e-6:
        return 0.0, 0.0
    # More than half a pixel at once is beyond what a slope knows.
    return tuple(float(np.clip(by / gain, -0.5, 0.5)) for by in (by_row, by_column))  # type: ignore[return-value]


def _likeness(ours: Picture, theirs: Picture) -> float:
    if min(ours.shape) < BORDER or not (ours.std() > 0 and theirs.std() > 0):
        return 0.0
    return float(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1])


def _unevenness(ours: Picture, theirs: Picture) -> float:
    """How far apart the quarters are in what they would still move."""
    middle, centre = ours.shape[0] // 2, ours.shape[1] // 2
    if min(middle, centre) < LEAST_QUARTER:
        return 0.0
    halves = (slice(None, middle), slice(middle, None)), (slice(None, centre), slice(centre, None))
    quarters = [(ours[part], theirs[part]) for part in itertools.product(*halves)]
    usable = [
        q for q in quarters if _likeness(*q) > LEAST_LIKENESS and q[1].std() > 0.3 * theirs.std()
    ]
    left = [_further(*quarter) for quarter in usable]
    return float(np.ptp(left, axis=0).max()) if left else 0.0
