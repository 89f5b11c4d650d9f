"""Masks that look calibrated without having been: a random aperture, seen through a lens.

Real calibrated masks share a build. Square cells, open or closed at random, lie on a grid whose
pitch is a little over two sensor pixels, never a whole number of them and never quite parallel to
them, so edges fall at every sub-pixel position. Openings are a tenth smaller than their cells. A
sharp core of blur rounds the edges, a faint wide halo lifts closed cells near open ones to a few
per cent, illumination is not quite even, and the flat-field division clips a third of all pixels
at exactly 1. That is what is made here; two real instruments were measured for the defaults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.optics.masks import Size, as_size
from prismask.optics.randomness import normal, uniform
from prismask.optics.resample import gaussian_blur, sample_bilinear


@dataclass(frozen=True)
class Aperture:
    """How a mask is built and seen; the defaults lie between the two instruments measured."""

    pitch: tuple[float, float] = (2.1, 2.1)
    """Height and width of a cell in sensor pixels (measured: 2.03 to 2.24)."""
    fill: float = 0.89
    """Side of an opening as a fraction of the pitch."""
    open_fraction: float = 0.475
    """Probability that a cell is open."""
    angle: float = 0.5
    """Angle between cells and pixels in degrees (small: a pixel is integrated along the cells)."""
    blur: float = 0.23
    """Standard deviation of the sharp core of the blur, in pixels, besides the pixel itself."""
    halo: float = 0.115
    """Share of the light in the wide halo."""
    halo_blur: float = 1.13
    """Standard deviation of the halo in pixels."""
    floor: float = 0.009
    """Transmission of closed cells far from any open one."""
    gain: float = 1.55
    """Value of a wide open area before clipping at 1: contrast, and how much is clipped."""
    unevenness: float = 0.05
    """Relative standard deviation of slow changes of gain over the field."""
    noise: float = 0.005
    """Standard deviation of the calibration's noise, relative to a pixel's value."""

    def __post_init__(self) -> None:
        if not min(self.pitch) > 0.5:
            raise ConfigError(f"cell pitch is {self.pitch} px; cells of at least half a pixel fit.")
        for name in ("fill", "open_fraction", "halo", "floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"aperture {name} is {getattr(self, name):g}; it lies in [0, 1].")
        for name in ("blur", "halo_blur", "gain", "unevenness", "noise"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"aperture {name} is {getattr(self, name):g}; give 0 or more.")
        if not abs(self.angle) <= 10:
            raise ConfigError(f"aperture angle is {self.angle:g}°; at most 10° are modelled.")


def fabricate_mask(
    size: Size, generator: torch.Generator, aperture: Aperture | None = None
) -> Tensor:
    """A synthetic calibrated mask `(H, W)`, float32 in [0, 1], on the generator's device."""
    made = aperture if aperture is not None else Aperture()
    height, width = as_size(size)
    like = torch.empty(0, device=generator.device)
    image = _cells(height, width, made, generator, like)[None, None]
    if made.halo:
        image = torch.lerp(image, gaussian_blur(image, made.halo_blur), made.halo)
    image = image * made.gain * _illumination(height, width, made.unevenness, generator, like)
    image = made.floor + (1 - made.floor) * image
    if made.noise:
        # Noise of a ratio to the flat field: a dark pixel is known better than a bright one.
        drawn = normal(image.shape, image, generator)
        image = image + made.noise * image.clamp(0.1, 1) * drawn
    return image.clamp(made.floor / 2, 1)[0, 0]


def random_aperture(generator: torch.Generator) -> Aperture:
    """Another instrument: every property drawn from a range around the measured ones.

    Drawing waits for the device once; do it when an instrument is built, not in every step.
    """
    draws = uniform((11,), torch.empty(0, device=generator.device), generator).tolist()

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(draws.pop())

    pitch = between(1.8, 2.6)
    return Aperture(
        pitch=(pitch, pitch * between(0.97, 1.03)),
        fill=between(0.8, 1.0),
        open_fraction=between(0.42, 0.53),
        angle=between(-1.0, 1.0),
        blur=between(0.1, 0.4),
        halo=between(0.05, 0.18),
        halo_blur=between(0.8, 1.6),
        floor=between(0.005, 0.02),
        gain=between(1.2, 1.8),
        unevenness=between(0.0, 0.1),
    )


