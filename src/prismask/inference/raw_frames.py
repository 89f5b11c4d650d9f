"""What a camera writes, before it is a snapshot: dark frame, flat field, bad pixels, exposures.

A raw frame is `gain · light + dark` per pixel, in counts of as many bits as the converter has.
The corrections are those of every camera,

    y = (raw − dark) / flat,        flat = (lit evenly − dark) over its median,

and pixels that say nothing about the light are left out. Methods take a full frame, so such a pixel
gets what its neighbours say: their median light, through the mask at its own place. Methods with
the capability `bad_pixels` do not look at it; others take it as measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text, two_digits
from prismask.errors import ConfigError, ShapeError, ValuesError
from prismask.scenes.conversion import as_measurement
from prismask.scenes.formats.files import load_exposures
from prismask.scenes.records import Measurement
from prismask.scenes.units import COUNTS, noted_counts
from prismask.wording import Finding

if TYPE_CHECKING:
    from prismask.inference.options import Frame, Options

Array = NDArray[np.float32]
Bad = NDArray[np.bool_]

BIT_DEPTHS = (10, 12, 14)
"""Converters whose counts come in 16-bit files."""
LEAST_COUNT = 256
"""Largest count below which nothing is said about the converter: such a frame is nearly dark."""
CONTAINER = 65535
"""Counts of full scale in a 16-bit file."""
MOST_FRACTION, MOST_DARK_FRACTION, MOST_FLAT_FRACTION = 2.0, 1.0, 8.0
"""Floating-point numbers above which a frame is in counts, not in fractions of full scale: the
largest of a snapshot or a dark frame, the median of a flat field (about 1 where it is normalised).
"""
LARGEST_COUNT = "largest_count"
"""What the mean of exposures notes of them."""

HOT, FAINT = 2.0, 0.1
"""A pixel is hot if it is brighter than `HOT` times the second brightest of its neighbours, and by
`FAINT` of the bright parts of the frame."""
DEAD, LIT, OPEN = 0.1, 0.1, 0.5
"""A pixel is dead if it is darker than `DEAD` times the second darkest of its neighbours, if that
one is brighter than `LIT` of the bright parts, and if the mask lets through more than `OPEN` of the
usual there."""
CLOSED = 0.05
"""Throughput, relative to its median, below which light cannot be separated from noise."""
HOT_DARK_STDS, HOT_DARK = 8.0, 0.02
"""A pixel is hot if it stands out of the dark frame by so many standard deviations, and by so much
of the bright parts of the snapshot; what is less is subtracted with the dark frame."""
RESPONSES = (0.5, 2.0)
"""Response of a pixel, relative to its neighbours in the flat field, that still counts as sound."""
MOST_BAD = 0.05
"""Share of bad pixels from which a map or a frame cannot be the right one."""
NEIGHBOURS = 2
"""Pixels on every side of a bad one that are used."""

BAYER_TILE, BAYER_CONTRAST, BAYER_SHARE = 32, 0.08, 0.8
"""Side of the parts of a frame in which the 2×2 pattern of a colour sensor is looked for, how much
brighter its brightest pixels are than its darkest, and in how many of the parts they are."""
COSMIC = 0.999
"""Share of the pixels whose spread over exposures counts; a particle hits the others."""


@dataclass(frozen=True, eq=False)
class Corrected:
    """A frame that can be taken for a snapshot."""

    values: Array
    """`(H, L)`, in the units of the frame."""
    bad: Bad
    """Pixels whose value is their neighbours'."""
    findings: tuple[Finding, ...] = ()


