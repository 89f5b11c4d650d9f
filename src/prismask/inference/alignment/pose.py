"""The pose of a mask: how mask and spectrum differ from their calibration, and what that does.

`KnownPose` is one that an earlier alignment found: a camera that stays as it is needs only one.
Whole pixels and the orientation are found by correlation (`register`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import convolve1d, map_coordinates
from scipy.special import ive
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.optics.camera import CASSI, as_mask_batch, band_positions
from prismask.optics.resample import pixel_grid, read_further
from prismask.scenes.records import Mask

POSITION = ("down", "right", "down_by_column", "down_by_row", "right_by_column", "right_by_row")
"""Fields of a pose that say where the mask lies."""
DISPERSION = ("spread", "bend")
"""Where bands land."""
BLUR = "blur"
"""How much less sharp the mask is."""
TONES = ("middle", "contrast", "haze")
"""How its values are bent."""
LEAST_BLUR, MOST_BLUR = -1.0, 9.0
"""Blur beyond which nothing can be told apart any more, in px²."""
DIFFERENCE = 0.02
"""Step over which derivatives are taken."""
WORTH_TELLING = 0.05
"""Pixels by which something has to move the edges of a mask to be told."""
EVERY = slice(None)
"""All rows of a mask."""


@dataclass(frozen=True)
class MaskPose:
    """Where each pixel q of a mask is read, what its value counts, and where bands land.

    It is read at q + shift + M (q − centre); M is given by what it does at the frame's edges, in
    pixels there. The picture by which a mask was calibrated had a dark level, an exposure and a
    curve of its own, so that a value m lets through

        m + 2 middle · m (1 − m) + 16 contrast · m (1 − m) (m − ½) + haze · (1 − m)

    of the light, between 0 and 1. Out of focus all that is blurred, by a variance `blur` in px²
    along both axes; below 0 it was the calibration that was out of focus. Band λ lands δ_λ pixels
    further along the dispersion than calibrated,

        δ_λ = spread · t + bend · (t² − 1/3),        t from −1 where the first band lands to 1 for
                                                     the last.

    Seen from the sensor, light that lands further has met a mask that lies further and comes from
    a scene that does: m̃_λ[u] = m[u − δ_λ] and x̃_λ[u] = x_λ[u − δ_λ] give the same snapshot. So
    the camera stays as it is, with a mask of its own for each band, and the bands of its cube are
    taken back afterwards (`straightened`).
    """

    down: float = 0.0
    """Shift of the rows at which the mask is read, in px."""
    right: float = 0.0
    """Shift of the columns."""
    down_by_column: float = 0.0
    """By how much more rows are shifted at the right edge than in the middle."""
    down_by_row: float = 0.0
    """And at the lower edge."""
    right_by_column: float = 0.0
    """By how much more columns are shifted at the right edge than in the middle."""
    right_by_row: float = 0.0
    """And at the lower edge."""
    spread: float = 0.0
    """By how much further the last band lands, and the first one nearer, in px."""
    bend: float = 0.0
    """By how much further both ends of the spectrum land than its middle, in px, times 3/2."""
    blur: float = 0.0
    """Variance in px²; below 0 the mask is sharper than calibrated."""
    middle: float = 0.0
    """How much more light half-open cells let through."""
    contrast: float = 0.0
    """How much steeper transmission rises between closed and open cells."""
    haze: float = 0.0
    """Light that closed cells let through."""

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> MaskPose:
        """From the numbers in the order of the fields; those left out at the end are 0."""
        return cls(*(float(number) for number in numbers))

    @property
    def numbers(self) -> tuple[float, ...]:
        """All fields in their order."""
        return astuple(self)

    @property
    def position(self) -> MaskPose:
        """Where the mask lies and bands land, alone: what a map that goes with the mask follows."""
        return MaskPose(**{name: getattr(self, name) for name in (*POSITION, *DISPERSION)})

    def some(self, names: Sequence[str]) -> tuple[float, ...]:
        """The fields `names`."""
        return tuple(getattr(self, name) for name in names)

    def read(self, mask: Tensor, camera: CASSI, rows: slice = EVERY) -> Tensor:
        """`mask (1, 1|C, H, W)` as the light met it, one plane or one for each band.

        rows: only these of it, for a camera that disperses along the width.
        """
        moved = self.moved(mask, rows)
        return self.by_band(moved, camera).clamp(0, 1) if any(self.some(DISPERSION)) else moved

    def moved(self, mask: Tensor, rows: slice = EVERY) -> Tensor:
        """`mask (1, 1|C, H, W)` in this pose, one for all bands; its edge continues outside.

        rows: only these of it, at a share of the time.
        """
        near, inside = _with_margin(rows, mask.shape[-2], _REACH)
        return self._blurred(self._toned(self._shifted(mask, near)))[..., inside, :]

    def _shifted(self, mask: Tensor, near: slice) -> Tensor:
        if not any(self.some(POSITION)):
            return mask[..., near, :]
        rows, columns, u, v = (each[near] for each in _coordinates(mask))
        at_rows = rows + self.down + self.down_by_column * u + self.down_by_row * v
        at_columns = columns + self.right + self.right_by_column * u + self.right_by_row * v
        first, last = math.floor(float(at_rows.min())), math.ceil(float(at_rows.max()))
        source, _ = _with_margin(slice(first, last + 1), mask.shape[-2], _FILTERED)
        # Splines: a linear mixture of neighbours would be a blurred mask between pixels.
        positions = torch.stack([at_rows - source.start, at_columns]).numpy()
        planes = mask[..., source, :].double().cpu().numpy()[0]
        read = np.stack([map_coordinates(plane, positions, mode="nearest") for plane in planes])
        return torch.from_numpy(read)[None].clamp(0, 1).to(mask)

    def _toned(self, mask: Tensor) -> Tensor:
        if not any(self.some(TONES)):
            return mask
        bent = 2 * self.middle + 16 * self.contrast * (mask - 0.5)
        return (mask + (1 - mask) * (bent * mask + self.haze)).clamp(0, 1)

    def _blurred(self, mask: Tensor) -> Tensor:
        variance = min(max(self.blur, LEAST_BLUR), MOST_BLUR)
        if not variance:
            return mask
        values, kernel = mask.double().cpu().numpy(), _blur_kernel(variance)
        for axis in (-2, -1):
            values = convolve1d(values, kernel, axis, mode="nearest")
        return torch.from_numpy(values).clamp(0, 1).to(mask)

    def by_band(self, mask: Tensor, camera: CASSI) -> Tensor:
        """A mask that `moved` gave, or a strip of it, as every band meets it."""
        if not any(self.some(DISPERSION)):
            return mask
        return _along(mask, camera, [-shift for shift in self.shifts(camera)])

    def straightened(self, cube: Tensor, camera: CASSI) -> Tensor:
        """The scene `(1, C, H, W)` behind a cube that was made with these masks."""
        if not any(self.some(DISPERSION)) or camera.design == "dual":
            return cube  # a second disperser puts the bands back by itself
        return _along(cube, camera, self.shifts(camera))

    def shown(self, scene: Tensor, camera: CASSI) -> Tensor:
        """The scene that gives the calibrated camera the snapshot of `scene (1, C, H, W)` here."""
        back = MaskPose(spread=-self.spread, bend=-self.bend)
        return back.straightened(scene, camera)

    def shifts(self, camera: CASSI) -> list[float]:
        """δ of every band in pixels."""
        along = (2 * band_positions(camera) - 1).tolist()
        return [self.spread * t + self.bend * (t * t - 1 / 3) for t in along]

    def derivatives(
        self, mask: Tensor, rows: slice = EVERY
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """`moved`, its derivative by each field of the position, and by blur and tones."""
        near, inside = _with_margin(rows, mask.shape[-2], _REACH)
        shifted = self._shifted(mask, near)

        def seen(pose: MaskPose) -> Tensor:
            return pose._blurred(pose._toned(shifted))[..., inside, :]

        here = seen(self)
        down, right = (
            (self._next(name).moved(mask, rows) - here) / DIFFERENCE for name in ("down", "right")
        )
        _, _, u, v = (each[rows].to(mask) for each in _coordinates(mask))
        values = [(seen(self._next(name)) - here) / DIFFERENCE for name in (BLUR, *TONES)]
        return here, [down, right, down * u, down * v, right * u, right * v], values

    def band_derivatives(self, mask: Tensor, camera: CASSI) -> list[Tensor]:
        """∂ by_band / ∂ spread and ∂ bend, each `(1, C, H, W)`."""
        here = self.by_band(mask, camera)
        further = (self._next(name).by_band(mask, camera) for name in DISPERSION)
        return [(there - here) / DIFFERENCE for there in further]

    def _next(self, name: str) -> MaskPose:
        """A little further in one of the fields."""
        return replace(self, **{name: getattr(self, name) + DIFFERENCE})

    def text(self, size: tuple[int, int], camera: CASSI) -> str:
        """What "the mask lies …" goes on with, for a mask of `(H, W)`, without what hardly matters.

        People see the mask move; where it is read moves the other way.
        """
        parts = [f"{self._shift_text()} than calibrated", *self._turn_texts(size)]
        if any(self.some(DISPERSION)):
            parts.append(self._dispersion_text(camera))
        return ", ".join(parts) + self._blur_text() + self._tones_text()

    def _shift_text(self) -> str:
        across = f"{abs(self.right):.2f} px further {'left' if self.right > 0 else 'right'}"
        return f"{across} and {abs(self.down):.2f} px {'higher' if self.down > 0 else 'lower'}"

    def _turn_texts(self, size: tuple[int, int]) -> list[str]:
        height, width = size[0] / 2, size[1] / 2
        down_turn, right_turn = self.down_by_column / width, self.right_by_row / height
        turn = math.degrees((down_turn - right_turn) / 2)
        skew = abs(math.degrees((down_turn + right_turn) / 2))
        wider, taller = (-100 * self.right_by_column / width, -100 * self.down_by_row / height)
        farthest = math.radians(1) * max(size) / 2
        texts = {
            f"turned by {abs(turn):.3f}° {'counter' * (turn > 0)}clockwise": farthest * turn,
            f"its width changed by {wider:+.2f} %": self.right_by_column,
            f"its height changed by {taller:+.2f} %": self.down_by_row,
            f"skewed by {skew:.3f}°": farthest * skew,
        }
        return [text for text, edge in texts.items() if abs(edge) >= WORTH_TELLING]

    def _dispersion_text(self, camera: CASSI) -> str:
        over = max(camera.offsets)
        # Told along the axis: to the left, bands that land further right lie closer together.
        rightwards = camera.offsets[-1] >= camera.offsets[0]
        wider = 2 * self.spread if rightwards else -2 * self.spread
        return (
            f"and the spectrum is spread over {over + wider:.2f} px instead of {over:g}, bent by "
            f"{self.bend:+.2f} px"
        )

    def _blur_text(self) -> str:
        """As a standard deviation, which is what people know blur by."""
        if not self.blur:
            return ""
        word = "blurred" if self.blur > 0 else "sharpened"
        return f"; it is {word} by {math.sqrt(abs(self.blur)):.2f} px (standard deviation)"

    def _tones_text(self) -> str:
        if not any(self.some(TONES)):
            return ""
        shares = self._toned(torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=torch.float64))
        first, second, third, last = (f"{100 * share:.0f}" for share in shares.tolist())
        return (
            "; cells calibrated as closed, a quarter, half and three quarters open let "
            f"{first}, {second}, {third} and {last} % of the light through"
        )


FIELDS = tuple(field.name for field in fields(MaskPose))
"""Names of a pose's numbers, in their order."""


