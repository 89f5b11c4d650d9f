"""A network at work on one frame: strips, tiles, samples, half precision where it does no harm.

Everything here is in the network's units: a snapshot whose scale it knows, a camera with its bands.
`camera_match` translates on both sides. A tile goes through the network once, or once for each
mask, so memory is bounded by the tile, whatever the size of the frame.

What a tile sees. Bands are sheared, so the sensor columns behind a tile of the scene also hold
light from scene columns to its left and right: a tile cut out of the snapshot is not the snapshot
of a smaller scene, and dividing by the throughput of a tile's own mask would be wrong at its
edges. Rows, though, never mix in this camera. The input planes are therefore made from *strips*:
all the sensor along the dispersion, a few rows across it. They are equal, pixel for pixel, to
those of the whole frame, whatever the inputs are; only the backbone is tiled.

What a tile keeps. Each tile is computed with `halo` pixels of context on every side that is not
the frame's own border (there the backbone pads with zeros, as it does on a whole frame). Next to
a boundary between two tiles their results are crossfaded over `blend` pixels with weights that
sum to one. A backbone whose receptive field has radius r gives the same result tiled and whole
where `halo − blend / 2 ≥ r`. With a shorter halo, or a backbone that sees everything, what is left
is a smooth transition instead of a seam.

A backbone that contains the camera itself (an unfolded iteration) needs all pixels along the
dispersion in every step: it is given whole strips, blended across the dispersion only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.models.fast import FastReconstructor, Precision
from prismask.models.inputs import BLIND, Noise, Observation, network_input
from prismask.models.network import Reconstructor, run_backbone
from prismask.models.posterior import MaskPosterior, perturb, prior_noise
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.progress import Progress

Frame = tuple[int, int]
"""Height and width of the scene."""


@dataclass(frozen=True)
class Tiling:
    """How a frame is cut."""

    tile: int = 352
    """Largest height and width of a tile without its halo, in pixels."""
    halo: int = 24
    """Context computed around a tile and thrown away, in pixels."""
    blend: int = 16
    """Width of the crossfade between neighbours, in pixels; at most twice the halo."""
    align: int = 16
    """Tiles begin and end, halo included, at multiples of this, so that windows and halved
    resolutions inside a backbone fall on the same pixels as on a whole frame."""

    def __post_init__(self) -> None:
        if self.tile < 8:
            raise ConfigError(f"a tile of {self.tile} px is too small; use 8 or more.")
        if self.align < 1:
            raise ConfigError(f"tiles aligned to {self.align} px: use 1 or more.")
        if self.halo < 0 or not 0 <= self.blend <= 2 * self.halo:
            raise ConfigError(
                f"halo {self.halo} px and blend {self.blend} px do not go together: the halo is "
                "0 or more and the blend at most twice the halo."
            )


@dataclass(frozen=True)
class Span:
    """One tile along one axis; all positions are pixels of the frame."""

    first: int
    """Where the computed part begins, halo included."""
    last: int
    """One past its end."""
    weights: Tensor
    """Weight of every computed pixel, `(last − first,)`; 0 in what is thrown away."""

    @property
    def kept(self) -> tuple[int, int]:
        """The part with weight: `frame[kept]` receives `tile[kept − first]`."""
        with_weight = torch.nonzero(self.weights)
        return self.first + int(with_weight[0]), self.first + int(with_weight[-1]) + 1


def spans(length: int, tiling: Tiling) -> list[Span]:
    """Tiles of about equal size that cover `length` pixels; their weights sum to 1 everywhere."""
    count = math.ceil(length / tiling.tile)
    edges = [round(k * length / count) for k in range(count + 1)]
    # A crossfade wider than half a tile would meet the next one.
    blend = min(tiling.blend, min(b - a for a, b in pairwise(edges)) // 2)
    made = []
    for start, stop in pairwise(edges):
        first = max(0, start - tiling.halo) // tiling.align * tiling.align
        last = min(length, -(-(stop + tiling.halo) // tiling.align) * tiling.align)
        centres = torch.arange(first, last, dtype=torch.float32) + 0.5
        weights = torch.ones(last - first)
        if start > 0:
            weights = weights * _rise(centres - start, blend)
        if stop < length:
            weights = weights * _rise(stop - centres, blend)
        made.append(Span(first, last, weights))
    return made


def _rise(distance: Tensor, blend: int) -> Tensor:
    """From 0 to 1 across a boundary; `_rise(d) + _rise(−d) = 1`."""
    if blend == 0:
        return (distance > 0).float()
    return (distance / blend + 0.5).clamp(0, 1)


@dataclass(frozen=True)
class Tile:
    """A tile's result and where it goes."""

    rows: Span
    columns: Span

    def add(self, result: Tensor, onto: Tensor) -> None:
        """Add the weighted result `(…, h, w)` to the frame `onto (…, H, W)`."""
        (top, bottom), (left, right) = self.rows.kept, self.columns.kept
        inner = result[
            ...,
            top - self.rows.first : bottom - self.rows.first,
            left - self.columns.first : right - self.columns.first,
        ]
        down = self.rows.weights[top - self.rows.first : bottom - self.rows.first]
        across = self.columns.weights[left - self.columns.first : right - self.columns.first]
        weights = (down[:, None] * across[None]).to(inner.device, torch.float32)
        onto[..., top:bottom, left:right] += (inner.float() * weights).to(onto.device)