def correct(shot: Measurement, throughput: Array, options: Options) -> Corrected:
    """Dark frame, flat field and bad pixels of a frame `(H, L)`, brought to its units.

    throughput: Σ shear(m) of the mask, `(H, L)`.
    """
    values, counts = shot.values, noted_counts(shot.attrs)
    dark, flat, given = options.dark_frame, options.flat, options.bad_pixels
    unlit: Array | np.float32 = np.float32((options.dark_level or 0.0) / (counts or 1))
    findings: list[Finding] = []
    found: Array = values
    bad = np.zeros(values.shape, bool)
    if dark is not None:
        unlit = _fitting(dark, shot, "dark frame")
        found = found - unlit
        findings.append(Finding("note", f"a dark frame ({dark}) is subtracted."))
    if flat is not None:
        response = _response(_fitting(flat, shot, "flat field"), unlit)
        found = np.asarray(found / np.where(response > 0, response, 1), np.float32)
        findings.append(Finding("note", f"the snapshot is divided by a flat field ({flat})."))
        if given == "auto":
            bad |= _outside(response)
    if given == "auto":
        if dark is not None:
            bad |= _hot_in_the_dark(np.asarray(unlit, np.float32), _bright(found))
        bad |= outliers(found, throughput)
    elif given != "none":
        bad = _fitting(given, shot, "map of bad pixels") != 0
    count = int(bad.sum())
    if count > MOST_BAD * bad.size:
        raise ValuesError(_too_many(count, bad.size, given == "auto"))
    if count:
        found = filled(found, bad, throughput)
    return Corrected(np.asarray(found, np.float32), bad, tuple(findings))


def bad_findings(count: int, options: Options, method: str, leaves_out: bool) -> list[Finding]:
    """What becomes of so many bad pixels; leaves_out: whether the method can do without them."""
    if not count:
        return []
    is_auto = options.bad_pixels == "auto"
    where = "found (hot or dead)" if is_auto else f"in the map {options.bad_pixels}"
    what = (
        f"{method} leaves {'them' if count > 1 else 'it'} out"
        if leaves_out
        else f"filled from the neighbours, because {method} takes whole frames"
    )
    keep = " --bad-pixels none keeps them." if is_auto else ""
    return [Finding("note", f"{count} bad pixel{'s' * (count > 1)} {where}: {what}.{keep}")]


def _fitting(frame: Frame, shot: Measurement, what: str) -> Array:
    """The values of a frame that is as large as the snapshot, in the snapshot's units.

    Counts stay counts: those of integers, and the mean of some, which is floating point.
    """
    if frame.values.shape != shot.values.shape:
        raise ShapeError(
            f"the {what} ({frame}) is {size_text(frame.values.shape)} and the snapshot "
            f"{size_text(shot.values.shape)}: both come from one sensor, so crop them alike."
        )
    counts, values = noted_counts(shot.attrs), frame.values
    if counts == frame.counts:
        return values
    if counts is None:
        is_counts = float(shot.values.max()) > MOST_FRACTION
        full = np.float32(frame.counts or 1)
        return np.asarray(values * full, np.float32) if is_counts else values
    if frame.counts is not None:
        return np.asarray(values * np.float32(frame.counts / counts), np.float32)
    is_flat = what == "flat field"
    level = float(np.median(values) if is_flat else values.max())
    is_counts = level > (MOST_FLAT_FRACTION if is_flat else MOST_DARK_FRACTION)
    return np.asarray(values / np.float32(counts), np.float32) if is_counts else values


def _response(flat: Array, unlit: Array | np.float32) -> Array:
    """Response of each pixel, about 1."""
    lit = flat - unlit
    typical = float(np.median(lit))
    if not typical > 0:
        raise ValuesError(
            "the flat field is no brighter than the dark frame. It is a picture of even light "
            "without the mask: check both files."
        )
    return np.asarray(lit / typical, np.float32)


def _outside(response: Array) -> Bad:
    from scipy.ndimage import median_filter

    # Relative to the neighbours: a corner that the lens lights less is not dead.
    around = median_filter(response, 5, mode="nearest")
    low, high = RESPONSES
    return np.asarray((response < low * around) | (response > high * around) | (response <= 0))


def _hot_in_the_dark(dark: Array, bright: float) -> Bad:
    from scipy.ndimage import median_filter

    excess = dark - median_filter(dark, 3, mode="nearest")
    std = 1.4826 * float(np.median(np.abs(excess)))
    return np.asarray(excess > max(HOT_DARK_STDS * std, HOT_DARK * bright))


def _bright(values: Array) -> float:
    return max(float(np.quantile(values, 0.995)), 0.0)


def _light(values: Array, throughput: Array, closed: float) -> Array:
    """What arrives at the mask, about; less where it lets through less than `closed` of usual."""
    least = max(closed * float(np.median(throughput)), float(np.finfo(np.float32).tiny))
    return np.asarray(values / np.maximum(throughput, least), np.float32)


