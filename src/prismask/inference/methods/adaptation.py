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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from prismask.inference.engine import Engine, project
from prismask.inference.findings import Finding
from prismask.models.inputs import UNKNOWN, Noise, Observation
from prismask.models.network import Reconstructor
from prismask.models.posterior import perturb
from prismask.optics.camera import CASSI
from prismask.optics.randomness import seeded
from prismask.progress import Progress

PIECE = 96
"""Height and width of the pieces, or of the frame where that is smaller."""
PIECES = 2
"""Pieces per step."""
CHOICES = 4
"""Positions that are tried for each; the one with most contrast is taken, because a frame that is
mostly dark would teach the network the dark."""
RATE = 5e-5
"""Learning rate at its highest: it rises over the first steps and falls to zero at the last."""
RISE = 10
"""Steps over which it rises."""
TINY = 1e-12
"""Added under the root, whose gradient is infinite at zero: dark pieces have no error."""
MOST_RESIDUAL_GROWTH = 1.2
"""Factor by which the residual may grow when a network learns its scene."""


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
    mask_std: Tensor | None = None,
) -> Adapted:
    """A copy of `model` that went on learning from its own `cube (C, H, W)` for some steps.

    mask: the one the snapshot was taken through, `(1, 1|C, H, W)`.
    noise_std: of the snapshot; pieces get the same, and networks that take it as an input know it.
    mask_std: how far the mask may be wrong, of its shape or one plane: pieces are taken through a
        mask that differs by as much, and the network is given that; None: unknown.
    """
    device = device or torch.device("cpu")
    learner = copy.deepcopy(model).to(device).eval().requires_grad_(False)
    backbone = learner.backbone.requires_grad_(True)
    optimiser = torch.optim.Adam(backbone.parameters(), lr=RATE, betas=(0.9, 0.99))
    told = None if mask_std is None else mask_std.to(device)
    pieces = _pieces(cube.clamp_min(0).to(device), mask.to(device), camera, noise_std, seed, told)
    noise: Noise = torch.full((PIECES,), noise_std, device=device)
    losses = []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / RISE) * (1 - step / steps)
        truth, code, snapshot, spread = next(pieces)
        shown = learner.posterior.mean(code)
        with (
            torch.enable_grad(),
            torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"),
        ):
            estimate = learner.reconstruct(snapshot, shown, camera, noise, spread)
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


@dataclass(frozen=True, eq=False)
class Learned:
    """A network for one snapshot, and what there is to say about what it has learned."""

    engine: Engine
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def learn(
    engine: Engine, seen: Observation, steps: int, seed: int, progress: Progress | None
) -> Learned:
    """The network after it has learned the scene of one snapshot, unless that made its cube
    explain less."""
    first, noise = engine.run(seen).values, 0.0 if seen.noise is None else float(seen.noise)
    taught = adapt(
        engine.model, first, seen.mask, seen.camera, noise_std=noise, steps=steps, seed=seed,
        device=engine.device, progress=progress, mask_std=seen.mask_std,
    )  # fmt: skip
    changed = engine.with_model(taught.model)
    before, after = (
        float((seen.measurement[0] - project(cube, seen.mask, seen.camera)).norm())
        for cube in (first, changed.run(seen).values)
    )
    if after > MOST_RESIDUAL_GROWTH * before:
        text = (
            f"learning the scene made the cube explain its snapshot worse ({after / before:.2f} "
            "times the residual), so the network is used as it was: does the mask belong to this "
            "snapshot?"
        )
        return Learned(engine, findings=(Finding("warning", text),))
    went = "fell" if taught.after < taught.before else "did not fall: it went"
    text = (
        f"the network learned this scene from its own cube in {steps} steps: its error there "
        f"{went} from {100 * taught.before:.2g} to {100 * taught.after:.2g} % of white. The error "
        "bars are those of the network before."
    )
    return Learned(changed, {"adapted_steps": steps}, (Finding("note", text),))


def _pieces(
    cube: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float,
    seed: int,
    mask_std: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Endless pieces of the scene, each with a piece of the mask, a snapshot, the stated spread."""
    numbers = seeded(seed)
    side = min(PIECE, *cube.shape[-2:])
    size, code_size = (side, side), camera.mask_size((side, side))
    told = torch.full_like(mask[:, :1], UNKNOWN) if mask_std is None else mask_std
    both, planes = torch.cat([mask, told], dim=1), mask.shape[1]

    def drawn(largest: int) -> int:
        return int(torch.randint(largest + 1, (), generator=numbers))

    def piece(whole: Tensor, height: int, width: int) -> Tensor:
        top, left = drawn(whole.shape[-2] - height), drawn(whole.shape[-1] - width)
        return whole[..., top : top + height, left : left + width]

    def piece_with_contrast() -> Tensor:
        offered = [piece(cube, *size) for _ in range(CHOICES)]
        return max(offered, key=lambda one: float(one.std((-2, -1), correction=0).mean()))

    while True:
        truth = torch.stack([piece_with_contrast() for _ in range(PIECES)])
        truth = torch.rot90(truth.flip(-2) if drawn(1) else truth, drawn(3), (-2, -1))
        cut = piece(both, *code_size)
        code, spread = cut[:, :planes], cut[:, planes:]
        met = code
        if bool((spread > 0).any()):
            off = torch.randn(code.shape, generator=numbers).to(code)
            met = perturb(code, spread.clamp_min(0), off)
        snapshot = camera.forward(truth, met)
        noise = torch.randn(snapshot.shape, generator=numbers).to(snapshot.device)
        yield truth, code, snapshot + noise_std * noise, spread