@dataclass(frozen=True)
class KnownPose:
    """The pose of one mask."""

    pose: MaskPose
    mask_hash: str = ""
    """Of the mask it was found for; empty: not known."""

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any], name: str) -> KnownPose:
        """What a cube says about its mask; `name` is the cube's, for errors."""
        # Cubes of the first versions called it a place.
        noted = attrs.get("mask_pose", attrs.get("mask_place"))
        if noted is None:
            raise ConfigError(
                f"{name} does not note the pose of its mask: it was reconstructed without --align."
            )
        try:
            numbers = tuple(float(number) for number in np.atleast_1d(np.asarray(noted, float)))
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) == len(FIELDS) - 1:
            raise ConfigError(f"{name} was aligned before blur was searched for: align it again.")
        if not 0 < len(numbers) <= len(FIELDS) or not all(map(math.isfinite, numbers)):
            raise ConfigError(f"mask_pose of {name} is {noted!r}, not the pose of a mask.")
        return cls(MaskPose.from_numbers(numbers), str(attrs.get("mask_hash", "")))

    def check(self, mask: Mask) -> None:
        """A pose is given in pixels at the edges of its mask, so for another it means nothing."""
        if self.mask_hash and self.mask_hash != mask.hash:
            raise ConfigError(
                f"the pose was found for the mask {self.mask_hash}, this one is {mask.hash}: "
                "give the mask that it was found for, or let --align search again."
            )


