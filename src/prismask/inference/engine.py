"""The network at work on one frame: strips, tiles, samples, half precision where it does no harm.

Everything here is in the network's units: a snapshot whose scale it knows, a camera with its
bands. `single` does the translation on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prismask.inference.tiling import Span, Tile, Tiling, cut, spans, strip, tiles_by_strip
from prismask.inference.uncertainty import RunningMoments, quantiles
from prismask.models.fast import FastReconstructor, Precision
from prismask.models.inputs import network_input
from prismask.models.network import Reconstructor
from prismask.models.posterior import MaskPosterior, perturb, prior_noise
from prismask.optics.camera import CASSI, as_mask_batch

Progress = Callable[[int, int, Mapping[str, Any]], None]

SAMPLE_BYTES = 256 << 20
"""Most memory for the samples of one tile; more samples make smaller tiles."""
WHOLE_MASK_PIXELS = 1 << 20
"""Largest mask whose graph is laid over all of it at once; larger ones are tiled."""
MASK_TILING = Tiling(tile=512, halo=8, blend=8)
PROBE = 96
"""Height and width of the piece on which half precision is compared with single."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the network says about a frame; all `(C, H, W)` float32 on the CPU."""

    values: Tensor
    """The deterministic pass, or the mean over the samples."""
    std: Tensor | None = None
    """Standard deviation over the samples."""
    lower: Tensor | None = None
    """Lower quantile over the samples."""
    upper: Tensor | None = None
    """Upper quantile."""
    precision: str = "float32"
    """What the backbone computed in."""


