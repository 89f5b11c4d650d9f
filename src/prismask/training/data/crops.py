"""Crops of scenes, cut on the device they live on.

All scenes of a set stay resident. One `grid_sample` does the whole of cutting, mirroring,
turning and enlarging for a batch, so a step costs no copy of a scene and no loop over samples.
What is cut is drawn on the CPU from a generator: the same seed gives the same crops on any
device and on any number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prismask.checks import check_shape
from prismask.errors import ConfigError
from prismask.training.config import DataConfig


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

    def slice(self, part: slice) -> CropPlan:
        """The rows of one process."""
        return CropPlan(**{name: getattr(self, name)[part] for name in self.__dataclass_fields__})

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


class SceneBank:
    """Scenes `(N, C, H, W)` resident on a device."""

    def __init__(self, scenes: Tensor, crop: tuple[int, int], smallest_scale: float) -> None:
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
        # Two levels, stacked along the height: grid_sample then takes every scene from one image.
        self._full = scenes.transpose(0, 1).reshape(1, self.bands, -1, self.width)
        halves = F.avg_pool2d(scenes, 2) if smallest_scale < 1 else None
        self._half = (
            None
            if halves is None
            else halves.transpose(0, 1).reshape(1, self.bands, -1, halves.shape[-1])
        )

    @property
    def device(self) -> torch.device:
        """Where the scenes live."""
        return self._full.device

    @torch.no_grad()
    def cut(self, plan: CropPlan) -> Tensor:
        """The crops of a plan, `(B, C, *crop)`.

        Enlarging samples the full scenes, shrinking those averaged 2×2 (at twice the scale), so
        fine texture does not alias.
        """
        if self._half is None:
            return self._cut(self._full, plan, (self.height, self.width), plan.scale)
        shrink = plan.scale < 1
        crops = torch.empty(len(plan.scale), self.bands, *self.crop, device=self._full.device)
        for level, chosen, factor in ((self._full, ~shrink, 1), (self._half, shrink, 2)):
            rows = chosen.nonzero()[:, 0]
            if len(rows):
                part = CropPlan(**{k: getattr(plan, k)[rows] for k in plan.__dataclass_fields__})
                size = (self.height // factor, self.width // factor)
                cut = self._cut(level, part, size, part.scale * factor)
                crops[to_device(rows, crops.device)] = cut
        return crops

    def _cut(self, image: Tensor, plan: CropPlan, size: tuple[int, int], scale: Tensor) -> Tensor:
        height, width = size
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
        centre = first + reach / 2
        # float64 until the end: a row among all stacked scenes is a large number.
        row = centre[:, 0].double() + (plan.scene * height).double()
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
            image.expand(len(scale), -1, -1, -1),
            torch.stack([x, y], -1),
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        return crops * packed[:, 6:, None, None]


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
