"""The reconstruction network: a backbone, the mask posterior around it, and its mirror ensemble.

There are three kinds of backbone. Most map input planes to a cube. One that sets `wants_physics`
is also given the measurement, the mask and the camera. One that sets `works_from_snapshot` has no
input planes at all: it is called as `SnapshotBackbone` says and serves any band count.

A mirror ensemble is a network run on a snapshot and on its mirror image. A snapshot mirrored across
the dispersion is the snapshot of the mirrored scene through the mirrored mask: the camera is the
same. Networks do not know that. Run on both, their two cubes differ, and

- their mean is closer to the truth than either, for twice the time;
- how much they differ says where neither should be trusted (`inference.intervals.evidence`).

The record of some weights says in `mirror_ensemble` how many members they are to have: 1 or 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from prismask.errors import ConfigError, ShapeError
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

    def forward(
        self,
        measurement: Tensor,
        mask: Tensor,
        camera: CASSI,
        noise: Noise = None,
        mask_std: Tensor | None = None,
    ) -> Tensor:
        """One deterministic pass with the posterior's mean mask; a mirror ensemble has several."""
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
            return last_stage(self.backbone, seen)
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


def last_stage(backbone: nn.Module, seen: Observation) -> Tensor:
    """The cube `(B, C, H, W)` of a `SnapshotBackbone`'s last stage, before its last step."""
    return cast("SnapshotBackbone", backbone).estimates(seen).cubes[-2:][0]


def run_backbone(backbone: nn.Module, planes: Tensor, seen: Observation) -> Tensor:
    """A backbone on its input `planes (B, K, H, W)`, with the physics if it wants them."""
    if works_from_snapshot(backbone):
        return cast("SnapshotBackbone", backbone)(*seen)
    cube: Tensor = backbone(planes, *(seen[:3] if wants_physics(backbone) else ()))
    return cube


SIZES = (1, 2)
"""As it is; also mirrored across the dispersion."""
KEY, OLD_KEY = "mirror_ensemble", "ways"
"""The number in a record, and what weights of the first versions call it."""


def ensemble_size(record: Mapping[str, Any]) -> int:
    """How many members the mirror ensemble of a record's weights has."""
    key = OLD_KEY if OLD_KEY in record and KEY not in record else KEY
    size = record.get(key, 1)
    if isinstance(size, bool) or size not in SIZES:
        raise ConfigError(
            f"{key} = {size!r}: a network is run once (1), or also on the mirrored snapshot (2)."
        )
    return int(size)


def run_ensemble(backbone: nn.Module, planes: Tensor, seen: Observation, size: int) -> Tensor:
    """Every answer of a backbone to its input `planes (B, K, H, W)`: `(size, B, C, H, W)`."""
    answers = [run_backbone(backbone, planes, seen)]
    if size > 1:
        across = -2 if seen.camera.axis == "width" else -1
        # The planes of the mirrored snapshot are the mirrored planes: nothing in them looks across.
        mirrored = seen.with_images(lambda image: image.flip(across))
        answers.append(run_backbone(backbone, planes.flip(across), mirrored).flip(across))
    return torch.stack(answers) if size > 1 else answers[0][None]


def combined(answers: Tensor) -> tuple[Tensor, Tensor | None]:
    """Mean and standard deviation over `(size, …)`; no deviation where there is one answer."""
    if len(answers) == 1:
        return answers[0], None
    first, second = answers
    # What `std` says of two numbers, in a tenth of its time on a CPU.
    return answers.mean(0), (first - second).abs() * math.sqrt(0.5)
