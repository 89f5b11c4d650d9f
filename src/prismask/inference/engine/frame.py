"""The network at work on one frame: strips, tiles, samples, half precision where it does no harm.

A tile goes through the network once, or once for each mask. Everything here is in the network's
units: a snapshot whose scale it knows, a camera with its bands. `camera_match.frames` translates on
both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from prismask.inference.engine.tiling import Span, Tile, Tiling, cut, spans, strip, tiles_by_strip
from prismask.models.fast import FastReconstructor, Precision
from prismask.models.inputs import network_input
from prismask.models.network import Reconstructor, combined, run_ensemble
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
    """How far the answers of a mirror ensemble are apart (`models.network`)."""
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


PROBE = 96
"""Height and width of the piece on which half precision is compared with single."""


@dataclass(frozen=True, eq=False)
class Strip:
    """What the tiles of one strip share."""

    measurement: Tensor
    """`(1, h, l)`."""
    masks: Tensor
    """One mask `(N, 1|C, h, w)` for each pass."""
    mask_std: Tensor | None
    """What the network is told of the masks' errors, `(1, 1|C, h, w)`."""
    planes: Tensor | None
    """Input planes `(1, K, h, w)` where there is a single pass; they are the largest thing in
    memory, so several passes make them one after the other."""


@dataclass(frozen=True, eq=False)
class Passes:
    """How a tile is computed."""

    network: FastReconstructor
    camera: CASSI
    sampled: bool = False
    """Whether there are several masks, whose spread is asked for."""
    levels: tuple[float, float] | None = None
    """Quantiles over the masks, if asked for."""
    noise: Tensor | None = None
    """Noise of the whole snapshot `(1,)`, for networks that want to know; None: no such network.

    A strip by itself would be judged by what happens to lie in it."""
    mask_std: Tensor | None = None
    """Errors of the mask `(1, 1|C, H, W)`, for networks that are told; None: nothing is told."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Results of a tile, by the names that `FrameEstimate` gives them."""
        spread = ("std",) if self.sampled else ()
        ends = () if self.levels is None else ("lower", "upper")
        apart = ("disagreement",) if self.network.ensemble > 1 else ()
        return ("values", *spread, *ends, *apart)

    def strip(self, measurement: Tensor, masks: Tensor, tile: Tile) -> Strip:
        """What the strip of `tile` shares, cut from `measurement (1, H, L)` and the masks."""
        seen, codes = strip(measurement, tile, self.camera), strip(masks, tile, self.camera)
        told = None if self.mask_std is None else strip(self.mask_std, tile, self.camera)
        planes = None if self.sampled else self._planes(seen, codes)
        return Strip(seen, codes, told, planes)

    def run(self, piece: Strip, tile: Tile) -> list[Tensor]:
        """The results of a tile, each `(C, h, w)` float32, in the order of `outputs`."""
        if piece.planes is not None:
            cube, apart = self._pass(piece, piece.masks, piece.planes, tile)
            return [cube] if apart is None else [cube, apart]
        moments, between, kept = RunningMoments(), RunningMoments(), []
        for number in range(len(piece.masks)):
            mask = piece.masks[number : number + 1].to(self.network.device)
            cube, apart = self._pass(piece, mask, self._planes(piece.measurement, mask), tile)
            moments.add(cube)
            if apart is not None:
                between.add(apart)
            if self.levels is not None:
                kept.append(cube.half())
        ends = [] if self.levels is None else quantiles(kept, self.levels)
        last = [between.mean] if between.count else []
        return [moments.mean, moments.std, *ends, *last]

    def _planes(self, measurement: Tensor, mask: Tensor) -> Tensor:
        return network_input(self.network.model.inputs, measurement, mask, self.camera, self.noise)

    def _pass(
        self, piece: Strip, mask: Tensor, planes: Tensor, tile: Tile
    ) -> tuple[Tensor, Tensor | None]:
        """The mean of the network's answers, and how far they are apart."""
        # Contiguous first: a cut is a view, and convolutions would copy it in a worse layout.
        given = cut(planes, tile, self.camera).to(self.network.dtype)
        given = given.contiguous(memory_format=torch.channels_last)
        # A backbone that contains the camera is only ever given whole strips.
        network = self.network
        answers = run_ensemble(
            network.backbone,
            given,
            piece.measurement,
            mask,
            self.camera,
            network.ensemble,
            self.noise,
            piece.mask_std,
        )[:, 0].float()
        return combined(answers)


