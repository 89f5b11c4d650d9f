"""A canvas of reflectance spectra on which a synthetic scene is painted back to front.

Every point has a reflectance, a shading (how much light reaches it) and a gloss (light mirrored
with the lamp's own colour). Drawing happens on a finer grid than the finished picture, so edges
come out as a real lens would average them.

Paint and textures for it are here too. NumPy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def edge_spectrum(
    wavelengths: ArrayLike, at: float, width: float, low: float, high: float
) -> Values:
    """A reflectance that climbs from `low` to `high` around `at` nm, as reds and yellows do.

    With `low` above `high` it falls, as blues do. `width` is the scale of the climb in nm.
    """
    position = (np.asarray(wavelengths, dtype=np.float64) - at) / width
    return np.asarray(low + (high - low) * 0.5 * (1 + np.tanh(0.5 * position)))


def bump_spectrum(
    wavelengths: ArrayLike, at: float, width: float, low: float, high: float
) -> Values:
    """A reflectance with one hill at `at` nm, as greens and purples have."""
    position = (np.asarray(wavelengths, dtype=np.float64) - at) / width
    return np.asarray(low + (high - low) * np.exp(-0.5 * position**2))


def planck_light(wavelengths: ArrayLike, kelvin: float) -> Values:
    """Relative power of a black body at `kelvin`, largest value 1 (second radiation constant)."""
    metres = np.asarray(wavelengths, dtype=np.float64) * 1e-9
    power = metres**-5 / np.expm1(1.4387769e-2 / (metres * kelvin))
    return np.asarray(power / power.max())


def smooth_noise(
    generator: np.random.Generator, shape: tuple[int, int], scale: float | tuple[float, float]
) -> Values:
    """Gaussian noise `(H, W)` smoothed over `scale` pixels (or one an axis): mean 0, std 1."""
    across, along = (scale, scale) if isinstance(scale, int | float) else scale
    height, width = shape
    rows = np.fft.fftfreq(height)[:, None] * across
    columns = np.fft.rfftfreq(width)[None, :] * along
    response = np.exp(-2 * np.pi**2 * (rows**2 + columns**2))
    spectrum = np.fft.rfft2(generator.standard_normal(shape)) * response
    field = np.fft.irfft2(spectrum, s=shape)
    spread = field.std()
    return np.asarray((field - field.mean()) / spread if spread > 0 else field * 0)


def layered_noise(
    generator: np.random.Generator, shape: tuple[int, int], coarsest: float, layers: int = 4
) -> Values:
    """Noise with detail at every scale from `coarsest` pixels down, each half as strong: std 1."""
    field = np.zeros(shape)
    for layer in range(layers):
        field += smooth_noise(generator, shape, coarsest / 2**layer) / 2**layer
    return np.asarray(field / max(float(field.std()), 1e-12))


def stripes(
    position: ArrayLike, period: float, duty: float = 0.5, softness: float = 0.05
) -> Values:
    """Bars in [0, 1] along `position`: 1 over `duty` of each period, with edges `softness` wide."""
    phase = np.mod(np.asarray(position, dtype=np.float64) / period, 1.0)
    distance = np.minimum(phase, 1 - phase) - duty / 2
    return np.asarray(np.clip(0.5 - distance / max(softness, 1e-6), 0.0, 1.0))


def weave(y: ArrayLike, x: ArrayLike, period: float) -> tuple[Values, Values]:
    """A plain weave: where the warp lies on top (0 or 1), and the roundness of the threads."""
    rows, columns = np.asarray(y) / period, np.asarray(x) / period
    warp_on_top = (np.floor(rows) + np.floor(columns)) % 2
    across = np.where(warp_on_top == 1, columns, rows) % 1.0
    along = np.where(warp_on_top == 1, rows, columns) % 1.0
    roundness = np.sin(np.pi * across) ** 0.6 * (0.65 + 0.35 * np.sin(np.pi * along))
    return np.asarray(warp_on_top, dtype=np.float64), np.asarray(roundness)


FINER = 2
"""Drawing samples per finished pixel, along each axis."""

LIGHT_FROM = np.array([-0.45, -0.62, 0.64])
"""Direction of the lamp (x to the right, y down, z towards the camera)."""


class Canvas:
    """Reflectance `(C, h, w)`, shading and gloss `(h, w)` on a grid `FINER` times the picture.

    Positions are in units of the shorter side: the square (0, 0)–(1, 1) sits in the middle of
    the picture, and a longer side reaches beyond it.
    """

    def __init__(self, size: tuple[int, int], bands: int) -> None:
        height, width = size[0] * FINER, size[1] * FINER
        self.unit = float(min(height, width))
        """Drawing samples per unit length."""
        rows = (np.arange(height) + 0.5 - (height - self.unit) / 2) / self.unit
        columns = (np.arange(width) + 0.5 - (width - self.unit) / 2) / self.unit
        self.y, self.x = np.broadcast_arrays(rows[:, None], columns[None, :])
        self.shape = (height, width)
        self.reflectance = np.zeros((bands, height, width), dtype=np.float32)
        self.shading = np.ones((height, width))
        self.gloss = np.zeros((height, width))

    def paint(
        self,
        cover: Values,
        spectrum: ArrayLike,
        texture: Values | float = 1.0,
        shading: Values | float | None = None,
        gloss: Values | float = 0.0,
    ) -> None:
        """Lay `spectrum (C,)` times `texture (h, w)` over what is there, where `cover` is not 0.

        `shading` None keeps the shading below: ink on paper, not a new surface.
        """
        rows, columns = _box(cover)
        if rows.stop == rows.start:
            return
        here = (rows, columns)
        over = cover[here]
        paint = np.asarray(spectrum, dtype=np.float64)[:, None, None] * _cut(texture, here)
        behind = self.reflectance[:, rows, columns]
        self.reflectance[:, rows, columns] = behind + over * (np.clip(paint, 0, 1) - behind)
        if shading is not None:
            self.shading[here] += over * (_cut(shading, here) - self.shading[here])
            self.gloss[here] += over * (_cut(gloss, here) - self.gloss[here])

    def darken(self, amount: Values) -> None:
        """Cast a shadow: take `amount (h, w)` in [0, 1] off the light."""
        self.shading *= 1 - amount

    def rectangle(self, top: float, left: float, bottom: float, right: float) -> Values:
        """Cover of an upright rectangle."""
        inside = np.minimum(
            np.minimum(self.y - top, bottom - self.y), np.minimum(self.x - left, right - self.x)
        )
        return self.soften(inside)

    def disc(self, y: float, x: float, radius: float) -> Values:
        """Cover of a disc."""
        return self.soften(radius - np.hypot(self.y - y, self.x - x))

    def rod(self, start: tuple[float, float], end: tuple[float, float], radius: float) -> Values:
        """Signed depth below the edge of a straight rod from `start` to `end`, both `(y, x)`."""
        (y0, x0), (y1, x1) = start, end
        dy, dx = y1 - y0, x1 - x0
        along = ((self.y - y0) * dy + (self.x - x0) * dx) / (dy * dy + dx * dx)
        along = np.clip(along, 0, 1)
        return np.asarray(
            radius - np.hypot(self.y - y0 - along * dy, self.x - x0 - along * dx), dtype=np.float64
        )

    def soften(self, inside: Values) -> Values:
        """Cover from a signed distance (positive inside), with an edge one sample wide."""
        return np.clip(inside * self.unit + 0.5, 0.0, 1.0)

    def sphere(self, y: float, x: float, radius: float) -> tuple[Values, Values, Values]:
        """Cover, Lambert shading and mirror highlight of a ball lit by the lamp."""
        across, down = (self.x - x) / radius, (self.y - y) / radius
        toward = np.sqrt(np.clip(1 - across**2 - down**2, 0.0, 1.0))
        light = LIGHT_FROM / np.linalg.norm(LIGHT_FROM)
        facing = across * light[0] + down * light[1] + toward * light[2]
        shading = 0.16 + 0.9 * np.clip(facing, 0.0, None)
        # Blinn-Phong: the half vector between lamp and camera (which looks along z).
        half = light + np.array([0.0, 0.0, 1.0])
        half /= np.linalg.norm(half)
        mirror = np.clip(across * half[0] + down * half[1] + toward * half[2], 0.0, None)
        return self.disc(y, x, radius), shading, mirror

    def finish(self, light: ArrayLike) -> NDArray[np.float32]:
        """Radiance `(C, H, W)` under `light (C,)`, averaged to the finished size."""
        lamp = np.asarray(light, dtype=np.float64)[:, None, None]
        seen = _average(self.reflectance * self.shading) + _average(self.gloss)
        return np.asarray(np.clip(seen * lamp, 0.0, 1.0), dtype=np.float32)


def _average(values: Values) -> Values:
    *leading, height, width = values.shape
    blocks = values.reshape(*leading, height // FINER, FINER, width // FINER, FINER)
    return np.asarray(blocks.mean(axis=(-3, -1)), dtype=np.float64)


def _box(cover: Values) -> tuple[slice, slice]:
    """The rows and columns that are touched, so that small things cost little."""
    rows, columns = np.flatnonzero(cover.any(axis=1)), np.flatnonzero(cover.any(axis=0))
    if rows.size == 0:
        return slice(0, 0), slice(0, 0)
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def _cut(values: Values | float, here: tuple[slice, slice]) -> Values | float:
    return values[here] if isinstance(values, np.ndarray) else values
