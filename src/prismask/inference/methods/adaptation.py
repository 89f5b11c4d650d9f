"""A network that learns the scene in front of it, from its own cube.

A network knows the scenes it was trained on better than any other. Its cube x̂ of a new snapshot is
not the truth, but a scene much like it, and one whose truth is known when it is photographed again:
cut, turned and mirrored (T), coded by the same mask, with the same noise. For a moment the training
goes on with such pieces,

    θ ← θ − α ∂/∂θ ‖f_θ(A T x̂ + n) − T x̂‖,

and what is learned about the materials and edges of this scene also holds for the snapshot itself.
Equivariant imaging (Chen, Tachella, Davies 2021) does the same with a gradient through x̂ as well;
x̂ held is a third of the work, and enough for a network that has been trained. On another scene such
a network is worse than before, so it is used once and forgotten.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prismask.models.fast import FastReconstructor, Precision
from prismask.models.inputs import Noise
from prismask.models.network import Reconstructor
from prismask.optics.camera import CASSI, as_mask_batch
from prismask.optics.noise import estimate_noise
from prismask.optics.randomness import seeded

Progress = Callable[[int, int, Mapping[str, Any]], None]

PIECE = 96
"""Height and width of the pieces, or of the frame where that is smaller."""
PIECES = 2
"""Pieces a step."""
CHOICES = 4
"""Places that are looked at for each; the one where most is to be seen is taken, because a frame
that is mostly dark would teach the network the dark."""
RATE = 5e-5
"""Learning rate at its highest: it rises over the first steps and falls to zero at the last."""
RISE = 10
"""Steps over which it rises."""
TINY = 1e-12
"""Added under the root, whose slope has no end at zero: dark pieces have no error."""


@dataclass(frozen=True, eq=False)
class Adapted:
    """A network that has learned a scene."""

    model: Reconstructor
    before: float
    """Mean loss of the first tenth of the steps, in the cube's units."""
    after: float
    """Of the last tenth."""


def adapt(
    model: Reconstructor,
    cube: Tensor,
    mask: Tensor,
    camera: CASSI,
    *,
    noise_std: float = 0.0,
    steps: int,
    seed: int = 0,
    device: torch.device | None = None,
    progress: Progress | None = None,
) -> Adapted:
    """A copy of `model` that went on learning from its own `cube (C, H, W)` for some steps.

    mask: the one the snapshot was taken through, `(1, 1|C, H, W)`.
    noise_std: of the snapshot; pieces get the same, and networks that want to know are told.
    """
    device = device or torch.device("cpu")
    learner = copy.deepcopy(model).to(device).eval().requires_grad_(False)
    backbone = learner.backbone.requires_grad_(True)
    optimiser = torch.optim.Adam(backbone.parameters(), lr=RATE, betas=(0.9, 0.99))
    pieces = _pieces(cube.clamp_min(0).to(device), mask.to(device), camera, noise_std, seed)
    told: Noise = torch.full((PIECES,), noise_std, device=device)
    losses = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / RISE) * (1 - step / steps)
        truth, code, snapshot = next(pieces)
        shown = learner.posterior.mean(code)
        with (
            torch.enable_grad(),
            torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"),
        ):
            estimate = learner.reconstruct(snapshot, shown, camera, told)
            error = (estimate.float() - truth).square().mean((1, 2, 3))
            loss = (error + TINY).sqrt().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if progress is not None:
            progress(step + 1, steps, {"stage": "learning the scene"})
    few = max(1, steps // 10)
    first, last = (float(torch.stack(part).mean()) for part in (losses[:few], losses[-few:]))
    return Adapted(learner.requires_grad_(False), first, last)


class Adapting:
    """Called like a network, and learns every scene before it gives its cube."""

    def __init__(
        self, model: Reconstructor, device: torch.device, precision: Precision, steps: int
    ) -> None:
        self.model = model
        self.device = device
        self.precision: Precision = precision
        self.steps = steps
        self._before = FastReconstructor(model, device, precision)

    def __call__(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        """`measurement (B, H, L)` → cube `(B, C, H, W)`, float32."""
        return torch.cat([self._one(shot, mask, camera) for shot in torch.split(measurement, 1)])

    def _one(self, measurement: Tensor, mask: Tensor, camera: CASSI) -> Tensor:
        noise = estimate_noise(measurement, mask, camera)
        found = adapt(
            self.model,
            self._before(measurement, mask, camera, noise)[0],
            as_mask_batch(mask),
            camera,
            noise_std=float(noise),
            steps=self.steps,
            device=self.device,
        )
        after = FastReconstructor(found.model, self.device, self.precision)
        return after(measurement, mask, camera, noise)


def _pieces(
    cube: Tensor, mask: Tensor, camera: CASSI, noise_std: float, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless pieces of the scene, each with a piece of the mask and its snapshot."""
    numbers = seeded(seed)
    side = min(PIECE, *cube.shape[-2:])
    size, code_size = (side, side), camera.mask_size((side, side))

    def drawn(largest: int) -> int:
        return int(torch.randint(largest + 1, (), generator=numbers))

    def piece(whole: Tensor, height: int, width: int) -> Tensor:
        top, left = drawn(whole.shape[-2] - height), drawn(whole.shape[-1] - width)
        return whole[..., top : top + height, left : left + width]

    def piece_with_something() -> Tensor:
        offered = [piece(cube, *size) for _ in range(CHOICES)]
        return max(offered, key=lambda one: float(one.std((-2, -1), correction=0).mean()))

    while True:
        truth = torch.stack([piece_with_something() for _ in range(PIECES)])
        truth = torch.rot90(truth.flip(-2) if drawn(1) else truth, drawn(3), (-2, -1))
        code = piece(mask, *code_size)
        snapshot = camera.forward(truth, code)
        noise = torch.randn(snapshot.shape, generator=numbers).to(snapshot.device)
        yield truth, code, snapshot + noise_std * noise
