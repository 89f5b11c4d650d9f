"""A batch is a pure function of the seed and the step.

Nothing is carried from one step to the next, so a run that was killed draws the same batches
again, a failed step can be looked at afterwards, and every process of a distributed run knows
the whole batch and takes its part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seed_of
from prismask.optics.shear_on_device import shear_sum
from prismask.optics.varied_prism import PrismFamily, VariedCamera
from prismask.training.config import DataConfig
from prismask.training.data.band_counts import resampling_matrix, with_bands
from prismask.training.data.crops import CropPlan, SceneBank, draw_plan, to_device
from prismask.training.data.cubes import CubeMaker
from prismask.training.data.masks import MaskSource, chromatic, sharpened
from prismask.training.data.wrong_masks import Faults, as_seen, draw_faults, told_spread

TEXTURE = 0.007
"""Most that the noise estimate reads too much, of the measurement's rms value (`optics.noise`)."""


@dataclass(frozen=True)
class Batch:
    """What one step learns from."""

    cube: Tensor
    """Truth `(B, C, H, W)`."""
    measurement: Tensor
    """Its snapshot `(B, H, L)`, noise included."""
    mask: Tensor
    """The mask that coded it `(1|B, 1|C, H, W)`, as well as it is known."""
    noise: Tensor
    """What a network is told about the noise, `(B,)`: as far off as an estimate would be."""
    camera: CASSI
    """The camera of this step, as it is known."""
    true_mask: Tensor
    """What a network should find the mask to be, `(1|B, 1|C, H, W)`."""
    mask_std: Tensor | None = None
    """What it is told of how far the mask is off, `(B, 1, H, W)`, negative where nothing is told;
    None in trainings without faults."""


