"""The network at work on one frame: strips, tiles, samples, half precision where it does no harm.

Everything here is in the network's units: a snapshot whose scale it knows, a camera with its
bands. `camera_match.frames` translates on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prismask.inference.engine.passes import Passes, half_error
from prismask.inference.engine.tiling import Tile, Tiling, spans, tiles_by_strip
from prismask.models.fast import FastReconstructor, Precision
from prismask.models.network import Reconstructor
from prismask.models.posterior import MaskPosterior, perturb, prior_noise
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.progress import Progress

SAMPLE_BYTES = 256 << 20
"""Most memory for the samples of one tile; more samples make smaller tiles."""
WHOLE_MASK_PIXELS = 1 << 20
"""Largest mask whose graph is laid over all of it at once; larger ones are tiled."""
MASK_TILING = Tiling(tile=512, halo=8, blend=8)


@dataclass(frozen=True, eq=False)
class FrameEstimate:
    """What the network says about a frame; all `(C, H, W)` float32 on the CPU."""

    values: Tensor
    """The deterministic pass, or the mean over the samples."""
    std: Tensor | None = None
    """Standard deviation over the samples."""
    lower: Tensor | None = None
    """Lower quantile over the samples."""
    upper: Tensor | None = None
    """Upper quantile."""
    disagreement: Tensor | None = None
    """How far the answers of a mirror ensemble are apart (`models.mirror_ensemble`)."""
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

    def with_model(self, model: Reconstructor) -> Engine:
        """The same for other weights."""
        return Engine(model, self.device, self.precision, self.tiling)

    @property
    def bands(self) -> int:
        """Bands of the network."""
        return int(self.model.record["bands"])

    @property
    def network(self) -> FastReconstructor:
        """The network itself, for pieces of a frame that need no tiles."""
        return self._fast

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
        mask_std: Tensor | None = None,
        progress: Progress | None = None,
    ) -> FrameEstimate:
        """`measurement (H, L)`, `mask (1, 1|C, H, W)` → the cube and its spread.

        samples: masks drawn from the posterior; 0 is one pass with its mean mask.
        levels: quantiles over the samples to keep, such as (0.05, 0.95).
        noise_std: noise of the measurement, against which half precision is judged, and which
            some networks take as an input; None: they are given an estimate.
        mask_std: how wrong each pixel of the mask may be, of its shape, for networks that are told
            (`Reconstructor.wants_mask_std`); None: nobody knows.
        """
        measurement = measurement[None].to(self.device)
        mask = as_mask_batch(mask).to(self.device)
        if samples:
            masks = draw_masks(self._fast.model.posterior, mask, samples, seed)
        else:
            masks = mean_mask(self._fast.model.posterior, mask)
        noise = self._noise(measurement, mask, camera, noise_std)
        told = self._told(mask, mask_std)
        first = masks[:1].to(self.device)
        network = self._network(measurement, first, camera, noise_std, noise, told)
        passes = Passes(
            network, camera, sampled=samples > 0, levels=levels, noise=noise, mask_std=told
        )
        size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
        # A GPU puts the frame together itself and sends it over once.
        home = self.device if self.device.type == "cuda" else "cpu"
        frames = [torch.zeros(camera.bands, *size, device=home) for _ in passes.outputs]
        tiling = self._tiling_for(samples if levels else 0, size, camera)
        whole = not self.model.can_tile_backbone
        strips = list(tiles_by_strip(size, camera, tiling, whole, network.ensemble > 1))
        total, done = sum(len(tiles) for tiles in strips), 0
        for tiles in strips:
            piece = passes.strip(measurement, masks, tiles[0])
            for tile in tiles:
                for result, frame in zip(passes.run(piece, tile), frames, strict=True):
                    tile.add(result, frame)
                done += 1
                if progress is not None:
                    progress(done, total, {})
        named = {name: frame.cpu() for name, frame in zip(passes.outputs, frames, strict=True)}
        return FrameEstimate(**named, precision=str(network.dtype).removeprefix("torch."))

    @torch.inference_mode()
    def cubes(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: Tensor,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """Snapshots `(B, H, L)` through one mask, a single pass each → `(B, C, H, W)` float32.

        The same numbers as `run`, on the device; all at once where frames need no tiles.
        noise_std: of each snapshot, `(B,)`; mask_std: as `run` takes it.
        """
        measurement, mask = measurement.to(self.device), as_mask_batch(mask).to(self.device)
        size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
        chooses = self.precision == "auto" and self._fast.dtype != torch.float32
        if chooses or max(size) > self.tiling.tile:
            made = [
                self.run(shot, mask, camera, noise_std=float(noise), mask_std=mask_std).values
                for shot, noise in zip(measurement, noise_std, strict=True)
            ]
            return torch.stack(made).to(self.device)
        code = mean_mask(self._fast.model.posterior, mask)
        noise = noise_std.to(self.device) if self.wants_noise else None
        told = self._told(mask, mask_std)
        return self._fast.reconstruct(measurement, code, camera, noise, told)

    @property
    def wants_noise(self) -> bool:
        """Whether the network wants to know the noise of a snapshot."""
        return self.model.wants_noise

    def _told(self, mask: Tensor, mask_std: Tensor | None) -> Tensor | None:
        """What the network is told of the mask's errors, on the device; None: nothing."""
        if mask_std is None or not self.model.wants_mask_std:
            return None
        return as_mask_batch(mask_std).to(mask)

    def _tiling_for(self, kept: int, size: tuple[int, int], camera: CASSI) -> Tiling:
        """Tiles so small that `kept` samples of one fit into memory."""
        if not kept:
            return self.tiling
        area = SAMPLE_BYTES // (2 * kept * camera.bands)
        along = size[1] if camera.axis == "width" else size[0]
        side = math.isqrt(area) if self.model.can_tile_backbone else area // along
        least = min(self.tiling.tile, 64)
        tile = min(self.tiling.tile, max(least, side - 2 * self.tiling.halo))
        return replace(self.tiling, tile=tile)

    def _noise(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, noise_std: float | None
    ) -> Tensor | None:
        if not self.wants_noise:
            return None
        if noise_std is not None:
            return measurement.new_tensor([noise_std])
        return estimate_noise(measurement, mask, camera)

    def _network(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise_std: float | None,
        noise: Tensor | None,
        mask_std: Tensor | None,
    ) -> FastReconstructor:
        """The half-precision network, unless what it changes would show above the noise."""
        if self.precision != "auto" or self._fast.dtype == torch.float32 or noise_std is None:
            return self._fast
        if self._exact is None:
            self._exact = FastReconstructor(self.model, self.device, "float32")
        error = half_error(self._fast, self._exact, measurement, mask, camera, noise, mask_std)
        return self._fast if error <= noise_std else self._exact


def default_tiling(device: torch.device) -> Tiling:
    """Tiles that keep a CPU's memory small and a GPU busy."""
    return Tiling(tile=1024) if device.type == "cuda" else Tiling()


# --- masks drawn from a posterior, and its mean, for frames of any size -------------------------


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
