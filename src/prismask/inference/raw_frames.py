"""What a camera writes, before it is a snapshot: dark frame, flat field, bad pixels, exposures.

A raw frame is `gain · light + dark` per pixel, in counts of as many bits as the converter has.
The corrections are those of every camera,

    y = (raw − dark) / flat,        flat = (lit evenly − dark) over its median,

and pixels that say nothing about the light are left out. The reconstruction methods take a full
frame and cannot leave single pixels out of their data term, so such a pixel gets what its
neighbours say: their median light, through the mask at its own place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismask.checks import size_text, two_digits
from prismask.errors import ShapeError, ValuesError
from prismask.inference.findings import Finding
from prismask.scenes.records import Measurement

if TYPE_CHECKING:
    from prismask.inference.options import Frame, Options

Array = NDArray[np.float32]
Bad = NDArray[np.bool_]

BIT_DEPTHS = (10, 12, 14)
"""Converters whose counts come in 16-bit files."""
LEAST_COUNT = 256
"""Largest count below which nothing is said about the converter: such a frame is nearly dark."""
CONTAINER, BYTE = 65535, 257
"""Counts of full scale in a 16-bit file, and of one step of an 8-bit one."""

HOT, FAINT = 2.0, 0.1
"""A pixel is hot if it is brighter than `HOT` times the second brightest of its neighbours, and by
`FAINT` of the bright parts of the frame."""
DEAD, LIT, OPEN = 0.1, 0.1, 0.5
"""A pixel is dead if it is darker than `DEAD` times the second darkest of its neighbours, if that
one is brighter than `LIT` of the bright parts, and if the mask lets through more than `OPEN` of the
usual there."""
CLOSED = 0.05
"""Throughput, relative to its median, below which light cannot be told from noise."""
HOT_DARK_STDS, HOT_DARK = 8.0, 0.02
"""A pixel is hot if it stands out of the dark frame by so many standard deviations, and by so much
of the bright parts of the snapshot; what is less is subtracted with the dark frame."""
RESPONSES = (0.5, 2.0)
"""Response of a pixel, relative to its neighbours in the flat field, that still counts as sound."""
MOST_BAD = 0.05
"""Share of bad pixels from which a map or a frame cannot be the right one."""
NEIGHBOURS = 2
"""Pixels to every side of a bad one that are asked."""

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


def correct(values: Array, throughput: Array, options: Options) -> Corrected:
    """Dark frame, flat field and bad pixels of a frame `(H, L)`, all in its units.

    throughput: Σ shear(m) of the mask, `(H, L)`.
    """
    dark, flat, given = options.dark_frame, options.flat, options.bad_pixels
    findings: list[Finding] = []
    found: Array = values
    bad = np.zeros(values.shape, bool)
    if dark is not None:
        found = found - _fitting(dark, values, "dark frame")
        findings.append(Finding("note", f"a dark frame ({dark}) is subtracted."))
    if flat is not None:
        response = _response(_fitting(flat, values, "flat field"), dark, options.dark_level)
        found = np.asarray(found / np.where(response > 0, response, 1), np.float32)
        findings.append(Finding("note", f"the snapshot is divided by a flat field ({flat})."))
        if given == "auto":
            bad |= _outside(response)
    if given == "auto":
        if dark is not None:
            bad |= _hot_in_the_dark(dark.values, _bright(found))
        bad |= outliers(found, throughput)
        where = "found (hot or dead)"
    elif given != "none":
        bad = _fitting(given, values, "map of bad pixels") != 0
        where = f"in the map {given}"
    count = int(bad.sum())
    if count > MOST_BAD * bad.size:
        raise ValuesError(_too_many(count, bad.size, given == "auto"))
    if count:
        found = filled(found, bad, throughput)
        findings.append(
            Finding(
                "note",
                f"{count} bad pixel{'s' * (count > 1)} {where}: filled from their neighbours, "
                "because methods take whole frames. "
                + ("--bad-pixels none keeps them." if given == "auto" else ""),
            )
        )
    return Corrected(np.asarray(found, np.float32), bad, tuple(findings))


def _fitting(frame: Frame, values: Array, what: str) -> Array:
    if frame.values.shape != values.shape:
        raise ShapeError(
            f"the {what} ({frame}) is {size_text(frame.values.shape)} and the snapshot "
            f"{size_text(values.shape)}: both come from one sensor. Crop both the same way."
        )
    return frame.values


def _response(flat: Array, dark: Frame | None, level: float | None) -> Array:
    """Response of each pixel, about 1."""
    lit = flat - (dark.values if dark is not None else np.float32(level or 0.0))
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
    """Hot and dead pixels of a snapshot `(H, L)`, as far as they are beyond doubt.

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


def full_scale(values: Array, bits: int | None) -> tuple[float, list[Finding]]:
    """Full scale of a frame that was read as fractions of a 16-bit file's, and what to say.

    bits: of the converter, if somebody knows; None looks at the counts.
    """
    if bits is not None:
        return (2**bits - 1) / CONTAINER, []
    counts = values.astype(np.float64) * CONTAINER
    whole = np.round(counts)
    largest = int(whole.max())
    if not LEAST_COUNT <= largest < 2 ** BIT_DEPTHS[-1] or not np.allclose(
        counts, whole, atol=0.02
    ):
        return 1.0, []
    if whole.min() < 0 or not np.any(whole % BYTE):
        return 1.0, []
    depth = next(depth for depth in BIT_DEPTHS if largest < 2**depth)
    text = (
        f"the counts reach {largest} of 65535: the snapshot is taken to be {depth}-bit, and "
        f"{2**depth - 1} to be full scale. Give --bits {depth} to have it so for every snapshot, "
        "or --bits 16 to keep the file's scale."
    )
    return (2**depth - 1) / CONTAINER, [Finding("note", text)]


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
            f"differ by {100 * contrast:.0f} % all over it. Its filters pass other wavelengths in "
            "every pixel, which no mask and no dispersion explains: take snapshots with a "
            "monochrome sensor. If this one is, --no-check-mask goes on."
        )


def average(exposures: Sequence[NDArray[Any]] | NDArray[Any], attrs: dict[str, Any]) -> Measurement:
    """The mean of exposures `(N, H, L)` of one scene; their spread is noted as its noise."""
    sizes = {np.shape(one) for one in exposures}
    if len(sizes) != 1 or len(exposures) < 2 or len(next(iter(sizes))) != 2:
        listed = ", ".join(size_text(size) for size in sorted(sizes))
        raise ShapeError(
            f"{len(exposures)} exposures of {listed} came; two or more of one size can be averaged."
        )
    stack = np.asarray(exposures, np.float32)
    variance = stack.var(axis=0, ddof=1, dtype=np.float64).ravel()
    kept = np.sort(variance)[: math.ceil(COSMIC * variance.size)]
    noise = math.sqrt(float(kept.mean()) / len(stack))
    return Measurement(
        stack.mean(axis=0, dtype=np.float64),
        {**attrs, "exposures": len(stack), "exposure_noise_std": noise},
    )


def noted_noise(measurement: Measurement) -> float | None:
    """Noise that `average` found, in the measurement's own units; None where there is none."""
    noise = measurement.attrs.get("exposure_noise_std")
    known = isinstance(noise, int | float) and 0 < float(noise) < math.inf
    return float(noise) if known and noise is not None else None