class BatchMaker:
    """Makes the batches of one scene set."""

    def __init__(
        self,
        scenes: SceneBank,
        masks: MaskSource,
        camera: CASSI | PrismFamily,
        config: DataConfig,
        seed: int,
        count: int,
        part: slice,
        wavelengths: Sequence[float] = (),
        more_bands: Sequence[int] = (),
        more_bands_share: float = 0.0,
    ) -> None:
        self.scenes = scenes
        self.cubes = CubeMaker(scenes, config, seed, count, part, wavelengths)
        self.masks = masks
        self.camera = camera
        self.config = config
        self.seed = seed
        self.count = count
        self.part = part
        self._host = torch.Generator()
        self._device = torch.Generator(scenes.device)
        # A generator of its own: the noise stays the same whether masks are displaced or not.
        self._beside = torch.Generator(scenes.device)
        self.others = [with_bands(camera, bands) for bands in more_bands]
        self.others_share = more_bands_share
        self._places: dict[int, Tensor] = {}
        self._matrices: dict[int, Tensor] = {}

    def plan(self, step: int) -> CropPlan:
        """Which crops step `step` uses."""
        self._host.manual_seed(seed_of(self.seed, "crops", step))
        return draw_plan(self.count, self.scenes.count, self.config, self._host)

    @torch.no_grad()
    def make(self, step: int) -> Batch:
        """This process's part of the batch of step `step`."""
        cube = self.cubes.make(self.plan(step), step)
        camera = self._prism(step)
        if camera.bands != cube.shape[1]:
            cube = torch.einsum("cb,nbhw->nchw", self._matrix(camera.bands, cube), cube)
        self._device.manual_seed(seed_of(self.seed, "masks", step))
        mask = self.masks.draw(self.count, self._host, self._device)
        mask = self._unusual(mask, camera.bands, step)
        known = self._known(mask, step)
        if mask.shape[0] > 1:
            mask, known = mask[self.part], known[self.part]
        if self.masks.config.fault_share > 0:
            clean, known, mask, mask_std = self._faulty(cube, known, camera, step)
        else:
            clean, mask_std = camera.forward(cube, mask), None
        std = self._noise_std(clean.device, camera.bands)
        lit = clean.shape[-1] - _dark_columns(camera)
        told = self._told(clean[..., :lit], std, step)
        seen = self._with_noise(clean, std, lit)
        return Batch(cube, seen, known, told, camera, mask, mask_std)

    def noise_generator(self, step: int, what: str) -> torch.Generator:
        """The device generator, set to what step `step` uses for `what`."""
        return self._device.manual_seed(seed_of(self.seed, what, step))

    def _prism(self, step: int) -> CASSI:
        """The camera of the step."""
        camera = self.camera
        if self.others:
            drawn = self._numbers("bands", step, 2)
            if float(drawn[0]) < self.others_share:
                camera = self.others[int(float(drawn[1]) * len(self.others))]
        if not isinstance(camera, PrismFamily):
            return camera
        return camera.draw(torch.Generator().manual_seed(seed_of(self.seed, "prism", step)))

    def _matrix(self, bands: int, cube: Tensor) -> Tensor:
        """From the scenes' bands to a camera's, `(C', C)`, on the device."""
        if bands not in self._matrices:
            matrix = resampling_matrix(bands, cube.shape[1])
            self._matrices[bands] = to_device(matrix, cube.device)
        return self._matrices[bands]

    def _unusual(self, mask: Tensor, bands: int, step: int) -> Tensor:
        """The step's masks `(1|B, 1, H, W)`, some of them binary, or `(1|B, C, H, W)`."""
        config = self.masks.config
        if config.binary_share > 0:
            drawn = self._numbers("binary", step, len(mask))
            mask = sharpened(mask, drawn, config.binary_share)
        if config.per_band_share > 0:
            chance, focus = self._numbers("planes", step, 2).tolist()
            mask = chromatic(mask, bands, focus) if chance < config.per_band_share else mask
        return mask

    def _numbers(self, what: str, step: int, count: int) -> Tensor:
        return torch.rand(
            count, generator=torch.Generator().manual_seed(seed_of(self.seed, what, step))
        )

    def _faulty(
        self, cube: Tensor, mask: Tensor, camera: CASSI, step: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The light through masks that may not be the told ones: measurement `(B, H, L)`, told and
        true mask `(B, 1, H, W)`, and the told spread."""
        numbers = self._beside.manual_seed(seed_of(self.seed, "faults", step))
        everyone = mask.new_empty(self.count, *mask.shape[1:])
        everyone[self.part] = mask
        drawn = draw_faults(everyone, numbers, self.masks.config)
        # Behind a dual disperser the mask is dispersed, not the light.
        is_bent = self.masks.config.dispersion_share > 0 and camera.design == "single"
        offsets = self._offsets(camera) if is_bent else None
        true, difference = as_seen(drawn, offsets)
        spread = told_spread(difference, numbers, self.masks.config.told_share)
        mine = drawn.slice(self.part)
        clean = _light(cube, mine, camera, offsets)
        return clean, mine.told, true[self.part], spread[self.part]

    def _offsets(self, camera: CASSI) -> Tensor:
        """Where the bands land as told, `(C,)` on the device."""
        if isinstance(camera, VariedCamera):
            return camera.places
        if camera.bands not in self._places:
            offsets = torch.tensor(camera.offsets, dtype=torch.float64)
            self._places[camera.bands] = to_device(offsets, self.scenes.device)
        return self._places[camera.bands]

    def _known(self, mask: Tensor, step: int) -> Tensor:
        """The masks of a batch as people believe them to be."""
        if self.masks.config.calibration_error <= 0:
            return mask
        return self.masks.calibrated(
            mask, self._beside.manual_seed(seed_of(self.seed, "calibration", step))
        )

    def _noise_std(self, device: torch.device, bands: int) -> Tensor | None:
        """σ of each measurement's noise `(B,)`; None: there is none."""
        low, high = self.config.noise_std
        if high <= 0:
            return None
        numbers = torch.rand(self.count, generator=self._host)[self.part]
        clean = 1 - self.config.noise_share
        std = low + (high - low) * (numbers - clean) / self.config.noise_share
        std = torch.where(numbers < clean, 0.0, std)
        # σ is stated for a measurement scaled to the cube's range (2/C); ours is a plain sum.
        return to_device(std, device) / network_scale(bands)

    def _with_noise(self, clean: Tensor, std: Tensor | None, lit: int) -> Tensor:
        if std is None:
            return clean
        shape = (self.count, *clean.shape[1:])
        noise = torch.randn(shape, generator=self._device, device=clean.device)[self.part]
        noise[..., lit:] = 0
        return clean + noise * std[:, None, None]

    def _told(self, clean: Tensor, std: Tensor | None, step: int) -> Tensor:
        """σ as `optics.noise` would estimate it: texture passes for a little more noise."""
        numbers = torch.Generator().manual_seed(seed_of(self.seed, "told", step))
        texture = to_device(
            TEXTURE * torch.rand(self.count, generator=numbers)[self.part], clean.device
        )
        level = clean.square().mean((-1, -2)).sqrt()
        return texture * level if std is None else std + texture * level


def _light(cube: Tensor, faults: Faults, camera: CASSI, offsets: Tensor | None) -> Tensor:
    """What falls on the told camera's sensor, `(B, H, L)`.

    offsets: where bands land as told, `(C,)`, if each sample has a dispersion of its own.
    """
    if offsets is None:
        return camera.forward(cube, faults.true)
    length = camera.measurement_size((cube.shape[-2], cube.shape[-1]))[1]
    return shear_sum(cube * faults.true, faults.places(offsets), length)


def _dark_columns(camera: CASSI) -> int:
    """Columns at the frame's end that no light can reach.

    At inference a narrow camera has a narrow frame: there is no noise on those columns, and nothing
    is measured by them.
    """
    return camera.extent - camera.lit_extent if isinstance(camera, VariedCamera) else 0
