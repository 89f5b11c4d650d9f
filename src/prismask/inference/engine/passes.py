"""One tile through the network: once, or once for each mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prismask.inference.engine.tiling import Span, Tile, cut, strip
from prismask.models.fast import FastReconstructor
from prismask.models.inputs import network_input
from prismask.models.mirror_ensemble import combined, run_ensemble
from prismask.optics.camera import CASSI

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
