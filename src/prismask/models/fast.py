"""The same network, faster: half precision and the layout convolutions like.

What is lost is printed by benchmarks/train_step.py beside what is gained. Half precision is
float16 on CUDA (11 bits, so its rounding stays far below the reconstruction error) and bfloat16
on CPUs that multiply it natively.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prismask.models.inputs import UNKNOWN, Noise, network_input
from prismask.models.mirror_ensemble import combined, ensemble_size, run_ensemble
from prismask.models.network import Reconstructor, last_look, works_from_snapshot
from prismask.models.replay import Replayed
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
        self.ensemble = ensemble_size(self.record)
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
        """`measurement (B, H, L)` → cube `(B, C, H, W)`, float32: the mean of all answers."""
        mean = self.model.posterior.mean(as_mask_batch(mask))
        return self.reconstruct(measurement, mean, camera, noise, mask_std)

    @torch.inference_mode()
    def once(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """The first answer alone, for work in which many cubes are made and thrown away."""
        mean = self.model.posterior.mean(as_mask_batch(mask))
        return self.answers(measurement, mean, camera, noise, ensemble=1, mask_std=mask_std)[0]

    @torch.inference_mode()
    def reconstruct(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """f_θ(y, m') for exactly this mask."""
        return combined(self.answers(measurement, mask, camera, noise, mask_std=mask_std))[0]

    @torch.inference_mode()
    def answers(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        ensemble: int | None = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """Every answer for exactly this mask, `(ensemble, B, C, H, W)`; ensemble: None for all."""
        size = ensemble or self.ensemble
        seen = network_input(self.model.inputs, measurement, mask, camera, noise)
        seen = seen.to(self.dtype, memory_format=torch.channels_last)
        told = self._told(measurement, mask, camera, noise, mask_std)
        run = partial(_run, self.backbone, camera, size)
        return self._replayed(run, (camera, size), seen, measurement, mask, *told).float()

    @torch.inference_mode()
    def before_projection(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """As `Reconstructor.before_projection`, with the posterior's mean mask."""
        if not works_from_snapshot(self.backbone):
            return self.once(measurement, mask, camera, noise)
        mean = self.model.posterior.mean(as_mask_batch(mask))
        told = self._told(measurement, mean, camera, noise, mask_std)
        run = partial(_look, self.backbone, camera)
        return self._replayed(run, (camera, "look"), measurement, mean, *told).float()

    def _told(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise,
        mask_std: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Noise `(B|1,)` and mask spread for a backbone that works from the snapshot, or nothing.

        Tensors in any case, so that a recording serves what is told and what is not.
        """
        if not works_from_snapshot(self.backbone):
            return ()
        if noise is None:
            noise = estimate_noise(measurement, mask, camera)
        if mask_std is None:
            mask_std = torch.full_like(as_mask_batch(mask), UNKNOWN)
        return noise.to(measurement), as_mask_batch(mask_std).to(measurement)


def _look(
    backbone: nn.Module,
    camera: CASSI,
    measurement: Tensor,
    mask: Tensor,
    noise: Noise = None,
    mask_std: Tensor | None = None,
) -> Tensor:
    return last_look(backbone, measurement, mask, camera, noise, mask_std)


def _run(
    backbone: nn.Module,
    camera: CASSI,
    size: int,
    seen: Tensor,
    measurement: Tensor,
    mask: Tensor,
    noise: Noise = None,
    mask_std: Tensor | None = None,
) -> Tensor:
    return run_ensemble(backbone, seen, measurement, mask, camera, size, noise, mask_std)
