"""Training masks: where they come from, and masks that differ from their calibration.

They are crops of a calibrated region, of one mask, or of fabricated instruments.

Between calibration and snapshot an aperture moves, turns and stretches a little, the lens loses
focus, pixels die; and a calibration has a value curve, a gain and noise of its own. So a share of
the samples is measured through a true mask while the network is given another, the nominal one.
Each fault is absent from most samples, and its size is the square of an even number, so small ones
are frequent. In half of them the two masks are exchanged: a calibration may be blurred or noisy
while the aperture is not.

The network may also be given how far the mask is off, as repeated calibrations would say it: a
local or an even rms difference, itself in error by a fifth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.errors import ConfigError
from prismask.models.inputs import UNKNOWN
from prismask.optics.faults import Variation, vary
from prismask.optics.randomness import normal, uniform
from prismask.optics.resample import gaussian_blur, pixel_grid, sample_bilinear
from prismask.training.config import MaskConfig
from prismask.training.data.crops import to_device

OPEN = 0.5
"""Transmission above which a pixel of a binary mask is open."""
SOFTEST = 1.0
"""Blur, in pixels, of the softest band of a mask with a plane per band."""


def sharpened(masks: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Masks `(B, 1, H, W)`, a share of them with pixels open or closed, as an ideal aperture's.

    numbers: uniform, `(B,)` on the CPU.
    """
    is_binary = to_device(numbers < share, masks.device)[:, None, None, None]
    return torch.where(is_binary, (masks > OPEN).to(masks.dtype), masks)


def chromatic(masks: Tensor, bands: int, focus: float) -> Tensor:
    """Masks `(B, 1, H, W)` through a lens that is sharp in one band alone, `(B, C, H, W)`.

    focus: where in the spectrum that is, from 0 to 1; the further from it, the softer.
    """
    place = (torch.arange(bands, device=masks.device, dtype=masks.dtype) + 0.5) / bands
    softness = (place - focus).abs()[None, :, None, None]
    return torch.lerp(masks, gaussian_blur(masks, SOFTEST), softness)


class MaskSource:
    """Draws masks `(1|B, 1, h, w)` on the device from large masks that stay there."""

    def __init__(
        self,
        region: Tensor | None,
        fabricated: Tensor | None,
        size: tuple[int, int],
        config: MaskConfig,
    ) -> None:
        if region is None and fabricated is None:
            raise ConfigError("training needs a mask region or fabricated masks.")
        self.size = size
        self.config = config
        self.region = None if region is None else region[None]
        self.fabricated = fabricated
        for planes in (self.region, self.fabricated):
            if planes is not None and (planes.shape[-2] < size[0] or planes.shape[-1] < size[1]):
                raise ConfigError(
                    f"a mask of {size[0]}×{size[1]} does not fit into the training region of "
                    f"{planes.shape[-2]}×{planes.shape[-1]}. Use a smaller data.crop."
                )

    def draw(self, count: int, host: torch.Generator, device: torch.Generator) -> Tensor:
        """One mask for the batch, or `count` of them (`masks.per`); varied if so configured."""
        many = count if self.config.per == "sample" else 1
        # Numbers are drawn whatever is switched on, so a change of one option moves nothing else.
        numbers = torch.rand(many, 4, generator=host)
        planes = self._planes(float(numbers[0, 3]))
        height, width = self.size
        plane = (numbers[:, 0] * planes.shape[0]).long()
        row = (numbers[:, 1] * (planes.shape[1] - height + 1)).long()
        column = (numbers[:, 2] * (planes.shape[2] - width + 1)).long()
        places = zip(plane.tolist(), row.tolist(), column.tolist(), strict=True)
        masks = torch.stack([planes[p, r : r + height, c : c + width] for p, r, c in places])[
            :, None
        ]
        return vary(masks, device) if self.config.vary else masks

    def calibrated(self, masks: Tensor, device: torch.Generator) -> Tensor:
        """What people believe the masks to be: each a little displaced."""
        displaced = Variation(
            turns=False, mirrors=False, shift=self.config.calibration_error, gamma=1.0, gain=0.0
        )
        return vary(masks, device, displaced)

    def _planes(self, number: float) -> Tensor:
        if self.region is None:
            assert self.fabricated is not None
            return self.fabricated
        if self.fabricated is not None and number < self.config.fabricated_share:
            return self.fabricated
        return self.region


