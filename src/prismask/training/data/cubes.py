"""From scenes to the cubes a step learns from: cut, joined, recoloured, lit by lines.

Each of these draws from a generator of its own, so that switching one on leaves the others' numbers
as they were; what is switched off costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prismask.optics.randomness import seed_of
from prismask.training.config import DataConfig
from prismask.training.data import collage, repaint, spectra, structured
from prismask.training.data.crops import CropPlan, SceneBank, draw_plan


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
        self.structured = structured.StructuredLight(wavelengths, config) if is_structured else None

    @torch.no_grad()
    def make(self, plan: CropPlan, step: int) -> Tensor:
        """This process's cubes of step `step`, which cuts by `plan`, `(B, C, H, W)`."""
        config = self.config
        cube = self.scenes.cut(plan.slice(self.part))
        if config.collage > 0:
            others = draw_plan(self.count, self.scenes.count, config, self._numbers("others", step))
            other = self.scenes.cut(others.slice(self.part))
            drawn = self._uniform("collage", step, collage.NUMBERS)
            cube = collage.collage(cube, other, drawn, config.collage)
        if config.warp > 0:
            drawn = self._uniform("warp", step, spectra.NUMBERS)
            cube = spectra.read_elsewhere(cube, drawn, config.warp)
        if config.repaint > 0:
            numbers = self._numbers("paint", step)
            drawn = torch.randn(self.count, *repaint.NUMBERS, generator=numbers)[self.part]
            cube = repaint.repaint(cube, drawn * config.repaint)
        if self.structured is not None:
            drawn = self._uniform("structured", step, structured.NUMBERS)
            cube = self.structured.light(cube, drawn)
        return cube

    def _uniform(self, what: str, step: int, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(self.count, *shape, generator=self._numbers(what, step))[self.part]

    def _numbers(self, what: str, step: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_of(self.seed, what, step))
