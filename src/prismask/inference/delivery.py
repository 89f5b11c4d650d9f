"""Delivery: the mask is brought into its pose, the method is called, the bands are put back.

Everybody who wants a cube as people get it comes through here, `reconstruct` with one snapshot and
its history, `evaluate` with many and without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prismask.errors import ConfigError
from prismask.inference.alignment.pose import MaskPose
from prismask.inference.alignment.search import Alignment
from prismask.inference.findings import Finding
from prismask.inference.inspection import Snapshot, prepare
from prismask.inference.methods.protocol import Aligner, Array, Estimate, Method
from prismask.inference.options import Options
from prismask.optics.camera import CASSI
from prismask.progress import Progress


@dataclass(frozen=True, eq=False)
class Aligned:
    """A snapshot whose mask is in its pose."""

    snapshot: Snapshot
    pose: MaskPose = field(default_factory=MaskPose)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What the history should say."""
    findings: tuple[Finding, ...] = ()


def align(snapshot: Snapshot, aligner: Aligner, progress: Progress | None) -> Aligned:
    """Have a method find the pose of the snapshot's mask."""
    found: Alignment = aligner.align(snapshot, progress)
    mask, camera = snapshot.mask, snapshot.camera
    text = found.text((mask.shape[-2], mask.shape[-1]), camera)
    return Aligned(
        replace(_moved(snapshot, found.found), is_aligned=found.is_worth_it),
        found.found,
        {"mask_pose": list(found.found.numbers), "mask_pose_by": aligner.name},
        (Finding("note", text),),
    )


def in_pose(snapshot: Snapshot, pose: MaskPose) -> Aligned:
    """The same in a pose that was found before."""
    mask, camera = snapshot.mask, snapshot.camera
    where = pose.text((mask.shape[-2], mask.shape[-1]), camera)
    text = (
        f"the mask is read {where}, as was found before."
        if any(pose.numbers)
        else "the mask is read as it was calibrated, as was found before."
    )
    return Aligned(
        _moved(snapshot, pose),
        pose,
        {"mask_pose": list(pose.numbers), "mask_pose_by": "given"},
        (Finding("note", text),),
    )


def _moved(snapshot: Snapshot, pose: MaskPose) -> Snapshot:
    """The snapshot with its mask in a pose, and with it what is known of its errors."""
    camera, told = snapshot.camera, snapshot.mask_std
    spread = None if told is None else pose.position.read(told, camera)
    return replace(snapshot, mask=pose.read(snapshot.mask, camera), mask_std=spread)


def straightened(estimate: Estimate, pose: MaskPose, camera: CASSI) -> Estimate:
    """The estimate with its bands where the scene has them."""
    if not any(pose.shifts(camera)):
        return estimate

    def back(values: Array) -> Array:
        moved = pose.straightened(torch.from_numpy(values)[None], camera)[0]
        return np.ascontiguousarray(moved.numpy())

    values = back(estimate.values)
    ends: list[Array | None] = []
    for end in (estimate.lower, estimate.upper):
        # Moved as a distance: a cubic of its own could put an end on the wrong side.
        away = None if end is None else np.maximum(back(np.abs(end - estimate.values)), 0)
        ends.append(away)
    lower = None if ends[0] is None else np.maximum(values - ends[0], np.minimum(values, 0))
    upper = None if ends[1] is None else values + ends[1]
    std = None if estimate.std is None else np.maximum(back(estimate.std), 0)
    return replace(estimate, values=values, std=std, lower=lower, upper=upper)


def aligned(
    snapshot: Snapshot,
    method: Method,
    aligner: Aligner | None,
    options: Options,
    progress: Progress | None = None,
) -> Aligned:
    """The snapshot with its mask in its pose, if that is asked for."""
    if options.pose is not None:
        return in_pose(snapshot, options.pose.pose)
    if not options.align:
        return Aligned(snapshot)
    if aligner is None:
        raise ConfigError(
            f"{method.name} cannot find the pose of a mask, and no network fits this camera: leave "
            "align out."
        )
    return align(snapshot, aligner, progress)


def deliver_batch(
    method: Method,
    aligner: Aligner | None,
    measurement: Tensor,
    mask: Tensor,
    camera: CASSI,
    options: Options,
) -> Tensor:
    """Cubes `(B, C, H, W)` behind `measurement (B, H, L)`, the numbers that `reconstruct` gives."""
    if not options.align and options.pose is None:
        return method.batch(measurement, mask, camera, options)
    cubes = []
    for snapshot in prepare(measurement, mask, camera, options).snapshots():
        ready = aligned(snapshot, method, aligner, options)
        made = straightened(method(ready.snapshot, options), ready.pose, camera)
        cubes.append(torch.from_numpy(made.values))
    return torch.stack(cubes).to(measurement.device)