def tiles_by_strip(
    frame: Frame, camera: CASSI, tiling: Tiling, whole: bool = False
) -> Iterator[list[Tile]]:
    """The tiles of a frame, those that share a strip together.

    A strip runs along the dispersion: tiles side by side for a prism that disperses along the
    width, tiles above each other for one along the height. `whole` strips are one tile each, for
    backbones that contain the camera.
    """
    if camera.axis == "width":
        columns = [_all(frame[1])] if whole else spans(frame[1], tiling)
        for row in spans(frame[0], tiling):
            yield [Tile(row, column) for column in columns]
    else:
        rows = [_all(frame[0])] if whole else spans(frame[0], tiling)
        for column in spans(frame[1], tiling):
            yield [Tile(row, column) for row in rows]


def _all(length: int) -> Span:
    return Span(0, length, torch.ones(length))


def strip(values: Tensor, tile: Tile, camera: CASSI) -> Tensor:
    """The strip of a measurement or mask `(…, h, w)` that the tile's inputs are made from."""
    if camera.axis == "width":
        return values[..., tile.rows.first : tile.rows.last, :]
    return values[..., tile.columns.first : tile.columns.last]


def cut(planes: Tensor, tile: Tile, camera: CASSI) -> Tensor:
    """The tile out of the planes of its strip."""
    if camera.axis == "width":
        return planes[..., tile.columns.first : tile.columns.last]
    return planes[..., tile.rows.first : tile.rows.last, :]


# --- the camera itself on large frames ----------------------------------------------------------
#
# Rows across the dispersion never mix, so a camera applied to strips and joined again is the camera
# applied to the whole, without ever holding a sheared copy of a large cube.


LINES = 256
"""Rows (or columns, for a prism along the height) of a strip in which a camera is applied."""