SHIFT, TURN, STRETCH = 1.5, math.radians(0.5), 0.01
"""Most that a mask is moved (pixels), turned and stretched."""
BLUR, GAMMA, GAIN = 0.9, 0.5, 0.2
"""Largest blur (pixels), logarithm of the value curve's exponent, and change of gain."""
DEAD, STUCK, NOISE = 0.03, 0.02, 0.12
"""Largest shares of dead and stuck pixels, and largest noise."""
SPREAD, BEND = 0.02, 0.01
"""Largest errors of the dispersion: its length, and how far its middle is moved (share of it)."""
STATED_ERROR = 0.2
"""Standard deviation of the logarithm of what is stated, where it is stated."""
NEAR = 9
"""Side of the window over which a local rms difference is taken, in pixels."""
REACH = 3
"""Pixels to either side that a blur reaches."""
PROBES = 4
"""Bands at which an error of the dispersion is looked at as an error of the mask."""


@dataclass(frozen=True)
class Faults:
    """One pair of masks per sample, and the dispersion of the light."""

    nominal: Tensor
    """What the network is given `(B, 1|C, H, W)`."""
    true: Tensor
    """What codes the light `(B, 1|C, H, W)`."""
    spread: Tensor
    """Error of the dispersion's length, relative, `(B, 1)`."""
    bend: Tensor
    """Error of its bend `(B, 1)`."""

    def slice(self, part: slice) -> Faults:
        """The samples of one process."""
        return Faults(self.nominal[part], self.true[part], self.spread[part], self.bend[part])

    def places(self, offsets: Tensor) -> Tensor:
        """Where the light lands, `(B, C)`, when the network is given `offsets`.

        offsets: `(C,)`, or `(B, C)` where every sample has a camera of its own.
        """
        most = offsets.amax(-1, keepdim=True).clamp_min(torch.finfo(offsets.dtype).tiny)
        along = offsets / most
        spread, bend = self.spread.to(offsets), self.bend.to(offsets)
        return offsets * (1 + spread) + 4 * bend * most * along * (1 - along)


def draw_faults(
    mask: Tensor, generator: torch.Generator, config: MaskConfig, plain: Tensor | None = None
) -> Faults:
    """Faults of a share of the samples, for masks `(B, 1|C, H, W)` of which one is right.

    plain: samples that have none, `(B,)` on the CPU.
    """
    numbers = uniform((5, len(mask), 1), mask, generator)
    worse = _worse(mask, generator, config.fault_size)
    faulty = numbers[0] < config.fault_share
    if plain is not None:
        faulty &= ~to_device(plain, mask.device)[:, None]
    wrong = faulty[:, :, None, None]
    changed = (numbers[1] < 0.5)[:, :, None, None]
    nominal = torch.where(wrong & changed, worse, mask)
    true = torch.where(wrong & ~changed, worse, mask)
    bad_prism = faulty & (numbers[2] < config.dispersion_share)
    spread, bend = (
        torch.where(bad_prism, _signed(number) * config.fault_size * most, 0.0)
        for number, most in zip(numbers[3:], (SPREAD, BEND), strict=True)
    )
    return Faults(nominal, true, spread, bend)


def _signed(number: Tensor) -> Tensor:
    """Even numbers in [0, 1) → [−1, 1), small ones frequent."""
    centred = 2 * number - 1
    return centred * centred.abs()


def _worse(mask: Tensor, generator: torch.Generator, size: float) -> Tensor:
    """Every mask `(B, 1|C, H, W)` with faults of its own."""
    numbers = uniform((14, len(mask), 1, 1), mask, generator)

    def strength(place: int, share: float, most: float) -> Tensor:
        """`(B, 1, 1)`: 0 but in a share of the samples, there up to `most`, small ones frequent."""
        number = numbers[place] / share
        return torch.where(number < 1, size * most * number.square(), 0.0)

    def sign(place: int) -> Tensor:
        return torch.where(numbers[place] < 0.5, -1.0, 1.0)

    angle = 2 * math.pi * numbers[0]
    shift = strength(1, 0.6, SHIFT)
    moved = _moved(
        mask,
        (shift * angle.sin(), shift * angle.cos()),
        strength(2, 0.3, TURN) * sign(3),
        (strength(4, 0.3, STRETCH) * sign(5), strength(4, 0.3, STRETCH) * sign(6)),
    )
    blurred = _blurred(moved, strength(7, 0.5, BLUR)[:, None])
    curve = torch.exp(strength(8, 0.4, GAMMA) * sign(9))[:, None]
    gain = (1 + strength(10, 0.4, GAIN) * sign(11))[:, None]
    # Below the smallest step of a camera nothing is known, and the gradient of a power is infinite.
    bent = blurred.clamp(1e-4, 1).pow(curve) * gain
    hit = uniform((len(mask), 1, *mask.shape[-2:]), mask, generator)
    bent = torch.where(hit < strength(12, 0.2, DEAD)[:, None], 0.0, bent)
    bent = torch.where(1 - hit < strength(12, 0.2, STUCK)[:, None], 1.0, bent)
    noise = normal(mask.shape, mask, generator)
    return (bent + strength(13, 0.5, NOISE)[:, None] * noise).clamp(0, 1)