class Engine:
    """A network prepared for one device; `run` is called once a frame."""

    def __init__(
        self,
        model: Reconstructor,
        device: torch.device,
        precision: Precision = "auto",
        tiling: Tiling | None = None,
    ) -> None:
        self.device = device
        self.precision = precision
        self.tiling = tiling or default_tiling(device)
        self.model = model
        self._fast = FastReconstructor(model, device, precision)
        self._exact: FastReconstructor | None = None

    @property
    def bands(self) -> int:
        """Bands of the network."""
        return int(self.model.record["bands"])

    @property
    def can_sample(self) -> bool:
        """Whether the network has an opinion on how wrong a mask may be."""
        return self.model.posterior.is_random

    @torch.inference_mode()
    def run(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        *,
        samples: int = 0,
        seed: int = 0,
        levels: tuple[float, float] | None = None,
        noise_std: float | None = None,
        progress: Progress | None = None,
    ) -> Estimate:
        """`measurement (H, L)`, `mask (1, 1|C, H, W)` → the cube and its spread.

        samples: masks drawn from the posterior; 0 is one pass with its mean mask.
        levels: quantiles over the samples to keep, such as (0.05, 0.95).
        noise_std: noise of the measurement, against which half precision is judged.
        """
        measurement = measurement[None].to(self.device)
        mask = as_mask_batch(mask).to(self.device)
        if samples:
            masks = draw_masks(self._fast.model.posterior, mask, samples, seed)
        else:
            masks = mean_mask(self._fast.model.posterior, mask)
        network = self._network(measurement, masks[:1].to(self.device), camera, noise_std)
        sampling = _Sampling(network, masks, samples, levels, self.device)
        tiling = self._tiling_for(samples, levels, camera)
        size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
        frames = [torch.zeros(camera.bands, *size) for _ in range(sampling.outputs)]
        strips = list(tiles_by_strip(size, camera, tiling))
        total, done = sum(len(tiles) for tiles in strips), 0
        for tiles in strips:
            planes = sampling.planes(measurement, tiles[0], camera)
            for tile in tiles:
                for result, frame in zip(sampling.tile(planes, tile, camera), frames, strict=True):
                    tile.add(result, frame)
                done += 1
                if progress is not None:
                    progress(done, total, {})
        named = dict(zip(("values", "std", "lower", "upper"), frames, strict=False))
        return Estimate(**named, precision=str(network.dtype).removeprefix("torch."))

    def _tiling_for(
        self, samples: int, levels: tuple[float, float] | None, camera: CASSI
    ) -> Tiling:
        if not samples or levels is None:
            return self.tiling
        side = math.isqrt(SAMPLE_BYTES // (2 * samples * camera.bands)) - 2 * self.tiling.halo
        tile = max(64, min(self.tiling.tile, side))
        return Tiling(min(self.tiling.tile, tile), self.tiling.halo, self.tiling.blend)

    def _network(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, noise_std: float | None
    ) -> FastReconstructor:
        """The half-precision network, unless what it changes would show above the noise."""
        if self.precision != "auto" or self._fast.dtype == torch.float32 or noise_std is None:
            return self._fast
        if self._exact is None:
            self._exact = FastReconstructor(self.model, self.device, "float32")
        error = half_error(self._fast, self._exact, measurement, mask, camera)
        return self._fast if error <= noise_std else self._exact


class _Sampling:
    """One tile through the network: once, or once for each mask."""

    def __init__(
        self,
        network: FastReconstructor,
        masks: Tensor,
        samples: int,
        levels: tuple[float, float] | None,
        device: torch.device,
    ) -> None:
        self.network, self.masks, self.samples, self.levels = network, masks, samples, levels
        self.device = device
        self.outputs = 1 if not samples else 2 if levels is None else 4

    def planes(self, measurement: Tensor, tile: Tile, camera: CASSI) -> list[Tensor]:
        """Input planes of the tile's strip, one entry for each mask, made when first used.

        A strip of planes is the largest thing in memory, so samples keep only what they need:
        the strip of the measurement and of each mask.
        """
        seen, masks = strip(measurement, tile, camera), strip(self.masks, tile, camera)
        if not self.samples:
            return [self._input(seen, masks, camera)]
        return [seen, masks]

    def tile(self, planes: list[Tensor], tile: Tile, camera: CASSI) -> list[Tensor]:
        """The tile's results in the order of `Estimate`."""
        if not self.samples:
            return [self._backbone(cut(planes[0], tile, camera))[0]]
        seen, masks = planes
        moments, kept = RunningMoments(), []
        for mask in masks:
            given = self._input(seen, mask[None].to(self.device), camera)
            result = self._backbone(cut(given, tile, camera))[0]
            moments.add(result)
            if self.levels is not None:
                kept.append(result.half())
        results = [moments.mean, moments.std]
        return results if self.levels is None else [*results, *quantiles(kept, self.levels)]

    def _input(self, seen: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        return network_input(self.network.model.inputs, seen, mask, camera)

    def _backbone(self, planes: Tensor) -> Tensor:
        # Contiguous first: a cut is a view, and convolutions would copy it in a worse layout.
        given = planes.to(self.network.dtype).contiguous(memory_format=torch.channels_last)
        result: Tensor = self.network.backbone(given)
        return result.float()


def default_tiling(device: torch.device) -> Tiling:
    """Tiles that keep a CPU's memory small and a GPU busy."""
    return Tiling(tile=1024) if device.type == "cuda" else Tiling()


def half_error(
    fast: FastReconstructor,
    exact: FastReconstructor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
) -> float:
    """What half precision changes in the re-projected snapshot, rms, on a piece of the middle."""
    size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
    piece = (min(PROBE, size[0]), min(PROBE, size[1]))
    top, left = (size[0] - piece[0]) // 2, (size[1] - piece[1]) // 2
    tile = Tile(
        Span(top, top + piece[0], torch.ones(piece[0])),
        Span(left, left + piece[1], torch.ones(piece[1])),
    )
    seen, code = strip(measurement, tile, camera), strip(mask, tile, camera)
    planes = cut(network_input(exact.model.inputs, seen, code, camera), tile, camera)
    wide = exact.backbone(planes).float()
    narrow = fast.backbone(
        planes.to(fast.dtype).contiguous(memory_format=torch.channels_last)
    ).float()
    coded = camera.mask_size(piece)
    changed = camera.forward(narrow - wide, mask[..., top : top + coded[0], left : left + coded[1]])
    return float(changed.square().mean().sqrt())


def draw_masks(posterior: MaskPosterior, mask: Tensor, count: int, seed: int) -> Tensor:
    """`count` masks m′ around `mask (1, 1|C, H, W)`, on the CPU; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    std = mask_std(posterior, mask).cpu()
    config = posterior.config
    shape = (count, *mask.shape[1:])
    noise = prior_noise(shape, config.prior_mean, config.prior_std, generator, std)
    return perturb(mask.cpu(), std, noise)


def mean_mask(posterior: MaskPosterior, mask: Tensor) -> Tensor:
    """The mask of a deterministic pass, clamp(m + μ·g)."""
    mean = posterior.config.prior_mean
    if not posterior.is_random or mean == 0:
        return mask
    return perturb(mask, mask_std(posterior, mask), torch.full_like(mask, mean))


def mask_std(posterior: MaskPosterior, mask: Tensor) -> Tensor:
    """g_φ(m), with the graph over pieces of a mask too large for one."""
    height, width = mask.shape[-2:]
    if height * width <= WHOLE_MASK_PIXELS:
        return posterior.std(mask)
    out = torch.zeros_like(mask, device="cpu")
    for row in spans(height, MASK_TILING):
        for column in spans(width, MASK_TILING):
            piece = mask[..., row.first : row.last, column.first : column.last]
            Tile(row, column).add(posterior.std(piece), out)
    return out.to(mask.device)