def half_error(
    fast: FastReconstructor,
    exact: FastReconstructor,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise: Tensor | None = None,
    mask_std: Tensor | None = None,
) -> float:
    """What half precision changes in the re-projected snapshot, rms, on a piece of the middle."""
    size = camera.scene_size((measurement.shape[-2], measurement.shape[-1]))
    tile = _probe(size, camera, exact.model.can_tile_backbone)
    results = []
    for network in (fast, exact):
        passes = Passes(network, camera, noise=noise, mask_std=mask_std)
        results.append(passes.run(passes.strip(measurement, mask, tile), tile)[0])
    piece = (tile.rows.last - tile.rows.first, tile.columns.last - tile.columns.first)
    height, width = camera.mask_size(piece)
    top, left = tile.rows.first, tile.columns.first
    code = mask[..., top : top + height, left : left + width]
    changed = camera.forward((results[0] - results[1])[None], code)
    return float(changed.square().mean().sqrt())


def _probe(size: tuple[int, int], camera: CASSI, can_tile: bool) -> Tile:
    """A piece of the middle of the frame, all along the dispersion where tiles are not allowed."""

    def middle(length: int, wanted: int) -> Span:
        part = min(length, wanted)
        first = (length - part) // 2
        return Span(first, first + part, torch.ones(part))

    along_width = camera.axis == "width"
    rows = PROBE if can_tile else PROBE // 3 if along_width else size[0]
    columns = PROBE if can_tile else size[1] if along_width else PROBE // 3
    return Tile(middle(size[0], rows), middle(size[1], columns))


# --- spread over samples, in one pass and bounded memory ------------------------------------------


class RunningMoments:
    """Mean and standard deviation of tensors that come one after another (Welford, 1962)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean: Tensor | None = None
        self._sum: Tensor | None = None

    def add(self, sample: Tensor) -> None:
        """Take one more sample into account."""
        self.count += 1
        if self._mean is None or self._sum is None:
            self._mean = sample.detach().clone()
            self._sum = torch.zeros_like(self._mean)
            return
        before = sample - self._mean
        self._mean += before / self.count
        self._sum += before * (sample - self._mean)

    @property
    def mean(self) -> Tensor:
        """Mean of the samples so far."""
        if self._mean is None:
            raise RuntimeError("no sample was added yet.")
        return self._mean

    @property
    def std(self) -> Tensor:
        """Their standard deviation, divided by n − 1; 0 for a single sample."""
        if self._sum is None:
            raise RuntimeError("no sample was added yet.")
        return (self._sum / max(1, self.count - 1)).clamp_min(0).sqrt()


def quantiles(samples: Sequence[Tensor], levels: Sequence[float]) -> list[Tensor]:
    """Quantiles over the samples, each of the samples' shape, linear between order statistics.

    `torch.quantile` does the same for tensors of at most 16 million values; a tile has more.
    """
    results = [torch.empty_like(samples[0], dtype=torch.float32) for _ in levels]
    # Plane by plane: sorting everything at once would hold five times as much.
    for plane in range(samples[0].shape[0]):
        ordered = torch.stack([sample[plane] for sample in samples]).float().sort(dim=0).values
        last = ordered.shape[0] - 1
        for level, result in zip(levels, results, strict=True):
            low = min(int(level * last), last)
            high = min(low + 1, last)
            result[plane] = torch.lerp(ordered[low], ordered[high], level * last - low)
    return results
