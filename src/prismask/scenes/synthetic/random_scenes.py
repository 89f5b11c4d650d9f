"""Endless random scenes for training and tests where no real ones are at hand. NumPy only.

Not meant to look like anything: they have smooth spectra, sharp edges at all scales, textures
and shading, in ever new combinations, so a network cannot learn them by heart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prismask.checks import check_shape, size_text
from prismask.errors import ConfigError
from prismask.scenes.defaults import SIZE, WAVELENGTHS_NM
from prismask.scenes.records import Cube, check_wavelengths
from prismask.scenes.synthetic.canvas import (
    bump_spectrum,
    edge_spectrum,
    layered_noise,
    planck_light,
    smooth_noise,
    stripes,
    weave,
)

Values = NDArray[np.float64]

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