def _blur_kernel(variance: float) -> NDArray[np.float64]:
    """The discrete Gaussian e^(−v) I_n(v): its variance is v exactly, also where v is small.

    Its spectrum is exp(−v (1 − cos ω)), so that −v undoes what v does.
    """
    away = np.arange(-_REACH, _REACH + 1)
    kernel = ive(np.abs(away), abs(variance))
    if variance < 0:
        kernel = kernel * np.where(away % 2, -1.0, 1.0) * math.exp(-2 * variance)
    return np.asarray(kernel / kernel.sum())


_REACH = 14
"""Pixels to each side, enough for `MOST_BLUR`."""
_FILTERED = 10
"""Rows beside these from which what a spline reads still depends on, to rounding."""


def _with_margin(rows: slice, height: int, margin: int) -> tuple[slice, slice]:
    """`rows` and up to `margin` beside them, at least one row of the frame; and where in these
    they lie."""
    start = 0 if rows.start is None else rows.start
    stop = height if rows.stop is None else rows.stop
    first = min(max(0, start - margin), height - 1)
    near = slice(first, max(first + 1, min(height, stop + margin)))
    return near, slice(start - near.start, stop - near.start)


def _along(values: Tensor, camera: CASSI, further: list[float]) -> Tensor:
    """Each plane read so many pixels further along the dispersion."""
    if camera.axis == "width":
        return read_further(values, further)
    return read_further(values.mT, further).mT


