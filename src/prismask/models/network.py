"""The reconstruction network: a backbone, what it sees, and the mask posterior around it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prismask.errors import ShapeError
from prismask.models.inputs import Noise, network_input
from prismask.models.posterior import MaskPosterior
from prismask.optics.camera import CASSI, as_mask_batch


class Reconstructor(nn.Module):
    """`model(measurement (B, H, L), mask, camera) → cube (B, C, H, W)`.

    θ is `backbone`, φ is `posterior`; the two are trained apart.
    """

    def __init__(
        self,
        backbone: nn.Module,
        posterior: MaskPosterior,
        inputs: tuple[str, ...],
        record: dict[str, Any],
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.posterior = posterior
        self.inputs = inputs
        self.record = record

    @property
    def bands(self) -> int:
        """Bands the network was built for."""
        return int(self.record["bands"])

    @property
    def can_tile_backbone(self) -> bool:
        """Whether the backbone works on any piece of its input planes.

        One that contains the camera needs all pixels along the dispersion: it can be given strips
        of the measurement and the mask, but no tiles of the planes.
        """
        return not wants_physics(self.backbone)

    def forward(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise = None
    ) -> Tensor:
        """One deterministic pass with the posterior's mean mask; a mirror ensemble has several."""
        if camera.bands != self.bands:
            raise ShapeError(
                f"this network was built for {self.bands} bands, the camera has {camera.bands}. "
                f"Resample the spectrum to {self.bands} bands, or use a solver such as gap-tv."
            )
        mean = self.posterior.mean(as_mask_batch(mask))
        return self.reconstruct(measurement, mean, camera, noise)

    def reconstruct(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, noise: Noise = None
    ) -> Tensor:
        """f_θ(y, m') for exactly this mask, `(B|1, 1|C, H, W)`; what training calls.

        noise: standard deviation `(B|1,)` of the measurement's noise, for networks that want to
            know; None: estimated from the measurement.
        """
        seen = network_input(self.inputs, measurement, mask, camera, noise)
        return run_backbone(self.backbone, seen, measurement, mask, camera)

    def sample(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, generator: torch.Generator
    ) -> Tensor:
        """One pass with a mask drawn from q_φ, a fresh one for each measurement."""
        drawn, _ = self.posterior.sample(
            as_mask_batch(mask), measurement.shape[0], generator=generator
        )
        return self.reconstruct(measurement, drawn, camera)


def compile_parts(backbone: nn.Module, **how: Any) -> bool:
    """Compile what repeats inside a backbone, in place; False where it names nothing that does.

    A backbone lists such classes in `compiled_alone`. Two dozen equal layers compiled as a whole
    take minutes; one by one, PyTorch recognises in all but the first what it has compiled already.
    how: of `torch.compile`, such as `backend`.
    """
    kinds: tuple[type[nn.Module], ...] = getattr(backbone, "compiled_alone", ())
    for part in backbone.modules():
        if isinstance(part, kinds):
            part.compile(dynamic=False, **how)
    return bool(kinds)


def wants_physics(backbone: nn.Module) -> bool:
    """Whether the backbone contains the camera."""
    return bool(getattr(backbone, "wants_physics", False))


def run_backbone(
    backbone: nn.Module, seen: Tensor, measurement: Tensor, mask: Tensor, camera: CASSI
) -> Tensor:
    """A backbone on its input planes `seen (B, K, H, W)`, with the physics if it wants them."""
    physics = (measurement, mask, camera) if wants_physics(backbone) else ()
    cube: Tensor = backbone(seen, *physics)
    return cube
