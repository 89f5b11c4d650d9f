"""The reconstruction network: a backbone, and the mask posterior around it.

There are three kinds of backbone. Most map input planes to a cube. One that sets `wants_physics`
is also given the measurement, the mask and the camera. One that sets `works_from_snapshot` has no
input planes at all: it is called as `SnapshotBackbone` says and serves any band count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from prismask.errors import ShapeError
from prismask.models.inputs import Noise, Observation, network_input
from prismask.models.posterior import MaskPosterior
from prismask.optics.camera import CASSI, as_mask_batch


class Estimates(NamedTuple):
    """Everything a snapshot backbone says on its way, for a loss at every stage."""

    cubes: tuple[Tensor, ...]
    """One cube `(B, C, H, W)` per stage; the last is the answer."""
    masks: tuple[Tensor, ...]
    """The masks `(B, 1|C, H, W)` of those stages; none where they keep to the given one."""
    mask_std: Tensor | None
    """How far the last of those masks may still be wrong, `(B, 1, H, W)`."""


class SnapshotBackbone(Protocol):
    """A backbone that works from the snapshot itself, with a camera of any band count.

    noise: standard deviation of the measurement's noise in its units, `(B|1,)` or that of each
        pixel `(B|1, H, L)`, which is `models.inputs.BLIND` where one says nothing; None: estimated.
    mask_std: rms error of the given mask `(B|1, 1|C, H, W)` in its units, negative where it is not
        known; None: known nowhere.
    """

    works_from_snapshot: bool

    def __call__(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """`measurement (B, H, L)`, `mask (B|1, 1|C, H, W)` → cube `(B, C, H, W)`."""
        ...

    def estimates(self, seen: Observation) -> Estimates:
        """What every stage says."""
        ...

    def before_projection(self, seen: Observation) -> Tensor:
        """The cube `(B, C, H, W)` before a last step that would fit it to any mask."""
        ...

    def redrawn(self, seen: Observation, noises: Iterable[Tensor]) -> Iterator[Tensor]:
        """A cube `(B, C, H, W)` for each mask drawn around the one that is given.

        noises: standard normal, like the mask `(B|1, 1|C, H, W)`; a mask is moved by as much of
            it as is known of its errors. Whatever does not depend on the mask is computed once.
        """
        ...


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
        self.source: str | None = None
        """The file that it was loaded from, for messages."""

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
        return not (wants_physics(self.backbone) or works_from_snapshot(self.backbone))

    @property
    def wants_noise(self) -> bool:
        """Whether it makes use of what is known about the measurement's noise."""
        return "noise" in self.inputs or works_from_snapshot(self.backbone)

    @property
    def wants_mask_std(self) -> bool:
        """Whether it makes use of how far the mask may be wrong."""
        return works_from_snapshot(self.backbone)

    @property
    def can_draw_masks(self) -> bool:
        """Whether it gives cubes for masks around a given one.

        With a posterior, which has learned how wrong masks are, or by itself.
        """
        return self.posterior.is_random or works_from_snapshot(self.backbone)

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """One deterministic pass with the posterior's mean mask."""
        if camera.bands != self.bands and not works_from_snapshot(self.backbone):
            raise ShapeError(
                f"this network was built for {self.bands} bands, the camera has {camera.bands}. "
                f"Resample the spectrum to {self.bands} bands, or use a solver such as gap-tv."
            )
        mean = self.posterior.mean(as_mask_batch(mask))
        return self.reconstruct(Observation(measurement, mean, camera, noise, mask_std))

    def reconstruct(self, seen: Observation) -> Tensor:
        """f_θ(y, m') for exactly this mask; what is not known about it is estimated."""
        return run_backbone(self.backbone, network_input(self.inputs, *seen[:4]), seen)

    def estimates(self, seen: Observation) -> Estimates:
        """What every stage says, for a loss at each of them; other backbones have one stage."""
        if works_from_snapshot(self.backbone):
            return cast("SnapshotBackbone", self.backbone).estimates(seen)
        return Estimates((self.reconstruct(seen),), (), None)

    def before_projection(self, seen: Observation) -> Tensor:
        """The cube for exactly this mask, before a last step that would fit it to any mask.

        How little it explains says how wrong the mask is. Most networks have no such step.
        """
        if works_from_snapshot(self.backbone):
            return cast("SnapshotBackbone", self.backbone).before_projection(seen)
        return self.reconstruct(seen)

    def sample(
        self, measurement: Tensor, mask: Tensor, camera: CASSI, generator: torch.Generator
    ) -> Tensor:
        """One pass with a mask drawn from q_φ, a fresh one for each measurement."""
        drawn, _ = self.posterior.sample(
            as_mask_batch(mask), measurement.shape[0], generator=generator
        )
        return self.reconstruct(Observation(measurement, drawn, camera))


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


def works_from_snapshot(backbone: nn.Module) -> bool:
    """Whether the backbone is called as `SnapshotBackbone` says."""
    return bool(getattr(backbone, "works_from_snapshot", False))


def run_backbone(backbone: nn.Module, planes: Tensor, seen: Observation) -> Tensor:
    """A backbone on its input `planes (B, K, H, W)`, with the physics if it wants them."""
    if works_from_snapshot(backbone):
        return cast("SnapshotBackbone", backbone)(*seen)
    cube: Tensor = backbone(planes, *(seen[:3] if wants_physics(backbone) else ()))
    return cube
