"""Does the mask belong to the snapshot, and is it in the right orientation?

A snapshot carries its mask as a fine pattern, once for each band, side by side along the
dispersion. The cross-correlation of the snapshot's local contrast with the mask's is therefore a
streak: it starts where the first band lands, ends where the last one does, and lies in row 0 when
mask and snapshot are registered. The score of a shift is the sum over the stretch in which the
camera says the bands land, in units of its spread at shifts that are far away (where any sum is
chance). On real snapshots the right mask scores 30 to 140, a wrong one less than 6.

Cells of a mask lie on a grid, whose dark rims repeat every pitch and would correlate wherever they
meet again. In the spectrum such a grid is a few high peaks among the broad hills of a random code,
and so are long straight edges of a scene: both spectra are cut off a little above their median
before they are multiplied, which hardly touches the code.

Along the dispersion a small shift is almost like a shift of the spectrum, so only what fits
clearly better is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.optics.camera import CASSI, as_mask_batch

REACH = 16
"""Shifts that are searched, in pixels to every side."""
FAR = 64
"""Rows away at which correlations tell what chance gives."""
LOW_PASS = 3.0
"""Width (std, px) of the blur that separates the code from the scene."""
PEAK = 4.0
"""Times the median amplitude of a spectrum to which higher ones are cut."""
CERTAIN = 8.0
"""Score from which the mask is taken to be in the snapshot."""
SMALLEST = 96
"""Rows and columns below which chance cannot be told from a code; at 80 right masks are missed."""
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
        return self.best_score >= CERTAIN

    @property
    def is_longer(self) -> bool:
        """Whether the code is found over clearly more pixels than the camera has bands for."""
        return self.found and self.span > self.extent + 1 + LONGER

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
