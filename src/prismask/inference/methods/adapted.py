"""Learning around a network: its first cube before, a look at the residual after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from prismask.inference.checks import Finding
from prismask.inference.engine.frame import Engine, Progress
from prismask.inference.engine.strips import project
from prismask.inference.methods.adaptation import adapt
from prismask.optics.camera import CASSI

NOT_WORSE = 1.2
"""Most that the residual may grow when a network learns its scene."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A network for one snapshot, and what there is to say about what it has learned."""

    engine: Engine
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def learn(
    engine: Engine,
    signal: Tensor,
    mask: Tensor,
    camera: CASSI,
    noise_std: float,
    steps: int,
    seed: int,
    progress: Progress | None,
) -> Learned:
    """The network after it has learned the scene, unless that made its cube explain less."""

    def seen_by(one: Engine) -> Tensor:
        return one.run(signal, mask, camera, noise_std=noise_std).values

    first = seen_by(engine)
    taught = adapt(
        engine.model, first, mask, camera, noise_std=noise_std, steps=steps, seed=seed,
        device=engine.device, progress=progress,
    )  # fmt: skip
    changed = engine.with_model(taught.model)
    before, after = (
        float((signal - project(cube, mask, camera)).norm()) for cube in (first, seen_by(changed))
    )
    if after > NOT_WORSE * before:
        text = (
            f"learning the scene made the cube explain its snapshot worse ({after / before:.2f} "
            "times the residual), so the network is used as it was: does the mask belong to this "
            "snapshot?"
        )
        return Learned(engine, findings=(Finding("warning", text),))
    text = (
        f"the network learned this scene from its own cube in {steps} steps: its error there fell "
        f"from {100 * taught.before:.2g} to {100 * taught.after:.2g} % of white. The error bars "
        "are those of the network before."
    )
    return Learned(changed, {"adapted_steps": steps}, (Finding("note", text),))
