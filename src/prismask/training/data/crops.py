"""Crops of scenes, cut on the device they live on.

All scenes of a set stay resident. One `grid_sample` does the whole of cutting, mirroring, turning
and enlarging for a batch. Between pixels it interpolates linearly, which blurs: only crops left
pixel for pixel are then as sharp as a scene, and those are few enough to be learned by heart. Read
from scenes that were enlarged twice by cubics, others stay sharp as well.

What is cut is drawn on the CPU from a generator: the same seed gives the same crops on any device
and on any number of processes. Of several crops that are drawn the one with most contrast may be
taken: of empty table a network learns nothing more after a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape
from prismask.errors import ConfigError
from prismask.training.config import DataConfig

CELL = 8
"""Side of the cells, in pixels, for which contrast is known."""
CONTRAST_DIM = 0.1
"""Brightness, as a share of the scene's highest, in whose shadow contrast counts half."""
AVERAGED_BELOW = {"linear": 1.0, "cubic": 0.75}
"""Enlargement below which crops are read from scenes averaged 2×2. Read from enlarged scenes, fine
texture aliases down to there no more than on a sensor."""


@dataclass(frozen=True)
class CropPlan:
    """What to cut: one row a crop, everything on the CPU."""

    scene: Tensor
    """Scene index `(B,)`."""
    scale: Tensor
    """Enlargement `(B,)`."""
    place: Tensor
    """Where the crop lies in the free range of rows and columns, in [0, 1], `(B, 2)`."""
    turn: Tensor
    """Quarter turns `(B,)`."""
    angle: Tensor
    """By how much it is turned beyond them `(B,)`, in radians."""
    flip: Tensor
    """Mirrored or not `(B,)`, −1 or 1."""
    brightness: Tensor
    """Factor on the values `(B,)`."""
    light: Tensor
    """Logarithmic gain over the spectrum as cosine coefficients, `(B, 3)`."""

    def rows(self, chosen: slice | Tensor) -> CropPlan:
        """Some of the crops."""
        return CropPlan(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})

    def as_dict(self) -> dict[str, list[float]]:
        """Plain lists, for a report of a failed step."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}


def draw_plan(count: int, scenes: int, config: DataConfig, generator: torch.Generator) -> CropPlan:
    """Draw `count` crops; always the same numbers in the same order, whatever is switched on."""
    numbers = torch.rand(count, 8, generator=generator)
    low, high = config.scale
    scale = low + (high - low) * numbers[:, 1]
    scale = torch.where(numbers[:, 2] < config.native_share, torch.ones(()), scale)
    dim, bright = config.brightness
    # What the choice of a turn and of a mirror leaves of their numbers is as even as they were.
    beyond = (numbers[:, 5] * 4) % 1 - 0.5
    is_tilted = ((numbers[:, 6] * 2) % 1 < config.tilt_share) & (scale != 1)
    return CropPlan(
        scene=(numbers[:, 0] * scenes).long().clamp_max(scenes - 1),
        scale=scale,
        place=numbers[:, 3:5],
        turn=(numbers[:, 5] * 4).long().clamp_max(3) * int(config.turn),
        angle=torch.where(is_tilted, beyond * (torch.pi / 2), 0.0),
        flip=torch.where((numbers[:, 6] < 0.5) & config.flip, -1.0, 1.0),
        brightness=dim + (bright - dim) * numbers[:, 7],
        light=torch.randn(count, 3, generator=generator) * config.spectral_gain,
    )


@dataclass(frozen=True)
class _Level:
    """Scenes at one resolution, stacked along the height: `grid_sample` takes every scene from one
    image."""

    image: Tensor
    """`(1, C, N · height, width)`."""
    size: tuple[int, int]
    """Height and width of a scene in it."""

    @classmethod
    def of(cls, scenes: Tensor) -> _Level:
        """Scenes `(N, C, h, w)`."""
        height, width = scenes.shape[-2:]
        image = scenes.transpose(0, 1).reshape(1, scenes.shape[1], -1, width)
        return cls(image, (height, width))


class SceneBank:
    """Scenes `(N, C, H, W)` resident on a device."""

    def __init__(
        self,
        scenes: Tensor,
        crop: tuple[int, int],
        smallest_scale: float,
        resampling: str = "linear",
    ) -> None:
        check_shape(scenes, ("N", "C", "H", "W"), "scenes")
        self.count, self.bands, self.height, self.width = scenes.shape
        self.crop = crop
        if smallest_scale < 0.5:
            raise ConfigError(f"data.scale starts at {smallest_scale:g}; the smallest is 0.5.")
        # Turned by a quarter, either side can lie along either axis.
        needed = max(crop) / min(smallest_scale, 1.0)
        if needed > min(self.height, self.width):
            raise ConfigError(
                f"a crop of {crop[0]}×{crop[1]} px at scale {smallest_scale:g} needs scenes of "
                f"{needed:.0f} px; these are {self.height}×{self.width}. Use a smaller data.crop "
                "or a larger data.scale."
            )
        self._averaged_below = AVERAGED_BELOW[resampling]
        self._full = self._larger = _Level.of(scenes)
        if resampling == "cubic":
            self._larger = _Level.of(_enlarged(scenes))
        self._averaged: _Level | None = None
        if smallest_scale < self._averaged_below:
            halves = F.avg_pool2d(scenes, 2)
            self._averaged = _Level.of(_enlarged(halves) if resampling == "cubic" else halves)

    @property
    def device(self) -> torch.device:
        """Where the scenes live."""
        return self._full.image.device

    def draw(self, count: int, config: DataConfig, generator: torch.Generator) -> CropPlan:
        """Draw `count` crops, each the one with most contrast of `config.choices`."""
        drawn = draw_plan(count * config.choices, self.count, config, generator)
        if config.choices == 1:
            return drawn
        best = self._contrast_in(drawn).reshape(count, config.choices).argmax(1)
        return drawn.rows(torch.arange(count) * config.choices + best)

    def _contrast_in(self, plan: CropPlan) -> Tensor:
        """Mean contrast `(B,)` of the upright frames around the crops, on the CPU."""
        sums = self._contrast_sums
        cells = torch.tensor([sums.shape[1] - 1, sums.shape[2] - 1])
        size = torch.tensor([self.height, self.width])
        _, centre, reach = self._place(plan, (self.height, self.width))
        first = ((centre - reach / 2) / size * cells).floor().long().clamp_min(0)
        first = first.minimum(cells - 1)
        last = ((centre + reach / 2) / size * cells).ceil().long().minimum(cells)
        last = last.maximum(first + 1)
        (top, left), (bottom, right) = first.unbind(1), last.unbind(1)
        inside = sums[plan.scene, bottom, right] + sums[plan.scene, top, left]
        inside = inside - sums[plan.scene, bottom, left] - sums[plan.scene, top, right]
        return inside / ((bottom - top) * (right - left))

    @cached_property
    def _contrast_sums(self) -> Tensor:
        """Contrast of every scene summed from its corner, in cells, `(N, h + 1, w + 1)`."""
        scenes = self._full.image.reshape(self.bands, self.count, self.height, self.width)
        light = scenes.mean(0)
        dim = CONTRAST_DIM * light.amax((-2, -1), keepdim=True).clamp_min(1e-6)
        changes = [light.diff(dim=axis, append=light.narrow(axis, -1, 1)) for axis in (-2, -1)]
        contrast = torch.hypot(*changes) / (light + dim)
        cells = F.avg_pool2d(contrast[:, None], CELL, ceil_mode=True)[:, 0].double().cpu()
        return F.pad(cells.cumsum(-2).cumsum(-1), (1, 0, 1, 0))

    @torch.no_grad()
    def cut(self, plan: CropPlan) -> Tensor:
        """The crops of a plan, `(B, C, *crop)`.

        Enlarging samples the full scenes, shrinking those averaged 2×2, so fine texture does not
        alias.
        """
        if self._averaged is None and self._larger is self._full:
            return self._cut(self._full, plan)
        shrunk, native = plan.scale < self._averaged_below, plan.scale == 1
        levels = (
            (self._averaged, shrunk),
            (self._full, native),
            (self._larger, ~shrunk & ~native),
        )
        crops = torch.empty(len(plan.scale), self.bands, *self.crop, device=self.device)
        for level, chosen in levels:
            rows = chosen.nonzero()[:, 0]
            if len(rows):
                assert level is not None, "no scale is below the smallest"
                crops[to_device(rows, crops.device)] = self._cut(level, plan.rows(rows))
        return crops

    def _place(self, plan: CropPlan, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """How crops lie in scenes of this size: from their pixels to the scenes' `(B, 2, 2)`, their
        centres and the sides of the upright frames around them, `(B, 2)`."""
        height, width = size
        scale = plan.scale * (self.height / height)
        last = torch.tensor([height - 1, width - 1])
        sides = torch.tensor(self.crop) - 1.0
        upright = _turn_matrix(plan.turn, plan.flip)
        matrix = _tilted(upright, plan.angle) / scale[:, None, None]
        # From the first to the last sampled position, along the rows and columns of the scene. A
        # tilted crop that does not fit into its scene is cut upright.
        is_inside = (matrix.abs() @ sides <= last).all(1)[:, None, None]
        matrix = torch.where(is_inside, matrix, upright / scale[:, None, None])
        reach = matrix.abs() @ sides
        free = last - reach
        # At scale 1 positions fall on whole pixels, so nothing is interpolated. At any other they
        # keep half a pixel from the border: beyond it lies another scene.
        whole = (plan.place * (free + 1)).floor().minimum(free)
        first = torch.where((scale == 1)[:, None], whole, plan.place * free) + 0.5
        return matrix, first + reach / 2, reach

    def _cut(self, level: _Level, plan: CropPlan) -> Tensor:
        image = level.image
        matrix, centre, _ = self._place(plan, level.size)
        # float64 until the end: a row among all stacked scenes is a large number.
        row = centre[:, 0].double() + (plan.scene * level.size[0]).double()
        gain = plan.brightness[:, None] * torch.exp(plan.light @ cosines(self.bands))
        numbers = [matrix.reshape(-1, 4), row[:, None], centre[:, 1:], gain]
        packed = to_device(torch.cat([n.double() for n in numbers], 1).float(), image.device)
        steps = [torch.arange(n, device=image.device) - (n - 1) / 2 for n in self.crop]
        rows, columns = torch.meshgrid(*steps, indexing="ij")
        turned = packed[:, :4].reshape(-1, 2, 2)
        at_row = turned[:, 0, 0, None, None] * rows + turned[:, 0, 1, None, None] * columns
        at_column = turned[:, 1, 0, None, None] * rows + turned[:, 1, 1, None, None] * columns
        y = (at_row + packed[:, 4, None, None]) * (2 / image.shape[2]) - 1
        x = (at_column + packed[:, 5, None, None]) * (2 / image.shape[3]) - 1
        crops = F.grid_sample(
            image.expand(len(plan.scale), -1, -1, -1),
            torch.stack([x, y], -1),
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        return crops * packed[:, 6:, None, None]


def _enlarged(scenes: Tensor) -> Tensor:
    """Scenes `(N, C, H, W)` twice as large; one after the other, for the memory's sake."""
    # With antialias the cubic is Keys' (a = −½), which keeps a ramp straight; without it is not.
    # It overshoots at edges; light is not negative.
    large = (
        F.interpolate(one[None], scale_factor=2, mode="bicubic", antialias=True).clamp_min(0)
        for one in scenes
    )
    return torch.cat(list(large))


def cosines(bands: int) -> Tensor:
    """cos(kπλ) for k = 1, 2, 3 over the bands, `(3, C)`: slow changes of a lamp's spectrum."""
    place = (torch.arange(bands) + 0.5) / bands
    return torch.stack([torch.cos(torch.pi * order * place) for order in (1, 2, 3)])


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy small numbers to the device without making the host wait for it.

    From ordinary memory CUDA would first finish everything it was given.
    """
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def _turn_matrix(turn: Tensor, flip: Tensor) -> Tensor:
    """Rotation by quarter turns after a mirror of the columns, `(B, 2, 2)` on (row, column)."""
    cosine = torch.tensor([1.0, 0.0, -1.0, 0.0])[turn]
    sine = torch.tensor([0.0, 1.0, 0.0, -1.0])[turn]
    return torch.stack(
        [torch.stack([cosine, -sine * flip], 1), torch.stack([sine, cosine * flip], 1)], 1
    )


def _tilted(matrices: Tensor, angle: Tensor) -> Tensor:
    """`(B, 2, 2)` turned further by `angle (B,)`; bit for bit the same where that is 0."""
    cosine, sine = angle.cos(), angle.sin()
    further = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
    return torch.where((angle == 0)[:, None, None], matrices, further @ matrices)