def project(cube: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
    """A x of one `cube (C, H, W)` through `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda part, code: camera.forward(part, code)[0], camera, cube[None], mask)


def throughput(mask: Tensor, camera: CASSI) -> Tensor:
    """Σ_λ shear(m) of `mask (1, 1|C, H, W)`, `(H, L)`."""
    return _joined(lambda code: camera.throughput(code)[0], camera, mask)


def _joined(function: Callable[..., Tensor], camera: CASSI, *images: Tensor) -> Tensor:
    axis = -2 if camera.axis == "width" else -1
    pieces = zip(*(torch.split(image, LINES, dim=axis) for image in images), strict=True)
    return torch.cat([function(*parts) for parts in pieces], dim=axis)


# --- the network on a frame ---------------------------------------------------------------------

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
    precision: str = "float32"
    """What the backbone computed in."""


class Engine:
    """A network prepared for one device; `run` is called once per frame."""

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

    @torch.inference_mode()
    def run(
        self,
        snapshot: Observation,
        *,
        samples: int = 0,
        seed: int = 0,
        levels: tuple[float, float] | None = None,
        bad: Tensor | None = None,
        progress: Progress | None = None,
    ) -> FrameEstimate:
        """One snapshot, `measurement (1, H, L)` → the cube and its spread.

        Half precision is judged against its noise, and some networks take that as an input; where
        it is not known they are given an estimate. They are given `mask_std` if they use it.

        samples: masks drawn from the posterior, or around the mask by a network that has none; 0
            is one pass with the mean mask.
        levels: quantiles over the samples to keep, such as (0.05, 0.95).
        bad: pixels `(H, L)` that say nothing, for networks that work from the snapshot.
        """
        seen, camera = self._usable(snapshot), snapshot.camera
        if bad is not None and seen.noise is not None and self.model.wants_mask_std:
            noise = torch.where(bad.to(self.device), BLIND, seen.noise[:, None, None])
            seen = seen._replace(noise=noise)
        posterior, drawn = self._fast.model.posterior, None
        if samples and posterior.is_random:
            masks = draw_masks(posterior, seen.mask, samples, seed)
        else:
            masks = mean_mask(posterior, seen.mask)
        if samples and not posterior.is_random:
            drawn = mask_noise(seen.mask, samples, seed)
        network = self._network(seen._replace(mask=masks[:1].to(self.device)), snapshot.noise)
        passes = Passes(network, seen._replace(mask=masks), samples > 0, levels, drawn)
        size = seen.scene_size
        # A GPU puts the frame together itself and sends it over once.
        home = self.device if self.device.type == "cuda" else "cpu"
        frames = [torch.zeros(camera.bands, *size, device=home) for _ in passes.outputs]
        tiling = self._tiling_for(samples if levels else 0, size, camera)
        whole = not self.model.can_tile_backbone
        strips = list(tiles_by_strip(size, camera, tiling, whole))
        total, done = sum(len(tiles) for tiles in strips), 0
        for tiles in strips:
            piece = passes.strip(tiles[0])
            for tile in tiles:
                for result, frame in zip(passes.run(piece, tile), frames, strict=True):
                    tile.add(result, frame)
                done += 1
                if progress is not None:
                    progress(done, total, {})
        named = {name: frame.cpu() for name, frame in zip(passes.outputs, frames, strict=True)}
        return FrameEstimate(**named, precision=str(network.dtype).removeprefix("torch."))

    @torch.inference_mode()
    def cubes(self, snapshots: Observation) -> Tensor:
        """Snapshots `(B, H, L)` through one mask, a single pass each → `(B, C, H, W)` float32.

        The same numbers as `run`, on the device; all at once where frames need no tiles.
        """
        chooses = self.precision == "auto" and self._fast.dtype != torch.float32
        if chooses or max(snapshots.scene_size) > self.tiling.tile:
            made = [self.run(one).values for one in snapshots.one_by_one()]
            return torch.stack(made).to(self.device)
        seen = self._usable(snapshots)
        code = mean_mask(self._fast.model.posterior, seen.mask)
        return self._fast.reconstruct(seen._replace(mask=code))

    @property
    def wants_noise(self) -> bool:
        """Whether the network wants to know the noise of a snapshot."""
        return self.model.wants_noise

    def _usable(self, snapshots: Observation) -> Observation:
        """On the device, with the facts that the network makes use of, and no other."""
        measurement, mask, camera, noise, mask_std = snapshots
        measurement, mask = measurement.to(self.device), as_mask_batch(mask).to(self.device)
        if not self.wants_noise:
            noise = None
        elif noise is None:
            noise = estimate_noise(measurement, mask, camera)
        else:
            noise = noise.to(measurement)
        if mask_std is not None:
            mask_std = as_mask_batch(mask_std).to(mask) if self.model.wants_mask_std else None
        return Observation(measurement, mask, camera, noise, mask_std)

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

    def _network(self, seen: Observation, noise: Noise) -> FastReconstructor:
        """The half-precision network, unless what it changes would show above the noise."""
        if self.precision != "auto" or self._fast.dtype == torch.float32 or noise is None:
            return self._fast
        if self._exact is None:
            self._exact = FastReconstructor(self.model, self.device, "float32")
        error = half_error(self._fast, self._exact, seen)
        return self._fast if error <= float(noise) else self._exact


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


def mask_noise(mask: Tensor, count: int, seed: int) -> Tensor:
    """Standard normal numbers `(count, 1|C, H, W)` for a mask `(1, 1|C, H, W)`, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, *mask.shape[1:]), generator=generator)


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

    seen: Observation
    """With one mask `(N, 1|C, h, w)` for each pass."""
    planes: Tensor | None
    """Input planes `(1, K, h, w)` where there is a single pass; they are the largest thing in
    memory, so several passes make them one after the other."""
    noise: Tensor | None = None
    """By which the one mask is moved for each sample, `(N, 1|C, h, w)`."""


