"""A batch is a pure function of the seed and the step.

Nothing that is drawn depends on what was drawn before, so a run that was killed draws the same
batches again, a failed step can be looked at afterwards, and every process of a distributed run
knows the whole batch and takes its part of it.

Making a batch is hundreds of small operations, which cost a GPU about the same for eight samples as
for forty. So the batches of `at_once` steps in a row may be made together, as one block, and handed
out one by one.

A network that serves any band count has to meet some: the same scenes and the same prism, cut into
more or fewer bands. Between steps, not within one: every count is a shape of its own that a
compiler has to know, so there are few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.models.inputs import network_scale
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seed_of
from prismask.optics.shear import gathered_shear_sum
from prismask.optics.varied_prism import PrismFamily, VariedCamera
from prismask.training.config import DataConfig
from prismask.training.data.crops import CropPlan, SceneBank, to_device
from prismask.training.data.cubes import CubeMaker
from prismask.training.data.masks import (
    MaskSource,
    as_seen,
    chromatic,
    draw_faults,
    sharpened,
    stated_spread,
)

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
    """The noise that a network is given, `(B,)`: as far off as an estimate would be."""
    camera: CASSI
    """The camera of this step, as it is known."""
    true_mask: Tensor
    """What a network should find the mask to be, `(1|B, 1|C, H, W)`."""
    mask_std: Tensor | None = None
    """How far the mask is off, as far as that is stated, `(B, 1, H, W)`, negative elsewhere;
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
        at_once: int = 1,
    ) -> None:
        if at_once > 1 and part != slice(0, count):
            raise ConfigError(
                "speed.batches_at_once is for one process; several share this run. Set it to 1."
            )
        self.scenes = scenes
        self.masks = masks
        self.camera = camera
        self.config = config
        self.seed = seed
        self.count = count
        """Samples of a step, over all processes."""
        self.at_once = at_once
        self.drawn = at_once * count
        """Samples of a block."""
        self.part = part if at_once == 1 else slice(0, self.drawn)
        self.cubes = CubeMaker(scenes, config, seed, self.drawn, self.part, wavelengths)
        self._host = torch.Generator()
        self._device = torch.Generator(scenes.device)
        # A generator of its own: the noise stays the same whether masks are displaced or not.
        self._displaced = torch.Generator(scenes.device)
        self.others = [with_bands(camera, bands) for bands in more_bands]
        self.others_share = more_bands_share
        self._places: dict[int, Tensor] = {}
        self._matrices: dict[int, Tensor] = {}
        self._kept: tuple[int, list[Batch]] | None = None

    def plan(self, step: int) -> CropPlan:
        """Which crops step `step` uses."""
        block, place = divmod(step, self.at_once)
        return self._plan(block).rows(slice(place * self.count, (place + 1) * self.count))

    def make(self, step: int) -> Batch:
        """This process's part of the batch of step `step`."""
        block, place = divmod(step, self.at_once)
        if self.at_once == 1:
            return self._make(block)[0]
        if self._kept is None or self._kept[0] != block:
            self._kept = (block, self._make(block))
        return self._kept[1][place]

    def _plan(self, block: int) -> CropPlan:
        self._host.manual_seed(seed_of(self.seed, "crops", block))
        return self.scenes.draw(self.drawn, self.config, self._host)

    @torch.no_grad()
    def _make(self, block: int) -> list[Batch]:
        """The batches of one block; what is drawn depends on its number alone."""
        plain = self._numbers("plain", block, self.drawn) < self.config.plain_share
        cube = self.cubes.make(self._plan(block), block, plain)
        prisms = self._prisms(block)
        bands = prisms[0].bands
        if bands != cube.shape[1]:
            cube = torch.einsum("cb,nbhw->nchw", self._matrix(bands, cube), cube)
        self._device.manual_seed(seed_of(self.seed, "masks", block))
        mask = self.masks.draw(self.drawn, self._host, self._device)
        mask = self._unusual(mask, bands, block)
        known = self._known(mask, block)
        if mask.shape[0] > 1:
            mask, known = mask[self.part], known[self.part]
        if self.masks.config.fault_share > 0:
            clean, known, mask, mask_std = self._faulty(cube, known, prisms, block, plain)
        else:
            clean, mask_std = self._light(cube, mask, prisms, None), None
        std = self._noise_std(clean.device, bands, plain)
        lit = self._lit_columns(clean, prisms)
        stated = self._stated_noise(clean, std, lit, block)
        seen = self._with_noise(clean, std, lit)
        if cube.is_cuda:
            # As convolutions leave their estimates, with which it is compared.
            cube = cube.contiguous(memory_format=torch.channels_last)
        whole = Batch(cube, seen, known, stated, prisms[0], mask, mask_std)
        return [self._of_step(whole, place, camera) for place, camera in enumerate(prisms)]

    def _of_step(self, block: Batch, place: int, camera: CASSI) -> Batch:
        """One step's samples of a block."""
        if self.at_once == 1:
            return block
        rows = slice(place * self.count, (place + 1) * self.count)
        parts = {
            entry.name: value[rows] if len(value) == self.drawn else value
            for entry in fields(block)
            if isinstance(value := getattr(block, entry.name), Tensor)
        }
        return replace(block, camera=camera, **parts)

    def noise_generator(self, step: int, what: str) -> torch.Generator:
        """The device generator, set to what step `step` uses for `what`."""
        return self._device.manual_seed(seed_of(self.seed, what, step))

    def _prisms(self, block: int) -> list[CASSI]:
        """The camera of each step; all of a block have the same bands."""
        camera = self.camera
        if self.others:
            drawn = self._numbers("bands", block, 2)
            if float(drawn[0]) < self.others_share:
                camera = self.others[int(float(drawn[1]) * len(self.others))]
        if not isinstance(camera, PrismFamily):
            return [camera] * self.at_once
        generator = torch.Generator().manual_seed(seed_of(self.seed, "prism", block))
        return [camera.draw(generator) for _ in range(self.at_once)]

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
        self, cube: Tensor, mask: Tensor, prisms: Sequence[CASSI], block: int, plain: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The light through masks that may not be the nominal ones: measurement `(B, H, L)`,
        nominal and true mask `(B, 1, H, W)`, and the stated spread."""
        numbers = self._displaced.manual_seed(seed_of(self.seed, "faults", block))
        everyone = mask.new_empty(self.drawn, *mask.shape[1:])
        everyone[self.part] = mask
        drawn = draw_faults(everyone, numbers, self.masks.config, plain)
        # With a dual disperser the mask is dispersed, not the light.
        is_bent = self.masks.config.dispersion_share > 0 and prisms[0].design == "single"
        offsets = self._offsets(prisms) if is_bent else None
        true, difference = as_seen(drawn, offsets)
        spread = stated_spread(difference, numbers, self.masks.config.told_share)
        mine = drawn.slice(self.part)
        places = None if offsets is None else mine.places(offsets[self.part])
        clean = self._light(cube, mine.true, prisms, places)
        return clean, mine.nominal, true[self.part], spread[self.part]

    def _light(
        self, cube: Tensor, mask: Tensor, prisms: Sequence[CASSI], places: Tensor | None
    ) -> Tensor:
        """What falls on the nominal cameras' sensors, `(B, H, L)`.

        places: where the bands of each sample land, `(B, C)`, if not where those say.
        """
        camera = prisms[0]
        if places is None and self.at_once > 1 and isinstance(camera, VariedCamera):
            places = self._offsets(prisms)[self.part]
        if places is None:
            return camera.forward(cube, mask)
        length = camera.measurement_size((cube.shape[-2], cube.shape[-1]))[1]
        return gathered_shear_sum(cube * mask, places, length)

    def _offsets(self, prisms: Sequence[CASSI]) -> Tensor:
        """Where the bands of every sample land nominally, `(B, C)` on the device."""
        each = torch.stack([self._offsets_of(camera) for camera in prisms])
        return each.repeat_interleave(self.count, 0, output_size=self.drawn)

    def _offsets_of(self, camera: CASSI) -> Tensor:
        """The same for one camera, `(C,)`."""
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
            mask, self._displaced.manual_seed(seed_of(self.seed, "calibration", step))
        )

    def _noise_std(self, device: torch.device, bands: int, plain: Tensor) -> Tensor | None:
        """σ of each measurement's noise `(B,)`; None: there is none."""
        low, high = self.config.noise_std
        if high <= 0:
            return None
        numbers = torch.rand(self.drawn, generator=self._host)[self.part]
        clean = 1 - self.config.noise_share
        std = low + (high - low) * (numbers - clean) / self.config.noise_share
        std = torch.where((numbers < clean) | plain[self.part], 0.0, std)
        # σ is stated for a measurement scaled to the cube's range (2/C); ours is a plain sum.
        return to_device(std, device) / network_scale(bands)

    def _with_noise(self, clean: Tensor, std: Tensor | None, lit: Tensor | None) -> Tensor:
        if std is None:
            return clean
        shape = (self.drawn, *clean.shape[1:])
        noise = torch.randn(shape, generator=self._device, device=clean.device)[self.part]
        if lit is not None:
            column = torch.arange(clean.shape[-1], device=clean.device)
            noise = noise * (column < lit[:, None])[:, None]
        return clean + noise * std[:, None, None]

    def _stated_noise(
        self, clean: Tensor, std: Tensor | None, lit: Tensor | None, block: int
    ) -> Tensor:
        """σ as `optics.noise` would estimate it: texture passes for a little more noise."""
        numbers = torch.Generator().manual_seed(seed_of(self.seed, "told", block))
        texture = to_device(
            TEXTURE * torch.rand(self.drawn, generator=numbers)[self.part], clean.device
        )
        square = clean.square().mean((-1, -2))
        level = (square if lit is None else square * clean.shape[-1] / lit).sqrt()
        return texture * level if std is None else std + texture * level

    def _lit_columns(self, clean: Tensor, prisms: Sequence[CASSI]) -> Tensor | None:
        """How many columns of each frame light can reach, `(B,)` on the device; None: all.

        At inference a narrow camera has a narrow frame: there is no noise on the columns beyond
        it, and nothing is measured by them.
        """
        dark = [p.extent - p.lit_extent if isinstance(p, VariedCamera) else 0 for p in prisms]
        if not any(dark):
            return None
        lit = clean.shape[-1] - torch.tensor(dark).repeat_interleave(self.count)[self.part]
        return to_device(lit, clean.device)


def positions(count: int, bands: int) -> Tensor:
    """Where `count` bands lie between the first and the last of `bands`, `(count,)`."""
    return torch.linspace(0, bands - 1, count, dtype=torch.float64)


def resampling_matrix(count: int, bands: int) -> Tensor:
    """`(count, bands)`: how much of each band a new one gets; rows sum to one."""
    band = torch.arange(bands, dtype=torch.float64)
    return (1 - (positions(count, bands)[:, None] - band).abs()).clamp_min(0).float()


def with_bands(camera: CASSI | PrismFamily, count: int) -> CASSI | PrismFamily:
    """The camera with the same prism and another number of bands, as far apart as before in all."""
    nominal = camera.nominal if isinstance(camera, PrismFamily) else camera
    at = positions(count, nominal.bands).numpy()
    offsets = np.interp(at, np.arange(nominal.bands), nominal.offsets)
    other = CASSI(tuple(offsets.tolist()), nominal.axis, nominal.design)
    if not isinstance(camera, PrismFamily):
        return other
    return replace(camera, nominal=other)