def outliers(values: Array, throughput: Array) -> Bad:
    """Hot and dead pixels of a snapshot `(H, L)`, as far as that is certain.

    A pixel is compared with the second most extreme of the 24 around it: so a pair of bad ones is
    found, an edge of the scene is not, and among 24 pixels of a code some are open and some closed.
    A closed opening is no dead pixel, so the mask has to be open there.
    """
    from scipy.ndimage import rank_filter

    bright, usual = _bright(values), float(np.median(throughput))
    if not bright > 0:
        return np.zeros(values.shape, bool)
    ring = np.ones((5, 5), bool)
    ring[2, 2] = False
    dimmer = rank_filter(values, 1, footprint=ring, mode="mirror")
    brighter = rank_filter(values, -2, footprint=ring, mode="mirror")
    hot = values > HOT * np.maximum(brighter, 0) + FAINT * bright
    dead = (values < DEAD * dimmer) & (dimmer > LIT * bright) & (throughput > OPEN * usual)
    return np.asarray(hot | dead)


def filled(values: Array, bad: Bad, throughput: Array) -> Array:
    """The frame `(H, L)` with bad pixels as their neighbours and the mask have them."""
    every = _light(values, throughput, CLOSED)
    found = values.copy()
    for row, column in np.argwhere(bad):
        reach = NEIGHBOURS
        while True:
            around = (
                slice(max(0, row - reach), row + reach + 1),
                slice(max(0, column - reach), column + reach + 1),
            )
            sound = ~bad[around]
            if sound.any():
                break
            reach += 1
        found[row, column] = np.median(every[around][sound]) * throughput[row, column]
    return found


def _too_many(count: int, pixels: int, is_auto: bool) -> str:
    share = two_digits(100 * count / pixels)
    if is_auto:
        return (
            f"{share} % of the pixels look hot or dead, more than any sensor has. Check dark frame "
            "and flat field, or give --bad-pixels none."
        )
    return (
        f"the map of bad pixels marks {share} % of the sensor. It has 0 where a pixel is sound and "
        "1 where it is bad: is it the other way round?"
    )


# --- bits, colour, exposures --------------------------------------------------------------------


def full_scale(shot: Measurement, bits: int | None) -> tuple[float, list[Finding]]:
    """What is full scale among the values of a frame, and what to say about it.

    bits: of the converter, if known. Otherwise full scale is that of the integer type: the
    largest count of one frame says nothing that holds for the others of a series.
    """
    counts = noted_counts(shot.attrs)
    if counts is None:
        return _float_scale(shot, bits), []
    largest = int(shot.attrs.get(LARGEST_COUNT, np.round(float(shot.values.max()) * counts)))
    if bits is not None:
        _check_bits(bits, largest, counts)
        return (2**bits - 1) / counts, []
    if counts != CONTAINER or not LEAST_COUNT <= largest < 2 ** BIT_DEPTHS[-1]:
        return 1.0, []
    depth = next(depth for depth in BIT_DEPTHS if largest < 2**depth)
    text = (
        f"the counts reach {largest}, and full scale is that of a 16-bit file, {CONTAINER}. If the "
        f"sensor has {depth} bits, --bits {depth} makes {2**depth - 1} full scale: the cube is "
        f"then {CONTAINER / (2**depth - 1):.4g} times as bright."
    )
    return 1.0, [Finding("note", text)]


def _float_scale(shot: Measurement, bits: int | None) -> float:
    """Full scale of floating-point values: as they stand, unless they are counts of `bits` bits."""
    largest = float(shot.values.max())
    if bits is None:
        return 1.0
    if largest <= MOST_FRACTION:
        raise ConfigError(
            f"--bits is for counts, and this snapshot is floating point up to {largest:.4g}: its "
            "values are taken to be fractions of full scale. Leave --bits out, or give the counts."
        )
    _check_bits(bits, round(largest), None)
    return float(2**bits - 1)


def _check_bits(bits: int, largest: int, counts: int | None) -> None:
    """Raise if so many bits cannot be those of the counts, whose type reaches `counts`."""
    if counts is not None and 2**bits - 1 > counts:
        raise ConfigError(
            f"--bits is {bits}, and the snapshot's integers reach {counts} at most: leave --bits "
            "out."
        )
    if largest > 2**bits - 1:
        fits = largest.bit_length()
        raise ConfigError(
            f"the counts reach {largest}, and {bits} bits hold {2**bits - 1}. Give --bits {fits} "
            "or more, or leave it out where the camera fills the upper bits of a 16-bit file."
        )


