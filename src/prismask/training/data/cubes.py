"""From scenes to the cubes a step learns from: cut, joined, recoloured, lit by lines.

A few dozen scenes hold few materials, lights and neighbourhoods, and a network that has seen each a
thousand times learns them by heart. Each of these changes draws from a generator of its own, so
that switching one on leaves the others' numbers as they were; what is switched off costs nothing.

**Collage.** A crop x and another one o share the frame,

    x' = l ⊙ x + (1 − l) ⊙ o,     l = sigmoid(k · z),

where z is the brightness of o turned by half a turn, at mean zero and deviation one: the shapes are
those of a natural picture, and lie where neither crop has its edges. A large k cuts the one out of
the other, a small one lays them over each other as a window pane does.

**Warp.** The spectrum is cut, stretched and reversed as space is. Band j of the new crop is read at

    p_j = c + s · (j − c) + t

between the bands of the old one (c: the middle; beyond the ends the last band goes on). A reversed
spectrum, s < 0, is what the mirrored camera would see.

**Recombine.** K broad bands r_k that overlap look at the crop, and each is given a smooth random
spectrum s_k of its own,

    x'_λ = (1 − a) x_λ + a Σ_k s_k(λ) Σ_λ' r_k(λ') x_λ',

so materials are new while edges lie where a natural picture has them. Like a warp it is a matrix
between bands; the two are applied as one.

**Repaint.** A crop is lit by two lamps with smooth random spectra, mixed pixel by pixel by its own
brightness, turned by half a turn:

    x'[λ, h, w] = x[λ, h, w] · exp(l · a_λ + (1 − l) · b_λ),     l = x̄[H−1−h, W−1−w] / max x̄.

**Structure.** Natural spectra change slowly with the wavelength, and a network that sees nothing
else smooths a fluorescent lamp's lines away. So a share of the crops is lit by a lamp of
`scenes.colour`, or made in parts of materials that absorb or reflect in one or two narrow bands, or
lit in parts by a single line. Parts have the shape of the crop's own brightness, mirrored. A crop
is exposed so that it is as bright as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from prismask.optics.randomness import seed_of
from prismask.scenes.colour import band_edges, lamp_in_bands, lamp_names
from prismask.training.config import DataConfig
from prismask.training.data.crops import CropPlan, SceneBank, cosines, to_device


class CubeMaker:
    """Makes the cubes of one scene set; `part` of `count` in all are this process's."""

    def __init__(
        self,
        scenes: SceneBank,
        config: DataConfig,
        seed: int,
        count: int,
        part: slice,
        wavelengths: Sequence[float] = (),
    ) -> None:
        self.scenes = scenes
        self.config = config
        self.seed = seed
        self.count = count
        self.part = part
        is_structured = max(config.lamps, config.narrow_bands, config.laser_lines) > 0
        self.structured = StructuredLight(wavelengths, config) if is_structured else None

    @torch.no_grad()
    def make(self, plan: CropPlan, step: int, plain: Tensor | None = None) -> Tensor:
        """This process's cubes of step `step`, which cuts by `plan`, `(B, C, H, W)`.

        plain: which of all samples keep the spectra of their scenes, `(N,)` on the CPU.
        """
        config = self.config
        plain = torch.zeros(self.count, dtype=torch.bool) if plain is None else plain
        plain = plain[self.part]
        cube = self.scenes.cut(plan.rows(self.part))
        if config.collage > 0:
            others = self.scenes.draw(self.count, config, self._numbers("others", step))
            other = self.scenes.cut(others.rows(self.part))
            drawn = self._uniform("collage", step, COLLAGE_NUMBERS)
            cube = collage(cube, other, drawn, config.collage)
        matrices = self._band_matrices(step, cube.shape[1], plain)
        if matrices is not None:
            cube = between_bands(cube, matrices)
        if config.repaint > 0:
            numbers = self._numbers("paint", step)
            drawn = torch.randn(self.count, *REPAINT_NUMBERS, generator=numbers)[self.part]
            drawn[plain] = 0
            cube = repaint(cube, drawn * config.repaint)
        if self.structured is not None:
            drawn = self._uniform("structured", step, STRUCTURED_NUMBERS)
            for chance in STRUCTURED_CHANCES:
                drawn[plain, chance] = NEVER
            cube = self.structured.light(cube, drawn)
        return cube

    def _band_matrices(self, step: int, bands: int, plain: Tensor) -> Tensor | None:
        """What warps and recombines each crop's spectra, `(B, C, C)` on the CPU."""
        config, matrices = self.config, None
        if config.warp > 0:
            drawn = self._uniform("warp", step, WARP_NUMBERS)
            drawn[plain, 0] = NEVER
            matrices = reading_matrix(bands, drawn, config.warp)
        if config.recombine > 0:
            drawn = self._uniform("recombine", step, RECOMBINE_NUMBERS)
            drawn[plain, 0] = NEVER
            spectra = torch.randn(
                self.count, *SPECTRA_NUMBERS, generator=self._numbers("spectra", step)
            )[self.part]
            recombined = recombining_matrix(bands, drawn, spectra, config.recombine)
            matrices = recombined if matrices is None else recombined @ matrices
        return matrices

    def _uniform(self, what: str, step: int, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(self.count, *shape, generator=self._numbers(what, step))[self.part]

    def _numbers(self, what: str, step: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_of(self.seed, what, step))


NEVER = 1.0
"""A number that lies in no share of [0, 1)."""
COLLAGE_NUMBERS = (2,)
"""Uniform numbers a crop needs: whether it is joined, and how sharply."""
COLLAGE_SHARPNESS = (0.5, 20.0)
"""Smallest and largest k; its logarithm is drawn evenly."""


def collage(cube: Tensor, other: Tensor, numbers: Tensor, share: float) -> Tensor:
    """Join a share of the crops `(B, C, H, W)` with others, by `numbers (B, 2)` on the CPU."""
    low, high = (math.log(value) for value in COLLAGE_SHARPNESS)
    sharpness = torch.exp(low + (high - low) * numbers[:, 1])
    joined, sharpness = to_device(
        torch.stack([(numbers[:, 0] < share).float(), sharpness]), cube.device
    )[:, :, None, None, None]
    level = other.mean(1, keepdim=True).flip(-2, -1)
    deviation, mean = torch.std_mean(level, (-2, -1), keepdim=True, correction=0)
    shape = torch.sigmoid(sharpness * (level - mean) / deviation.clamp_min(1e-6))
    return torch.lerp(cube, other, joined * (1 - shape))


REPAINT_NUMBERS = (2, 3)
"""Cosine coefficients a crop needs: two lamps of three."""


def repaint(cube: Tensor, coefficients: Tensor) -> Tensor:
    """Crops `(B, C, H, W)` lit by two lamps each, given by `coefficients (B, 2, 3)` on the CPU."""
    lamps = to_device(coefficients @ cosines(cube.shape[1]), cube.device)  # log gains (B, 2, C)
    first, second = lamps[:, 0, :, None, None], lamps[:, 1, :, None, None]
    level = cube.mean(1, keepdim=True).flip(-2, -1)
    level = level / level.amax((-2, -1), keepdim=True).clamp_min(torch.finfo(cube.dtype).tiny)
    return cube * torch.lerp(second, first, level).exp_()


WARP_NUMBERS = (4,)
"""Uniform numbers a crop needs: whether it is changed, stretch, direction, shift."""
STRETCH = 0.5
"""s lies between 2^−STRETCH and 2^STRETCH."""
SHIFT = 0.2
"""t is at most this share of the spectrum."""


def between_bands(cube: Tensor, matrices: Tensor) -> Tensor:
    """Crops `(B, C, H, W)` with new bands, by `matrices (B, C, C)` on the CPU."""
    return (to_device(matrices, cube.device) @ cube.flatten(2)).reshape(cube.shape)


def reading_matrix(bands: int, numbers: Tensor, share: float) -> Tensor:
    """`(B, C, C)`: how much of each old band a new one gets; rows sum to one."""
    changed, stretch, direction, shift = numbers.unbind(1)
    stretch = torch.exp2(STRETCH * (2 * stretch - 1)) * torch.where(direction < 0.5, -1.0, 1.0)
    shift = SHIFT * (bands - 1) * (2 * shift - 1)
    is_changed = (changed < share)[:, None]
    band = torch.arange(bands, dtype=numbers.dtype)
    middle = (bands - 1) / 2
    place = middle + stretch[:, None] * (band - middle) + shift[:, None]
    place = torch.where(is_changed, place, band).clamp(0, bands - 1)
    return (1 - (place[:, :, None] - band).abs()).clamp_min(0)


BROAD_BANDS = 6
"""K. Natural spectra need about as many numbers."""
RECOMBINE_NUMBERS = (2 + BROAD_BANDS,)
"""Uniform numbers a crop needs: whether it is recombined, how much (a), where the bands lie."""
SPECTRA_NUMBERS = (BROAD_BANDS, 7)
"""Normal numbers a crop needs: cosines of each new spectrum's logarithm."""
SPECTRA_STD = 0.7
"""Standard deviation of the first of them; they fall with the root of their order."""


def recombining_matrix(bands: int, numbers: Tensor, spectra: Tensor, share: float) -> Tensor:
    """`(B, C, C)`: how much of each old band a new one gets; no new band is brighter than before.

    numbers: `RECOMBINE_NUMBERS`, spectra: `SPECTRA_NUMBERS` for each of the B crops.
    """
    place = (torch.arange(bands, dtype=numbers.dtype) + 0.5) / bands
    centres = (torch.arange(BROAD_BANDS) + numbers[:, 2:]) / BROAD_BANDS
    looks = torch.exp(-0.5 * ((place - centres[:, :, None]) * BROAD_BANDS).square())
    looks = looks / looks.sum(-1, keepdim=True)  # r_k
    order = torch.arange(1, spectra.shape[-1] + 1, dtype=numbers.dtype)
    waves = torch.cos(torch.pi * order[:, None] * place) / order.sqrt()[:, None]
    new = (SPECTRA_STD * spectra @ waves).exp()  # s_k
    matrix = new.mT @ looks
    matrix = matrix / matrix.sum(-1, keepdim=True).amax(-2, keepdim=True)
    matrix = torch.lerp(torch.eye(bands), matrix, numbers[:, 1, None, None])
    is_changed = (numbers[:, 0] < share)[:, None, None]
    return torch.where(is_changed, matrix, torch.eye(bands))


STRUCTURED_NUMBERS = (16,)
"""Uniform numbers a crop needs."""
STRUCTURED_CHANCES = (0, 4, 12)
"""Those of them that decide whether there is a lamp, narrow bands, a line."""
HELD_OUT = ("FL2", "FL11")
"""Lamps that no training sees, so that scores under them say something about others."""
CONTINUUM = 0.5
"""Most of a smooth light that is mixed into a lamp's."""
WIDTHS = (5.0, 40.0)
"""Smallest and largest full width of a narrow band at half its height, in nm."""
PAIR = (10.0, 60.0)
"""Smallest and largest distance of two of them, in nm."""
DEPTHS = (0.3, 1.0)
"""How deep a narrow band is."""
LINE = 1.0
"""Full width of a single line in nm."""
LEVELS = (0.1, 1.0)
"""Its height in a band, relative to the crop's brightest value."""
PART_SHARPNESS = (1.0, 20.0)
"""How sharp the edges of parts are, as in a collage."""
DEVIATION = 2 * math.sqrt(2 * math.log(2))
"""Full width at half height of a Gaussian, in standard deviations."""


class StructuredLight:
    """Draws structured spectra for cameras with these band centres."""

    def __init__(self, wavelengths: Sequence[float], config: DataConfig) -> None:
        self.config = config
        self.names = tuple(name for name in lamp_names() if name not in HELD_OUT)
        lamps = [lamp_in_bands(name, wavelengths) for name in self.names]
        self.lamps = torch.stack([torch.from_numpy(lamp) for lamp in lamps])  # (N, C)
        self.low, self.high = (torch.from_numpy(edge) for edge in band_edges(wavelengths))

    def light(self, cube: Tensor, numbers: Tensor) -> Tensor:
        """Crops `(B, C, H, W)` with structure in a share of them, by `numbers (B, 16)` (CPU)."""
        n = numbers.double()
        before = cube.amax((1, 2, 3), keepdim=True)
        gain, absorbed, added = (
            to_device(values.float(), cube.device)[:, :, None, None]
            for values in (self._lamp(n), self._bands(n), self._line(n))
        )
        parts = to_device(_between(n[:, [11, 15]], PART_SHARPNESS).float(), cube.device)
        mirrored = cube.mean(1, keepdim=True).flip(-1)
        lit = cube * gain * (1 - _part(mirrored, parts[:, 0]) * absorbed)
        lit = lit + before * _part(mirrored.flip(-2, -1), parts[:, 1]) * added
        after = lit.amax((1, 2, 3), keepdim=True)
        return lit * (before / after.clamp_min(torch.finfo(lit.dtype).tiny))

    def _lamp(self, n: Tensor) -> Tensor:
        """Gain of every band `(B, C)`; 1 where there is no lamp."""
        lamp = self.lamps[(n[:, 1] * len(self.lamps)).long()]
        smooth = CONTINUUM * n[:, 2:3].square()
        return torch.where(n[:, :1] < self.config.lamps, lamp + (1 - lamp) * smooth, 1.0)

    def _bands(self, n: Tensor) -> Tensor:
        """Share of the light that a material keeps to itself, `(B, C)`."""
        width = _between(n[:, 6], WIDTHS) / DEVIATION
        centre = self._somewhere(n[:, 5])
        second = centre + _between(n[:, 9], PAIR)
        shape = self._mean_of_gaussian(centre, width)
        pair = torch.maximum(shape, self._mean_of_gaussian(second, width))
        shape = torch.where(n[:, 8:9] < 0.4, pair, shape)
        shape = torch.where(n[:, 10:11] < 0.5, shape, 1 - shape)  # absorbs, or reflects, there
        low, high = DEPTHS
        depth = low + (high - low) * n[:, 7:8]
        return torch.where(n[:, 4:5] < self.config.narrow_bands, depth * shape, 0.0)

    def _line(self, n: Tensor) -> Tensor:
        """Height of a single line in every band, `(B, C)`; it falls into one or two of them."""
        centre, std = self._somewhere(n[:, 13])[:, None], LINE / DEVIATION
        share = torch.special.ndtr((self.high - centre) / std) - torch.special.ndtr(
            (self.low - centre) / std
        )
        level = _between(n[:, 14:15], LEVELS)
        return torch.where(n[:, 12:13] < self.config.laser_lines, level * share, 0.0)

    def _somewhere(self, number: Tensor) -> Tensor:
        first, last = float(self.low.min()), float(self.high.max())
        return first + (last - first) * number

    def _mean_of_gaussian(self, centre: Tensor, std: Tensor) -> Tensor:
        """Mean over each band of a Gaussian of height 1, `(B, C)`."""
        centre, std = centre[:, None], std[:, None]
        area = torch.special.ndtr((self.high - centre) / std) - torch.special.ndtr(
            (self.low - centre) / std
        )
        mean: Tensor = area * std * math.sqrt(2 * math.pi) / (self.high - self.low)
        return mean


def _between(number: Tensor, ends: tuple[float, float]) -> Tensor:
    """Between two numbers, evenly in the logarithm."""
    low, high = (math.log(end) for end in ends)
    return torch.exp(low + (high - low) * number)


def _part(level: Tensor, sharpness: Tensor) -> Tensor:
    """Which part of a crop, `(B, 1, H, W)` between 0 and 1, from a brightness."""
    deviation, mean = torch.std_mean(level, (-2, -1), keepdim=True, correction=0)
    z = (level - mean) / deviation.clamp_min(1e-6)
    return torch.sigmoid(sharpness[:, None, None, None] * z)
