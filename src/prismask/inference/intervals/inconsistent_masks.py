"""The size of the interval where a snapshot contradicts its mask.

With a mask that is not as calibrated errors grow by more than their predicted scale does. Snapshots
that say so (`inference.alignment.probe`) have quantiles of their own (`class_fit`): those of
snapshots that were taken with the mask moved, out of focus, or behind another dispersion, and that
were found inconsistent.

What this promises: over faults like those drawn here that are found, 90 % of the values lie
inside, on average over faults and scenes. Nothing for those that are not: they keep the interval's
own quantiles, which were fitted to all masks of `calibrate`, some of them misplaced. How often a
right mask was found inconsistent is stored beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.engine.frame import Engine
from prismask.inference.intervals.class_fit import (
    Shot,
    crops_by_scene,
    fitted_kinds,
    with_class,
    with_unit_interval,
)
from prismask.inference.intervals.faults import BLURS, KINDS, SHIFTS, SPREADS, draw_fault
from prismask.inference.intervals.fit import noisy
from prismask.inference.intervals.model import INCONSISTENT_MASKS, Interval
from prismask.inference.reconstruct import Reconstruction
from prismask.models.weights import trained_camera
from prismask.optics.camera import CASSI
from prismask.progress import Progress
from prismask.scenes.records import Cube


@torch.inference_mode()
def calibrate_inconsistent_masks(
    engine: Engine,
    scenes: Tensor,
    masks: Tensor,
    count: int,
    *,
    scene_of: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    noise_std: tuple[float, float] = (0.0, 0.0),
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The record `interval` of the engine's network, with quantiles for inconsistent masks.

    Without them if the network cannot tell: then masks will not be probed.
    scenes: `(N, C, H, W)`; masks: `(M, 1, h, w)`, drawn by chance; scene_of: as in `calibrate`.
    count: faults that every scene meets, in one of its crops; as many right masks are probed.
    noise_std: as in `calibrate`.
    """
    stored = dict(engine.model.record.get("interval") or {})
    kinds = fitted_kinds(stored)
    if count < 1:
        raise ConfigError(f"{count} faults: at least one is needed.")
    camera = trained_camera(engine.model.record)
    crops = crops_by_scene(scenes, scene_of)
    generator = torch.Generator().manual_seed(seed)
    ready = {kind: with_unit_interval(engine, stored, kind, [INCONSISTENT_MASKS]) for kind in kinds}
    pools = {kind: _Pool() for kind in kinds}
    falsely = 0
    for done, (number, scene) in enumerate((n, s) for n in range(count) for s in crops):
        # Kinds of fault take turns, then crops; which mask meets them is left to chance.
        truth = crops[scene][(number // KINDS + scene) % len(crops[scene])]
        mask = masks[int(torch.randint(len(masks), (), generator=generator))][None]
        fault = draw_fault(number, generator)
        wrong = _photograph(truth, mask, fault, camera, noise_std, generator)
        for kind in kinds:
            pools[kind].add(wrong.of_kind(kind), ready[kind], camera, scene, generator)
        right = _photograph(truth, mask, MaskPose(), camera, noise_std, generator)
        falsely += _is_inconsistent(right.cube(ready[kinds[0]], camera))
        if progress is not None:
            progress(done + 1, count * len(crops), {})
    about = {
        "right": count * len(crops),
        "right_inconsistent": falsely,
        "noise": list(noise_std),
        "faults": {"shifts": SHIFTS, "blurs": BLURS, "spreads": SPREADS},
        **({} if names is None else {"fitted_on": list(names)}),
    }
    for kind, pool in pools.items():
        known = Interval.from_record(stored[kind], engine.bands)
        stored[kind] = pool.fit(known, about).to_record()
    return stored


class _Pool:
    """Errors of snapshots whose mask is wrong, and was found inconsistent."""

    def __init__(self) -> None:
        self.ratios: list[Tensor] = []
        self.scenes: list[int] = []
        self.wrong = 0

    def add(
        self,
        shot: Shot,
        ready: Reconstruction,
        camera: CASSI,
        scene: int,
        generator: torch.Generator,
    ) -> None:
        """Reconstruct, and keep the errors if the mask is found inconsistent."""
        cube = shot.cube(ready, camera)
        self.wrong += 1
        if _is_inconsistent(cube):
            self.ratios.append(shot.ratios(cube, generator))
            self.scenes.append(scene)

    def fit(self, known: Interval, about: dict[str, Any]) -> Interval:
        """The interval with the quantiles of all that was found; without, if nothing was."""
        if not self.ratios:
            others = {n: size for n, size in known.classes.items() if n != INCONSISTENT_MASKS}
            return replace(known, classes=others)
        counts = {"wrong": self.wrong, "inconsistent": len(self.ratios)}
        groups = {"scenes": self.scenes}
        return with_class(known, INCONSISTENT_MASKS, self.ratios, groups, {**counts, **about})


def _is_inconsistent(cube: Cube) -> bool:
    return bool(cube.attrs.get("mask_inconsistent"))


def _photograph(
    truth: Tensor,
    mask: Tensor,
    fault: MaskPose,
    camera: CASSI,
    noise_std: tuple[float, float],
    generator: torch.Generator,
) -> Shot:
    """A scene through `mask (1, 1, h, w)` with its fault, which `reconstruct` does not know."""
    seen = camera.forward(fault.shown(truth[None], camera), fault.read(mask, camera))
    return Shot(truth, noisy(seen, noise_std, camera, generator)[0], mask[0, 0])