def check_grey(values: Array, throughput: Array) -> None:
    """Raise `ValuesError` if a frame `(H, L)` has the 2×2 pattern of a colour sensor's filters."""
    light = _light(values, throughput, 0.25)
    rows, columns = (size // BAYER_TILE for size in values.shape)
    if rows * columns < 4:
        return
    tiles = light[: rows * BAYER_TILE, : columns * BAYER_TILE]
    half = BAYER_TILE // 2
    # (rows of tiles, columns of tiles, 2, 2): mean of each of the four places in every tile
    means = tiles.reshape(rows, half, 2, columns, half, 2).mean((1, 4)).transpose(0, 2, 1, 3)
    level = means.mean((2, 3))
    lit = level > LIT * level.max()
    if lit.sum() < 4:
        return
    relative = means[lit].reshape(-1, 4) / level[lit][:, None]
    pattern = np.median(relative, axis=0)
    contrast = float(np.ptp(pattern))
    high, low = int(pattern.argmax()), int(pattern.argmin())
    agree = float((relative[:, high] - relative[:, low] > 0.5 * contrast).mean())
    if contrast > BAYER_CONTRAST and agree > BAYER_SHARE:
        raise ValuesError(
            "the snapshot looks like the raw frame of a colour sensor: pixels of a 2×2 pattern "
            f"differ by {100 * contrast:.0f} % all over it. Its filters pass different wavelengths "
            "to neighbouring pixels, which mask and dispersion cannot explain: use a monochrome "
            "sensor. If this sensor is monochrome, use --no-check-mask to continue."
        )


def average(exposures: Sequence[NDArray[Any]] | NDArray[Any], attrs: dict[str, Any]) -> Measurement:
    """The mean of exposures `(N, H, L)` of one scene; their spread is noted as its noise."""
    sizes = {np.shape(one) for one in exposures}
    if len(sizes) != 1 or len(exposures) < 2 or len(next(iter(sizes))) != 2:
        listed = ", ".join(size_text(size) for size in sorted(sizes))
        raise ShapeError(
            f"{len(exposures)} exposures of {listed}: averaging takes two or more of the same size."
        )
    stack = np.asarray(exposures, np.float32)
    variance = stack.var(axis=0, ddof=1, dtype=np.float64).ravel()
    kept = np.sort(variance)[: math.ceil(COSMIC * variance.size)]
    noise = math.sqrt(float(kept.mean()) / len(stack))
    found = {**attrs, "exposures": len(stack), "exposure_noise_std": noise}
    counts = noted_counts(attrs)
    if counts is not None:  # the mean of counts is no count any more
        found[LARGEST_COUNT] = round(float(stack.max()) * counts)
    return Measurement(stack.mean(axis=0, dtype=np.float64), found)


def averaged(given: Any) -> Measurement:
    """The mean of exposures: a stack `(N, H, L)`, a file of pages, or a list of frames or files."""
    if isinstance(given, str | Path):
        frames = load_exposures(given)
    elif isinstance(given, list | tuple) and np.ndim(given[0] if given else 0) != 1:
        frames = [as_measurement(one) for one in given]
    else:
        frames = [as_measurement(one) for one in (given if np.ndim(given) == 3 else [given])]
    return average_frames(frames)


def average_frames(frames: Sequence[Measurement]) -> Measurement:
    """The mean of exposures that are read already, and that came in one type of number."""
    full = {noted_counts(frame.attrs) for frame in frames}
    if full - {1} and None not in full:
        # Dark exposures of 0 and 1 are counts like the others.
        counts = max(one or 1 for one in full)
        frames = [
            Measurement(
                frame.values * np.float32((noted_counts(frame.attrs) or 1) / counts),
                {**frame.attrs, COUNTS: counts},
            )
            for frame in frames
        ]
    elif len(full) > 1:
        raise ValuesError(
            "some of the exposures are integers and others floating point. Store them alike."
        )
    attrs = dict(frames[0].attrs) if frames else {}
    return average([frame.values for frame in frames], attrs)


def noted_noise(measurement: Measurement) -> float | None:
    """Noise that `average` found, in counts or the measurement's own units; None: none."""
    noise = measurement.attrs.get("exposure_noise_std")
    if not isinstance(noise, int | float) or not 0 < float(noise) < math.inf:
        return None
    return float(noise) * (noted_counts(measurement.attrs) or 1)