def _coordinates(mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, columns, and both from −1 to 1 (column first), all `(H, W)` float64 on the CPU."""
    rows, columns = (each.expand(mask.shape[-2:]) for each in pixel_grid(mask.double().cpu()))
    height, width = mask.shape[-2:]
    v = (rows - (height - 1) / 2) / (height / 2)
    u = (columns - (width - 1) / 2) / (width / 2)
    return rows, columns, u, v


# --- does the mask belong to the snapshot, and is it in the right orientation? --------------------
#
# A snapshot carries its mask as a fine pattern, once for each band, side by side along the
# dispersion. The cross-correlation of the snapshot's local contrast with the mask's is therefore a
# streak: it starts where the first band lands, ends where the last one does, and lies in row 0 when
# mask and snapshot are registered. The score of a shift is the sum over the stretch in which the
# camera says the bands land, in units of its spread at shifts that are far away (where any sum is
# chance). On real snapshots the right mask scores 30 to 140, a wrong one less than 6.
#
# Cells of a mask lie on a grid, whose dark rims repeat every pitch and would correlate wherever
# they meet again. In the spectrum such a grid is a few high peaks among the broad hills of a random
# code, and so are long straight edges of a scene: both spectra are cut off a little above their
# median before they are multiplied, which hardly touches the code.
#
# Along the dispersion a small shift is almost like a shift of the spectrum, so only what fits
# clearly better is reported.


REACH = 16
"""Shifts that are searched, in pixels to every side."""
FAR = 64
"""Rows away at which correlations tell what chance gives."""
LOW_PASS = 3.0
"""Width (std, px) of the blur that separates the code from the scene."""
PEAK = 4.0
"""Times the median amplitude of a spectrum to which higher ones are cut."""
MASK_FOUND_SCORE = 8.0
"""Score from which the mask is taken to be in the snapshot."""
SMALLEST = 96
"""Rows and columns below which chance cannot be told from a code; at 80 right masks are missed."""
MET = (0.75, 1.5)
"""Rows and columns within which a shift of whole pixels is met; columns are less well known."""
MARGIN = 3
"""Pixels along the dispersion by which the ends of the code may be misjudged."""
LONGER = 6
"""The same for the length of the code, smoothing included."""
LARGEST = 1024
"""Rows and columns of the middle that are used; more would only take time."""

ORIENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "as given": lambda m: m,
    "flipped left-right": lambda m: m.flip(-1),
    "flipped top-bottom": lambda m: m.flip(-2),
    "turned by 180°": lambda m: m.flip(-1, -2),
    "transposed": lambda m: m.transpose(-1, -2),
    "transposed along the other diagonal": lambda m: m.flip(-1, -2).transpose(-1, -2),
    "turned by 90° counterclockwise": lambda m: m.rot90(1, (-2, -1)),
    "turned by 90° clockwise": lambda m: m.rot90(-1, (-2, -1)),
}


@dataclass(frozen=True)
class Registration:
    """How a mask lies on a snapshot."""

    score: float
    """Score of the mask as given, without a shift."""
    best_score: float
    """Score of the orientation and shift that fit best."""
    orientation: str = "as given"
    """The orientation that fits best, a name from `ORIENTATIONS`."""
    shift: tuple[int, int] = (0, 0)
    """Rows and columns by which the mask (so oriented) has to move."""
    span: int = 0
    """Pixels along the dispersion over which the code is found."""
    extent: int = 0
    """Pixels over which the camera says that the bands land."""
    gained: float = 1.0
    """Strength of the code where only the shifted bands land, relative to its mean."""

    @property
    def found(self) -> bool:
        """Whether the mask was recognised in the snapshot at all."""
        return self.best_score >= MASK_FOUND_SCORE

    @property
    def is_longer(self) -> bool:
        """Whether the code is found over clearly more pixels than the camera has bands for."""
        return self.found and self.span > self.extent + 1 + LONGER

    def is_met_by(self, pose: MaskPose) -> bool:
        """Whether a mask in `pose` lies where it fits best, if that is only a shift away."""
        rows, columns = self.shift
        is_near = abs(rows + pose.down) < MET[0] and abs(columns + pose.right) < MET[1]
        return is_near and self.found and self.orientation == "as given"

    @property
    def fits(self) -> bool:
        """Whether it was, and nothing else fits clearly better than the mask as given."""
        if not self.found or self.is_longer:
            return False
        better = self.best_score > 1.15 * max(self.score, 0.0) + 1.0
        # A shift along the dispersion changes the score little; but then bands must be found
        # where the camera as given has none.
        along = max(abs(part) for part in self.shift) >= MARGIN
        along = along and self.gained > 0.3 and self.best_score > self.score + 1.0
        return not better and not along


def register(measurement: Tensor, mask: Tensor, camera: CASSI) -> Registration | None:
    """Look for `mask (H, W)` or `(C, H, W)` in `measurement (H, L)`; None: too small to tell."""
    plane = as_mask_batch(mask).mean((0, 1)).float()
    across = plane.shape[0] if camera.axis == "width" else plane.shape[1]
    if min(across, *measurement.shape) < SMALLEST:
        return None
    seen = local_contrast(_middle(measurement.float(), camera, camera.design == "single"))

    def surface(oriented: Tensor) -> _Surface:
        return _Surface(seen, _middle(oriented, camera, camera.design == "dual"), camera)

    here = surface(plane)
    found = here.registration("as given")
    if found.fits:
        return found
    tried = [found]
    for name, turn in ORIENTATIONS.items():
        turned = turn(plane)
        if name != "as given" and turned.shape == plane.shape:
            tried.append(surface(turned).registration(name, here.score))
    return max(tried, key=lambda one: one.best_score)


def local_contrast(image: Tensor) -> Tensor:
    """The image less its blur, over the local brightness; dark parts fade out, highlights clip."""
    low = blur(image)
    dark = image.flatten()[:: max(1, image.numel() // 100_000)].quantile(0.01)
    brightness = (low - dark).clamp_min(0) + 0.05 * (image.mean() - dark).clamp_min(1e-12)
    return ((image - low) / brightness).clamp(-1, 1)


def blur(image: Tensor, std: float = LOW_PASS) -> Tensor:
    """A Gaussian blur of `(H, W)` that mirrors at the border."""
    reach = min(round(3 * std), min(image.shape) - 1)
    at = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    kernel = torch.exp(-0.5 * (at / std) ** 2)
    kernel = kernel / kernel.sum()
    padded = F.pad(image[None, None], (reach,) * 4, mode="reflect")
    across = F.conv2d(padded, kernel[None, None, None])
    return F.conv2d(across, kernel[None, None, :, None])[0, 0]


class _Surface:
    """The score of every shift of one oriented mask; rows across the dispersion, columns along."""

    def __init__(self, seen: Tensor, plane: Tensor, camera: CASSI) -> None:
        self.turned = camera.axis == "height"
        self.extent = camera.extent
        # Far shifts tell what chance gives, as long as most of the two still overlap.
        self.row = min(FAR, min(seen.shape[0], plane.shape[0]) // 3)
        self.reach = min(REACH, self.row // 2)
        rows = torch.arange(-self.row, self.row + 1, device=plane.device)
        columns = torch.arange(-REACH, self.extent + REACH + 1, device=plane.device)
        # Behind a dual disperser the mask is the longer one, and each band sees it further left.
        columns = columns - self.extent if camera.design == "dual" else columns
        code = plane - blur(plane)
        self.correlation = _correlate(seen, code, rows, columns)
        scores = self.correlation.unfold(1, self.extent + 1, 1).sum(-1)
        away = self.reach + self.row // 8
        chance = torch.cat([scores[: self.row - away], scores[self.row + away + 1 :]])
        spread = 1.4826 * float(chance.abs().median())
        near = scores[self.row - self.reach : self.row + self.reach + 1]
        self.scores = near / max(spread, 1e-12)
        self.score = float(self.scores[self.reach, REACH])

    def registration(self, name: str, as_given: float | None = None) -> Registration:
        """The best shift of this orientation."""
        row, column = divmod(int(self.scores.argmax()), self.scores.shape[1])
        profile = self.correlation[self.row + row - self.reach]
        inside = max(float(profile[column : column + self.extent + 1].mean()), 1e-12)
        gained = (
            profile[REACH + self.extent + 1 : column + self.extent + 1]
            if column > REACH
            else profile[column:REACH]
        )
        shift = (row - self.reach, column - REACH)
        return Registration(
            self.score if as_given is None else as_given,
            float(self.scores.max()),
            name,
            shift[::-1] if self.turned else shift,
            _run_above(profile, 0.25 * inside, column + self.extent // 2),
            self.extent,
            float(gained.mean()) / inside if gained.numel() else 1.0,
        )


def _run_above(profile: Tensor, level: float, middle: int) -> int:
    """Length of the run of values above `level` around `middle`, smoothed over 5 of them."""
    smooth = F.avg_pool1d(profile[None, None], 5, 1, 2, count_include_pad=False)[0, 0]
    above = (smooth > level).tolist()
    if not above[middle]:
        return 0
    first = last = middle
    while first > 0 and above[first - 1]:
        first -= 1
    while last + 1 < len(above) and above[last + 1]:
        last += 1
    return last - first + 1


def _correlate(seen: Tensor, code: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Cross-correlation at the given shifts, by FFT, peaks cut; in units of its own."""
    size = tuple(
        _fast_length(max(a, b) + 2 * FAR + REACH)
        for a, b in zip(seen.shape, code.shape, strict=True)
    )
    seen_spectrum, code_spectrum = (
        _without_peaks(torch.fft.rfft2(image, size)) for image in (seen, code)
    )
    surface: Tensor = torch.fft.irfft2(seen_spectrum * code_spectrum.conj(), size)
    return surface[rows % size[0]][:, columns % size[1]]


def _without_peaks(spectrum: Tensor) -> Tensor:
    """A spectrum with amplitudes up to `PEAK` times their median, which is 1; phases are kept."""
    amplitude = spectrum.abs()
    limit = (PEAK * amplitude.median()).clamp_min(1e-20)
    return spectrum / torch.maximum(amplitude, limit)


def _fast_length(least: int) -> int:
    """The next length that the FFT likes: a product of 2, 3 and 5."""
    while True:
        rest = least
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return least
        least += 1


def _middle(image: Tensor, camera: CASSI, is_sheared: bool) -> Tensor:
    """At most `LARGEST` rows and columns of the scene's middle, the dispersion along the columns.

    What is sheared (a measurement behind one disperser, a mask behind two) is longer by it.
    """
    turned = image if camera.axis == "width" else image.T
    extent = camera.extent if is_sheared else 0
    rows, columns = turned.shape[0], turned.shape[1] - extent
    top, left = max(0, (rows - LARGEST) // 2), max(0, (columns - LARGEST) // 2)
    return turned[top : top + LARGEST, left : left + min(columns, LARGEST) + extent]
