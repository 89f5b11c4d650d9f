"""The same network, faster: half precision, the layout convolutions like, kernels replayed.

benchmarks/train_step.py prints what is lost and what is gained. Half precision is
float16 on CUDA (11 bits, so its rounding stays far below the reconstruction error) and bfloat16
on CPUs that multiply it natively.

A small snapshot keeps a GPU busy for less time than Python needs to start its kernels. A CUDA
graph starts them all at once. The first call of a shape runs as usual (most shapes come once),
the second records, later ones replay. Elsewhere than on CUDA nothing is recorded.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from prismask.models.inputs import UNKNOWN, Noise, Observation, network_input
from prismask.models.network import (
    Reconstructor,
    SnapshotBackbone,
    run_backbone,
    works_from_snapshot,
)
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise

Precision = Literal["auto", "float32", "half"]


def half_dtype(device: torch.device) -> torch.dtype | None:
    """The 16-bit type that pays on this device, or None."""
    if device.type == "cuda":
        return torch.float16
    if device.type == "cpu" and _cpu_has_bfloat16():
        return torch.bfloat16
    return None


def _cpu_has_bfloat16() -> bool:
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    tiles = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool((check and check()) or (tiles and tiles()))


class FastReconstructor:
    """A copy of a model prepared for inference on one device; same calling convention."""

    def __init__(
        self, model: Reconstructor, device: torch.device, precision: Precision = "auto"
    ) -> None:
        self.model = copy.deepcopy(model).to(device).eval().requires_grad_(False)
        self.device = device
        self.dtype = (half_dtype(device) or torch.float32) if precision != "float32" else None
        self.dtype = self.dtype or torch.float32
        backbone: nn.Module = self.model.backbone.to(self.dtype)
        if device.type in ("cuda", "cpu"):
            backbone = backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.backbone = backbone
        self.record: dict[str, Any] = self.model.record
        self._replayed = Replayed()

    @torch.inference_mode()
    def __call__(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """`measurement (B, H, L)` → cube `(B, C, H, W)`, float32."""
        seen = Observation(measurement, mask, camera, noise, mask_std)
        return self.reconstruct(self._with_mean_mask(seen))

    @torch.inference_mode()
    def reconstruct(self, seen: Observation) -> Tensor:
        """f_θ(y, m') for exactly this mask."""
        planes = network_input(self.model.inputs, *seen[:4])
        planes = planes.to(self.dtype, memory_format=torch.channels_last)
        run = partial(_run, self.backbone, seen.camera)
        return self._replayed(run, seen.camera, planes, *self._tensors(seen)).float()

    def redrawn(self, seen: Observation, noises: Iterable[Tensor]) -> Iterator[Tensor]:
        """A cube for each mask drawn around the given one (`SnapshotBackbone.redrawn`)."""
        for cubes in cast("SnapshotBackbone", self.backbone).redrawn(seen, noises):
            yield cubes.float()

    @torch.inference_mode()
    def before_projection(self, seen: Observation) -> Tensor:
        """As `Reconstructor.before_projection`, with the posterior's mean mask."""
        if not works_from_snapshot(self.backbone):
            return self.reconstruct(self._with_mean_mask(seen))
        run = partial(_before_projection, self.backbone, seen.camera)
        given = self._tensors(self._with_mean_mask(seen))
        return self._replayed(run, (seen.camera, "before projection"), *given).float()

    def _with_mean_mask(self, seen: Observation) -> Observation:
        return seen._replace(mask=self.model.posterior.mean(as_mask_batch(seen.mask)))

    def _tensors(self, seen: Observation) -> tuple[Tensor, ...]:
        """Measurement and mask; noise and mask_std, too, if the backbone works from the snapshot.

        Those are then there in any case, so that a recording serves with these facts and without.
        """
        measurement, mask, camera, noise, mask_std = seen
        if not works_from_snapshot(self.backbone):
            return measurement, mask
        if noise is None:
            noise = estimate_noise(measurement, mask, camera)
        if mask_std is None:
            mask_std = torch.full_like(as_mask_batch(mask), UNKNOWN)
        return measurement, mask, noise.to(measurement), as_mask_batch(mask_std).to(measurement)


# Of tensors alone, as a recording needs them.


def _before_projection(
    backbone: nn.Module, camera: CASSI, measurement: Tensor, mask: Tensor, *facts: Tensor
) -> Tensor:
    seen = Observation(measurement, mask, camera, *facts)
    return cast("SnapshotBackbone", backbone).before_projection(seen)


def _run(
    backbone: nn.Module, camera: CASSI, planes: Tensor,
    measurement: Tensor, mask: Tensor, *facts: Tensor,
) -> Tensor:  # fmt: skip
    return run_backbone(backbone, planes, Observation(measurement, mask, camera, *facts))


log = logging.getLogger(__name__)

MOST_SHAPES = 4
"""Recordings kept at once; each holds the memory of one pass."""
Refused = Callable[[str], None]
"""Takes the reason why something could not be recorded."""
LARGEST = 2**27
"""Input elements above which kernels last longer than their starts, so nothing is gained."""


@dataclass(frozen=True)
class Recording:
    """A graph with the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Tensor

    def __call__(self, *given: Tensor) -> Tensor:
        """Replay on new values."""
        for place, values in zip(self.inputs, given, strict=True):
            place.copy_(values)
        self.graph.replay()
        # The next replay writes to the same memory.
        return self.output.clone()


class Replayed:
    """A function of CUDA tensors → tensor, recorded for the shapes that come again."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._recordings: dict[Hashable, Recording | None] = {}
        self.refusals: list[str] = []
        """Why something could not be recorded; it runs as it is then."""

    def __call__(self, function: Callable[..., Tensor], what: Hashable, *given: Tensor) -> Tensor:
        """`function(*given)`; `what` names everything else that the result depends on."""
        if not all(t.is_cuda for t in given) or sum(t.numel() for t in given) > LARGEST:
            return function(*given)
        key = (what, tuple((t.shape, t.dtype, t.stride(), t.device) for t in given))
        if key not in self._recordings:
            self._counts[key] = self._counts.get(key, 0) + 1
            if self._counts[key] < 2 or len(self._recordings) >= MOST_SHAPES:
                return function(*given)
            self._recordings[key] = _record(function, given, self.refusals.append)
        recording = self._recordings[key]
        return function(*given) if recording is None else recording(*given)


def _record(
    function: Callable[..., Tensor], given: tuple[Tensor, ...], refused: Refused
) -> Recording | None:
    """One recording, or None where the function does something a graph cannot hold."""
    inputs = tuple(t.clone() for t in given)
    outputs: list[Tensor] = []
    graph = capture(lambda: outputs.append(function(*inputs)), refused=refused)
    return None if graph is None else Recording(graph, inputs, outputs[0])


def _warn(reason: str) -> None:
    log.warning("this cannot be recorded as a CUDA graph and runs slower: %s", reason)


def capture(
    run: Callable[[], None], stream: torch.cuda.Stream | None = None, refused: Refused = _warn
) -> torch.cuda.CUDAGraph | None:
    """What `run` starts, recorded but not done; None where a graph cannot hold it.

    stream: the one it was warmed up on, whose libraries' workspaces the recording then uses.
    refused: called with the reason where it cannot.
    """
    current = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads of a server go on meanwhile; only this one is bound by the recording.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            run()
    except RuntimeError as reason:
        torch.cuda.set_stream(current)
        torch.cuda.synchronize()
        refused(str(reason))
        return None
    return graph