def _cells(
    height: int, width: int, aperture: Aperture, generator: torch.Generator, like: Tensor
) -> Tensor:
    """Random cells integrated over every pixel and blurred by the core, `(H, W)`."""
    pitch_rows, pitch_columns = aperture.pitch
    turn = math.radians(aperture.angle)
    phase = uniform((2,), like, generator)
    row = torch.arange(height, device=like.device, dtype=like.dtype)[:, None] - (height - 1) / 2
    column = torch.arange(width, device=like.device, dtype=like.dtype)[None] - (width - 1) / 2
    # Pixel centres in cells, the grid of cells turned against the grid of pixels.
    along_rows = (math.cos(turn) * row + math.sin(turn) * column) / pitch_rows + phase[0]
    along_columns = (math.cos(turn) * column - math.sin(turn) * row) / pitch_columns + phase[1]
    reach_rows, weights_rows = _cell_weights(along_rows, pitch_rows, aperture)
    reach_columns, weights_columns = _cell_weights(along_columns, pitch_columns, aperture)

    diagonal = math.hypot(height, width)
    half_rows = math.ceil(diagonal / 2 / pitch_rows) + reach_rows + 2
    half_columns = math.ceil(diagonal / 2 / pitch_columns) + reach_columns + 2
    drawn = uniform((2 * half_rows, 2 * half_columns), like, generator)
    is_open = (drawn < aperture.open_fraction).to(like.dtype)

    first_row = along_rows.floor().long() + half_rows - reach_rows
    first_column = along_columns.floor().long() + half_columns - reach_columns
    image = torch.zeros(height, width, dtype=like.dtype, device=like.device)
    for i, weight_row in enumerate(weights_rows):
        for j, weight_column in enumerate(weights_columns):
            image += weight_row * weight_column * is_open[first_row + i, first_column + j]
    return image


def _cell_weights(position: Tensor, pitch: float, aperture: Aperture) -> tuple[int, list[Tensor]]:
    """Share of each near opening in a pixel along one axis, and how many cells away matter.

    An opening is a box, the pixel another, the core a Gaussian; their convolution has a closed
    form in differences of the antiderivative of the normal distribution function.
    """
    reach = math.ceil((0.5 + 4 * aperture.blur) / pitch)
    rim = (1 - aperture.fill) / 2 * pitch
    inside = (position - position.floor()) * pitch

    def step(edge: float) -> Tensor:
        return _ramp(inside - edge + 0.5, aperture.blur) - _ramp(inside - edge - 0.5, aperture.blur)

    cells = range(-reach, reach + 1)
    return reach, [step(k * pitch + rim) - step((k + 1) * pitch - rim) for k in cells]


def _ramp(distance: Tensor, blur: float) -> Tensor:
    """∫ of the blurred step: `max(distance, 0)` where blur is 0."""
    if blur == 0:
        return distance.clamp_min(0)
    scaled = distance / blur
    density = torch.exp(-0.5 * scaled.square()) / math.sqrt(2 * math.pi)
    below: Tensor = torch.special.ndtr(scaled)
    return distance * below + blur * density


def _illumination(
    height: int, width: int, unevenness: float, generator: torch.Generator, like: Tensor
) -> Tensor:
    """A slow random field with mean 1, `(H, W)`: five by five knots, joined linearly."""
    knots = 1 + unevenness * normal((1, 1, 5, 5), like, generator)
    rows = torch.linspace(0, 4, height, device=like.device)[:, None].expand(height, width)
    columns = torch.linspace(0, 4, width, device=like.device)[None].expand(height, width)
    return sample_bilinear(knots, rows[None], columns[None])[0, 0]