@dataclass(frozen=True, eq=False)
class Passes:
    """How a tile is computed."""

    network: FastReconstructor
    seen: Observation
    """The whole frame, with one mask `(N, 1|C, H, W)` for each pass. Its noise is that of the whole
    snapshot: a strip by itself would be judged by what happens to lie in it."""
    sampled: bool = False
    """Whether there are several masks, whose spread is wanted."""
    levels: tuple[float, float] | None = None
    """Quantiles over the masks, if wanted."""
    noise: Tensor | None = None
    """Standard normal numbers `(N, 1|C, H, W)` by which the one mask is moved for each sample,
    where the network itself draws masks (`SnapshotBackbone.redrawn`)."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Results of a tile, by the names that `FrameEstimate` gives them."""
        spread = ("std",) if self.sampled else ()
        ends = () if self.levels is None else ("lower", "upper")
        return ("values", *spread, *ends)

    def strip(self, tile: Tile) -> Strip:
        """What the strip of `tile` shares, cut from the frame."""
        camera = self.seen.camera
        seen = self.seen.with_images(lambda values: strip(values, tile, camera))
        noise = None if self.noise is None else strip(self.noise, tile, camera)
        return Strip(seen, None if self.sampled else self._planes(seen), noise)

    def run(self, piece: Strip, tile: Tile) -> list[Tensor]:
        """The results of a tile, each `(C, h, w)` float32, in the order of `outputs`."""
        if piece.planes is not None:
            return [self._pass(piece.seen, piece.planes, tile)]
        moments, kept = RunningMoments(), []
        for cube in self._samples(piece, tile):
            moments.add(cube)
            if self.levels is not None:
                kept.append(cube.half())
        ends = [] if self.levels is None else quantiles(kept, self.levels)
        if ends:  # in half precision, or of few samples, the mean may lie beyond a quantile
            ends = [torch.minimum(ends[0], moments.mean), torch.maximum(ends[1], moments.mean)]
        return [moments.mean, moments.std, *ends]

    def _samples(self, piece: Strip, tile: Tile) -> Iterator[Tensor]:
        """The cube of each sampled mask."""
        if piece.noise is not None:
            noises = (one.to(self.network.device) for one in torch.split(piece.noise, 1))
            for cubes in self.network.redrawn(piece.seen, noises):
                yield cubes[0]
            return
        for mask in torch.split(piece.seen.mask, 1):
            seen = piece.seen._replace(mask=mask.to(self.network.device))
            yield self._pass(seen, self._planes(seen), tile)

    def _planes(self, seen: Observation) -> Tensor:
        return network_input(self.network.model.inputs, *seen[:4])

    def _pass(self, seen: Observation, planes: Tensor, tile: Tile) -> Tensor:
        """The network's cube of a tile."""
        # Contiguous first: a cut is a view, and convolutions would copy it in a worse layout.
        given = cut(planes, tile, seen.camera).to(self.network.dtype)
        given = given.contiguous(memory_format=torch.channels_last)
        # A backbone that contains the camera is only ever given whole strips.
        return run_backbone(self.network.backbone, given, seen)[0].float()


def half_error(fast: FastReconstructor, exact: FastReconstructor, seen: Observation) -> float:
    """What half precision changes in the re-projected snapshot, rms, on a piece of the middle."""
    camera = seen.camera
    tile = _probe(seen.scene_size, camera, exact.model.can_tile_backbone)
    results = []
    for network in (fast, exact):
        passes = Passes(network, seen)
        results.append(passes.run(passes.strip(tile), tile)[0])
    piece = (tile.rows.last - tile.rows.first, tile.columns.last - tile.columns.first)
    height, width = camera.mask_size(piece)
    top, left = tile.rows.first, tile.columns.first
    code = seen.mask[..., top : top + height, left : left + width]
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