def _moved(
    mask: Tensor, shift: tuple[Tensor, Tensor], turn: Tensor, stretch: tuple[Tensor, Tensor]
) -> Tensor:
    """Shifted, turned and stretched about the centre in one read; numbers are `(B, 1, 1)`."""
    rows, columns = pixel_grid(mask)
    centre = (mask.shape[-2] - 1) / 2, (mask.shape[-1] - 1) / 2
    rows, columns = rows - centre[0], columns - centre[1]
    cosine, sine = turn.cos(), turn.sin()
    at_rows = (cosine * rows + sine * columns) * (1 + stretch[0]) + shift[0] + centre[0]
    at_columns = (cosine * columns - sine * rows) * (1 + stretch[1]) + shift[1] + centre[1]
    return sample_bilinear(mask, at_rows, at_columns)


def _blurred(mask: Tensor, std: Tensor) -> Tensor:
    """Each mask blurred by its own standard deviation `(B, 1, 1, 1)`, in pixels."""
    steps = torch.arange(-REACH, REACH + 1, device=mask.device, dtype=mask.dtype)
    kernel = torch.exp(-0.5 * (steps / std.clamp_min(1e-2)).square())
    kernel = kernel / kernel.sum(-1, keepdim=True)
    for _ in range(2):
        width = mask.shape[-1]
        padded = F.pad(mask, (REACH, REACH, 0, 0), mode="replicate")
        parts = [kernel[..., k : k + 1] * padded[..., k : k + width] for k in range(2 * REACH + 1)]
        mask = torch.stack(parts).sum(0).mT
    return mask.contiguous()


def as_seen(faults: Faults, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """The true mask as it acts in the nominal geometry, and its rms difference to the nominal one.

    An error of the dispersion moves every band's image of the mask: `(B, 1|C, H, W)` is the mean
    over a few bands, the difference `(B, 1, H, W)` the rms over them and the mask's own planes.
    offsets: where bands land nominally, `(C,)` or `(B, C)`; None: all dispersions are right.
    """
    if offsets is None:
        squares = (faults.true - faults.nominal).square()
        return faults.true, squares.mean(1, keepdim=True).sqrt()
    error = (faults.places(offsets) - offsets).to(faults.true.dtype)
    bands = torch.linspace(0, offsets.shape[-1] - 1, PROBES).round().long().tolist()
    rows, columns = pixel_grid(faults.true)
    total, squares = torch.zeros_like(faults.true), torch.zeros_like(faults.true)
    for band in bands:
        at = (columns - error[:, band, None, None]).expand(-1, rows.shape[0], -1)
        acting = sample_bilinear(faults.true, rows.expand(at.shape), at)
        total += acting / PROBES
        squares += (acting - faults.nominal).square() / PROBES
    return total, squares.mean(1, keepdim=True).sqrt()


def stated_spread(difference: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """What is stated of rms differences `(B, 1, H, W)`: negative where nothing.

    In a share of the samples, in half of those as a map and in half as an even number.
    """
    numbers = uniform((2, len(difference), 1, 1, 1), difference, generator)
    error = torch.exp(STATED_ERROR * normal((len(difference), 1, 1, 1), difference, generator))
    square = difference.square()
    even = square.mean((-2, -1), keepdim=True).expand_as(square)
    window = min(NEAR, *(size - 1 + size % 2 for size in difference.shape[-2:]))
    local = F.avg_pool2d(square, window, 1, window // 2, count_include_pad=False)
    stated = torch.where(numbers[0] < 0.5, even, local).clamp_min(0).sqrt() * error
    return torch.where(numbers[1] < share, stated, UNKNOWN)
